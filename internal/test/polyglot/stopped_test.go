//go:build linux

package polyglot_test

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// run enables these tests.
const run = "HOLDFAST_TEST_POLYGLOT"

// rounds is how often a holder is stopped, for each language and engine, with the triggers and
// without; ttl is the holder's TTL.
const (
	rounds = 10
	ttl    = 100 * time.Millisecond
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// languages are the programs. Debian's drivers belong to its own python3, which may not be the first in PATH.
var languages = map[string][]string{
	"python": {"/usr/bin/python3", "holder.py"},
	"php":    {"/usr/bin/php", "holder.php"},
}

// TestStoppedHolder stops a holder that is not written in Go past its lease. Another one gets the
// lease and writes. When the first one goes on and writes, the row is stale; with the fence in the
// table no row is. A holder that is stopped between its write and its commit keeps the lock from
// others until it goes on.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	if os.Getenv(run) == "" {
		t.Skip("make polyglot installs the languages and runs this")
	}
	for language, command := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
				if e.Engine == dbtest.SQLite {
					return // it is a library of one program, and has no server to fence its clients
				}
				e.Must(`CREATE TABLE orders (id VARCHAR(32) NOT NULL PRIMARY KEY, state VARCHAR(16) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
				orders, err := fence.New(e.Ctx, e.DB, fence.Spec{Table: "orders", Key: "order/{id}", UnfencedInserts: true})
				if err != nil {
					t.Fatal(err)
				}
				h := start(e, command)
				s := stopped{Env: e, language: language, holder: h, other: e.Locker()}
				bare := s.rounds("bare")
				if err := orders.Enforce(e.Ctx); err != nil {
					t.Fatal(err)
				}
				fenced := s.rounds("fenced")
				s.betweenWriteAndCommit()
				e.Logf("language=%s engine=%s rounds=%d stale=%d refused=%d", language, e.Engine, rounds, fenced, s.refused)
				e.Logf("control=bare language=%s engine=%s rounds=%d stale=%d", language, e.Engine, rounds, bare)
				if fenced != 0 || s.refused != rounds || bare == 0 {
					e.Errorf("%d stale rows with the fence, want 0; %d of %d refused; %d stale without it, want some", fenced, s.refused, rounds, bare)
				}
			})
		})
	}
}

type stopped struct {
	*conformance.Env[*sql.Tx]

	language string
	holder   *holder
	other    *sqllock.Locker[*sql.Tx]
	refused  int
}

// rounds returns the number of stale rows.
func (s *stopped) rounds(series string) int {
	s.Helper()
	for n := range rounds {
		id := fmt.Sprint(series, n)
		token := s.acquire(id)
		s.holder.stop()
		lease := s.MustAcquire(s.other, "order/"+id) // once the holder's lease has expired
		if err := s.write(lease, id); err != nil {
			s.Fatal(err)
		}
		s.holder.signal(syscall.SIGCONT)
		switch answer := s.holder.ask("write " + id + " " + token); {
		case series == "fenced" && answer == map[bool]string{true: "refused HF002", false: "refused 30101"}[s.Engine == dbtest.Postgres]:
			s.refused++
		case series == "bare" && answer == "ok":
		default:
			s.Errorf("%s: the woken holder got %q", series, answer)
		}
		s.MustRelease(lease)
	}
	return s.Int(`SELECT COUNT(*) FROM orders WHERE state <> 'go' AND id LIKE $1`, series+"%")
}

// acquire makes an order, and has the holder acquire its lease.
func (s *stopped) acquire(id string) (token string) {
	s.Helper()
	s.Must(`INSERT INTO orders (id, state) VALUES ($1, 'new')`, id)
	answer := s.holder.ask(fmt.Sprintf("acquire order/%s %d", id, ttl.Microseconds()))
	token, ok := strings.CutPrefix(answer, "token ")
	if !ok {
		s.Fatalf("the holder got %q", answer)
	}
	return token
}

func (s *stopped) write(lease *sqllock.Lease, id string) error {
	return s.other.InTx(s.Ctx, lease, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.Exec(ctx, tx, `UPDATE orders SET state = 'go', fence = $1 WHERE id = $2`, lease.Token(), id)
		return err
	})
}

func (s *stopped) betweenWriteAndCommit() {
	s.Helper()
	token := s.acquire("open")
	if answer := s.holder.ask("open open " + token); answer != "ok" {
		s.Fatalf("the holder, whose lease was granted to nobody else, got %q", answer)
	}
	s.holder.stop()
	s.Eventually("the row expires", func() bool {
		return s.Int(`SELECT CASE WHEN expires_at <= `+access.Of(s.DB).Dialect.Now+` THEN 1 ELSE 0 END FROM holdfast_locks WHERE name = $1`, []byte("lorder/open")) == 1
	})
	if _, err := s.other.TryAcquire(s.Ctx, "order/open"); !errors.Is(err, sqllock.ErrHeld) {
		s.Errorf("while the holder is stopped before its commit: %v", err)
	}
	s.holder.signal(syscall.SIGCONT)
	if answer := s.holder.ask("commit"); answer != "ok" {
		s.Errorf("commit: %q", answer)
	}
	if n := s.Int(`SELECT COUNT(*) FROM orders WHERE id = 'open' AND state = $1`, s.language); n != 1 {
		s.Error("the holder's write is not there")
	}
	s.MustRelease(s.MustAcquire(s.other, "order/open"))
}

// holder is a process in another language.
type holder struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func start(e *conformance.Env[*sql.Tx], command []string) *holder {
	e.Helper()
	config, err := json.Marshal(configOf(e))
	e.Check(err)
	folder, err := os.Getwd()
	e.Check(err)
	cmd := exec.CommandContext(context.WithoutCancel(e.Ctx), command[0], filepath.Join(folder, command[1]), string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	e.Check(err)
	out, err := cmd.StdoutPipe()
	e.Check(err)
	e.Check(cmd.Start())
	e.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			e.Errorf("%s: %v", command[1], err)
		}
	})
	return &holder{e, cmd, in, bufio.NewScanner(out)}
}

func (h *holder) ask(command string) string {
	h.tb.Helper()
	if _, err := fmt.Fprintln(h.in, command); err != nil {
		h.tb.Fatal(err)
	}
	if !h.out.Scan() {
		h.tb.Fatalf("the holder ended at %q: %v", command, h.out.Err())
	}
	return h.out.Text()
}

func (h *holder) signal(s syscall.Signal) {
	h.tb.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.tb.Fatal(err)
	}
}

// stop returns when the holder stands.
func (h *holder) stop() {
	h.tb.Helper()
	if err := dbtest.Stop(h.cmd.Process); err != nil {
		h.tb.Fatal(err)
	}
}

// configOf is where the database is, as the programs read it.
func configOf(e *conformance.Env[*sql.Tx]) map[string]string {
	e.Helper()
	if e.Engine == dbtest.Postgres {
		u, err := url.Parse(e.DSN)
		e.Check(err)
		password, _ := u.User.Password()
		return map[string]string{
			"engine": "postgres", "host": u.Hostname(), "port": cmp.Or(u.Port(), "5432"), "user": u.User.Username(), "password": password,
			"database": strings.TrimPrefix(u.Path, "/"), "schema": e.Schema(),
		}
	}
	c, err := mysqldriver.ParseDSN(strings.TrimPrefix(e.DSN, "mysql://"))
	e.Check(err)
	host, port, err := net.SplitHostPort(c.Addr)
	e.Check(err)
	return map[string]string{"engine": "mysql", "host": host, "port": port, "user": c.User, "password": c.Passwd, "database": c.DBName}
}
