package dbtest

import (
	"slices"
	"testing"
)

func TestParseEngines(t *testing.T) {
	t.Parallel()
	got, err := parseEngines(requireVariable, " postgres, sqlite ,,")
	if want := []Engine{Postgres, SQLite}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := parseEngines(requireVariable, ""); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseEngines(requireVariable, "postgres,oracle"); err == nil {
		t.Error("an unknown engine is no error")
	}
}

func TestEnginesFollowTheEnvironment(t *testing.T) {
	t.Setenv(chosenVariable, "")
	for _, e := range allEngines {
		if e != SQLite {
			t.Setenv(e.variable(), "")
		}
	}
	if got, want := Engines(), []Engine{SQLite}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	t.Setenv("HOLDFAST_TEST_MARIADB_DSN", "mysql://u:p@tcp(h)/db")
	if got, want := Engines(), []Engine{MariaDB, SQLite}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	t.Setenv(chosenVariable, "mariadb,postgres")
	if got, want := Engines(), []Engine{MariaDB}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
