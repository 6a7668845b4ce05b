package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// terminal is a pseudo-terminal, as a person would use one.
type terminal struct {
	*os.File

	master *os.File
	mu     sync.Mutex
	shown  bytes.Buffer
}

// terminalPair opens both ends of a pseudo-terminal.
func terminalPair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, slave := terminalPair(t)
	screen := &terminal{File: slave, master: master}
	var reads sync.WaitGroup
	reads.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil { // the other end is closed
				return
			}
			screen.mu.Lock()
			screen.shown.Write(buffer[:n])
			screen.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = slave.Close()
		reads.Wait()
		_ = master.Close()
	})
	return screen
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// expired creates expired rows for the reaper.
func expired(t *testing.T, pool *sql.DB) {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := idempotency.New(t.Context(), db, idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	op := idempotency.Op{Name: "op", Key: "1", Request: 1}
	if _, err := idempotency.Do(t.Context(), store, op, func(context.Context, *sql.Tx) (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // twice its life
}

// TestProgress checks that a long command shows its progress on a terminal and erases it at
// the end, and that a script sees none of it.
func TestProgress(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"migrate up": `migrating: \d+s`, "reap": `reaping: \d+s`,
		"after-restore --yes --by ada --reason disk": `after-restore: \d+s, statement `, "bench": `bench: \d+s, making its tables`,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			want := regexp.MustCompile(want)
			// A transaction waits for the lock when it begins, longer than the test holds it. One that reads
			// first is refused at once, and the command would have no attempt left when its progress is seen.
			url := dbtest.With(dbtest.With(dbtest.DSN(t, dbtest.SQLite), "_txlock=immediate"), fmt.Sprintf("_pragma=busy_timeout(%d)", dbtest.Hang.Milliseconds()))
			pool := dbtest.OpenSQL(t, url)
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			args := append(strings.Fields(line), "-dsn", url)
			if line == "migrate up" || line == "bench" {
				args = append(args, "-prefix", "new_") // so that there are migrations to apply
			}
			expired(t, pool)
			// stuck runs the command while another connection has SQLite's write lock.
			stuck := func(stderr *os.File, until func() bool, args ...string) (code int, stdout string) {
				conn, err := pool.Conn(t.Context())
				if err == nil {
					_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
				}
				if err != nil {
					t.Fatal(err)
				}
				free := make(chan struct{})
				go func() {
					defer close(free)
					for end := time.Now().Add(dbtest.Hang); !until() && time.Now().Before(end); {
						time.Sleep(10 * time.Millisecond)
					}
					_, _ = conn.ExecContext(context.WithoutCancel(t.Context()), `ROLLBACK`)
					_ = conn.Close()
				}()
				var out strings.Builder
				code = run(t.Context(), args, &out, stderr)
				<-free
				return code, out.String()
			}
			if line == "bench" {
				args = append(args, "-duration=1s")
			}
			screen := newTerminal(t)
			code, out := stuck(screen.File, func() bool { return want.MatchString(screen.text()) }, args...)
			const away = "\r\x1b[K"
			for end := time.Now().Add(dbtest.Hang); !strings.HasSuffix(screen.text(), away) && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // it was written, but may not have arrived yet
			}
			if shown := screen.text(); code != exitOK || out == "" || !want.MatchString(shown) || !strings.HasSuffix(shown, away) {
				t.Errorf("status %d, %s, shown %q", code, out, shown)
			}
			script, start := newTerminal(t), time.Now()
			expired(t, pool)
			_, _ = stuck(script.File, func() bool { return time.Since(start) > progressDelay+2*progressPause }, append(args, "-json")...)
			if shown := script.text(); strings.Contains(shown, "\x1b") {
				t.Errorf("with -json: shown %q", shown)
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		file, err := os.Create(t.TempDir() + "/stderr")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		root := newRoot()
		root.SetErr(file)
		if p := new(flags).progress(root, "work"); p != nil {
			t.Error("it is not a terminal")
		}
	})
}
