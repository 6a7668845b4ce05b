//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestFirstOfTakesTheFirst(t *testing.T) {
	t.Parallel()
	want := &server{engine: postgres}
	later := func(context.Context, engine) (*server, error) {
		t.Error("the source after it was asked")
		return nil, errors.New("later")
	}
	got, err := firstOf(t.Context(), postgres, []source{
		refuse(""), refuse("no Docker"),
		func(context.Context, engine) (*server, error) { return want, nil },
		later,
	})
	if err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFirstOfGivesEveryReason(t *testing.T) {
	t.Parallel()
	broken := func(context.Context, engine) (*server, error) {
		return nil, &brokenError{"it does not work", errors.New("a long log")}
	}
	_, err := firstOf(t.Context(), mysql, []source{refuse(""), refuse("no Docker"), broken, broken})
	if err == nil || err.Error() != "no Docker, it does not work" {
		t.Errorf("got %v", err)
	}
}

// An unusable server that the user named is not replaced by another.
func TestFirstOfStopsAtTheUsersServer(t *testing.T) {
	t.Parallel()
	_, err := firstOf(t.Context(), mysql, []source{
		func(context.Context, engine) (*server, error) { return nil, errSetByUser },
		func(context.Context, engine) (*server, error) { return &server{}, nil },
	})
	if !errors.Is(err, errSetByUser) {
		t.Errorf("got %v", err)
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_POSTGRES_DSN", "")
	if _, err := fromEnvironment(t.Context(), postgres); err == nil || errors.Is(err, errSetByUser) {
		t.Errorf("not set: %v", err)
	}
	t.Setenv("HOLDFAST_TEST_POSTGRES_DSN", "postgres://u:hun/ter2@h/d")
	if _, err := fromEnvironment(t.Context(), postgres); !errors.Is(err, errSetByUser) {
		t.Errorf("unreadable: %v", err)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, version := range map[string]string{
		"postgres": "18.6 (Debian)\n", "sqlite": "3.53.4\n", "unrelated": "1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran, err := readMarkers(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := &results{
		servers: []*server{{engine: postgres, how: "docker"}, {engine: mariadb, how: "docker"}},
		reasons: map[engine]string{mysql: "no Docker engine, no mysqld on this machine"},
	}
	want := []string{
		"engines that ran: postgres 18.6 (docker), sqlite 3.53.4",
		"did not run: mysql (no Docker engine, no mysqld on this machine), mariadb (no test used it)",
	}
	if got := found.summary(ran); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got, want := (&results{}).summary(nil)[0], "engines that ran: none"; got != want {
		t.Errorf("got %q", got)
	}
	if got, want := found.unavailable(allEngines), []engine{mysql}; !slices.Equal(got, want) {
		t.Errorf("unavailable: got %v", got)
	}
}

// A required engine counts only if a test used it.
func TestRequiredEngineHasToRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command string
		want    int
	}{
		"used":             {"echo 3.1 >$HOLDFAST_TEST_RAN_DIR/sqlite", 0},
		"unused":           {"true", 1},
		"its own status":   {"exit 7", 7},
		"used, and failed": {"echo 3.1 >$HOLDFAST_TEST_RAN_DIR/sqlite; exit 3", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := options{required: []engine{sqlite}, command: []string{"sh", "-c", test.command}}
			if got := opts.runWith(t.Context(), &results{}, t.TempDir()); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		mark := filepath.Join(t.TempDir(), "mark")
		opts := options{required: []engine{mysql}, command: []string{"touch", mark}}
		if got := opts.runWith(t.Context(), &results{}, t.TempDir()); got != 1 {
			t.Errorf("got %d", got)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Error("the command ran for nothing")
		}
	})
}

// An interrupt ends the command and all processes that it started.
func TestInterruptEndsTheGroup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	alive := filepath.Join(t.TempDir(), "alive")
	go func() {
		defer cancel(signalError{syscall.SIGTERM})
		for range 600 { // a minute at most
			if _, err := os.Stat(alive); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	status := runChild(ctx, []string{"sh", "-c", "sh -c 'trap \"\" TERM; while :; do touch " + alive + "; sleep 0.1; done' & sleep 60"}, "", os.Environ())
	if want := 128 + int(syscall.SIGTERM); status != want {
		t.Errorf("status %d, want %d", status, want)
	}
	if err := os.Remove(alive); err != nil {
		t.Fatalf("the grandchild did not run: %v", err)
	}
	time.Sleep(400 * time.Millisecond)
	if _, err := os.Stat(alive); err == nil {
		t.Error("the grandchild is still running")
	}
}
