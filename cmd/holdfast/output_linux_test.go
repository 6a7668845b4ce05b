package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestColours checks that a terminal gets colours, unless the environment says otherwise, and that other
// readers get none.
func TestColours(t *testing.T) {
	url := migrated1(t)
	for _, c := range []struct {
		noColor, term string
		want          bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		screen := newTerminal(t)
		if code := run(t.Context(), []string{"migrate", "status", "-dsn", url}, screen.File, screen.File); code != exitOK {
			t.Errorf("status %d", code)
		}
		for end := time.Now().Add(dbtest.Hang); !strings.Contains(screen.text(), "version 1 of 1") && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		text := screen.text()
		if strings.Contains(text, "\x1b[32mapplied\x1b[00m") != c.want || strings.Contains(text, "\x1b") != c.want {
			t.Errorf("NO_COLOR=%s TERM=%s: %q", c.noColor, c.term, text)
		}
	}
	if _, out, _ := command(t, "migrate", "status", "-dsn", url); strings.Contains(out, "\x1b") {
		t.Errorf("what is no terminal got %q", out)
	}
}

// TestErrorOnTerminal checks that a person sees the code of an error.
func TestErrorOnTerminal(t *testing.T) {
	t.Parallel()
	screen := newTerminal(t)
	args := []string{"ops", "show", "--name", "a", "--key", "b", "-dsn", migrated1(t)}
	const want = "what to do: holdfast explain operation-not-found"
	if code := run(t.Context(), args, screen.File, screen.File); code != exitFailed {
		t.Errorf("status %d", code)
	}
	for end := time.Now().Add(dbtest.Hang); !strings.Contains(screen.text(), want) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if text := screen.text(); !strings.Contains(text, want) {
		t.Errorf("got %q", text)
	}
	if _, _, err := command(t, args...); strings.Contains(err, "explain") {
		t.Errorf("a script got %q", err)
	}
}

// TestWatchOnTerminal checks that an error takes the place of the list, and the list that of the error.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	url := migrated1(t)
	db := dbtest.OpenSQL(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	screen := newTerminal(t)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"locks", "list", "--watch=100ms", "-dsn", url}, screen.File, io.Discard)
	}()
	shows := func(want string) {
		t.Helper()
		for end := time.Now().Add(dbtest.Hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
			text := screen.text()
			if strings.Contains(text[strings.LastIndex(text, "\x1b[2J")+1:], want) {
				return
			}
		}
		t.Errorf("no %q in %q", want, screen.text())
	}
	rename := func(from, to string) {
		if _, err := db.ExecContext(ctx, "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Error(err)
		}
	}
	shows("no leases")
	rename("holdfast_locks", "away")
	shows("trying again in 100ms")
	rename("away", "holdfast_locks")
	shows("no leases")
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("status %d", c)
	}
}
