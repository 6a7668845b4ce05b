package console_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

func mountConsole(ctx context.Context, db *holdfast.DB[*sql.Tx], mux *http.ServeMux) error {
	page, err := console.New(ctx, db, console.Options{Token: os.Getenv("CONSOLE_TOKEN"), Write: true})
	if err != nil {
		return err
	}
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", page))
	return nil
}

func mountFourEyes(ctx context.Context, db *holdfast.DB[*sql.Tx], mux *http.ServeMux, userOf func(ctx context.Context) string) error {
	page, err := console.New(ctx, db, console.Options{
		BehindOwnAuthentication: true, Write: true, FourEyes: true,
		Actor: func(r *http.Request) string { return userOf(r.Context()) }, // your program's
	})
	if err != nil {
		return err
	}
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", page))
	return nil
}

// TestHowTo runs what docs/howto/console.md shows.
func TestHowTo(t *testing.T) {
	t.Setenv("CONSOLE_TOKEN", "2JPbk6wX0mQvR9sTz4Lc")
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	for status, mount := range map[int]func(mux *http.ServeMux) error{
		http.StatusUnauthorized: func(mux *http.ServeMux) error { return mountConsole(t.Context(), kit.DB, mux) },
		http.StatusOK: func(mux *http.ServeMux) error {
			return mountFourEyes(t.Context(), kit.DB, mux, func(context.Context) string { return "olga" })
		},
	} {
		mux, answer := http.NewServeMux(), httptest.NewRecorder()
		if err := mount(mux); err != nil {
			t.Fatal(err)
		}
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/ops/console/", http.NoBody))
		if answer.Code != status {
			t.Errorf("got %d, want %d: %s", answer.Code, status, answer.Body)
		}
	}
}
