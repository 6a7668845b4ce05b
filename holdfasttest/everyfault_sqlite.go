package holdfasttest

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
)

// files makes the databases of EveryFault.
type files struct {
	tb    TB
	opts  []holdfast.Options
	dir   string
	owner string
	empty []byte // a database with Holdfast's tables
}

func prepareFiles(tb TB, opts []holdfast.Options) *files {
	tb.Helper()
	e := &files{tb: tb, opts: opts, dir: tb.TempDir(), owner: "owner-" + kit.Random()}
	path := filepath.Join(e.dir, "empty.db")
	pool := openFile(tb, path)
	err := pool.Close() // which puts everything into one file
	if err == nil {
		e.empty, err = os.ReadFile(path) //nolint:gosec // in the test's folder
	}
	e.must(err)
	return e
}

func (e *files) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("holdfasttest: %v", err)
	}
}

// Begin implements everyfault.Engine.
func (e *files) Begin() everyfault.Database[*Kit[*sql.Tx]] {
	e.tb.Helper()
	path := filepath.Join(e.dir, kit.Random()+".db")
	e.must(os.WriteFile(path, e.empty, 0o600))
	connector, err := connect(path, time.Second)
	e.must(err)
	return &file{e, path, e.kit(sql.OpenDB(connector))}
}

func (e *files) kit(pool *sql.DB) *Kit[*sql.Tx] {
	e.tb.Helper()
	k := OnSQL(e.tb, pool, e.opts...)
	if k.Owner != "" {
		k.Owner = e.owner
	}
	return k
}

// file is the database of one run.
type file struct {
	e     *files
	path  string
	clean *Kit[*sql.Tx]
}

// Clean implements everyfault.Database.
func (f *file) Clean() *Kit[*sql.Tx] { return f.clean }

// Start implements everyfault.Database.
func (f *file) Start(p *everyfault.Process, via func(http.RoundTripper) http.RoundTripper) (k *Kit[*sql.Tx], closePool func()) {
	f.e.tb.Helper()
	connector, err := connect(f.path, 20*time.Millisecond)
	f.e.must(err)
	pool := sql.OpenDB(sqliteDriver.Connector(connector, p))
	k = f.e.kit(pool)
	k.Transport = via(k.Transport)
	return k, func() { _ = pool.Close() }
}

// TimePasses implements everyfault.Database.
func (f *file) TimePasses() error { return kit.TimePasses(f.clean.DB, f.clean.Pool) }

// End implements everyfault.Database.
func (f *file) End() {
	_ = f.clean.Pool.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(f.path + suffix)
	}
}

// connect returns the connector of a database file, whose connections wait for a lock for busy.
func connect(path string, busy time.Duration) (driver.Connector, error) {
	return sqlite.NewConnector("file:" + filepath.ToSlash(path) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(" +
		strconv.FormatInt(busy.Milliseconds(), 10) + ")")
}

var sqliteDriver = everyfault.Driver{
	Timeout: busy, Deadlock: snapshot,
	Wrap: func(own *everyfault.Conn, c driver.Conn) (driver.Conn, error) {
		hooks, is := c.(sqlite.HookRegisterer)
		if !is {
			return nil, errors.New("holdfasttest: the SQLite driver's connection is another one than expected")
		}
		return hooked{own, hooks}, nil
	},
}

// hooked is a connection with what the fence of a transaction needs.
type hooked struct {
	*everyfault.Conn
	sqlite.HookRegisterer
}

// refusal is an error of the database: SQLite's code for a lock that was not got, or for a transaction that
// must run again.
type refusal int

const (
	busy     refusal = 5
	snapshot refusal = 517
)

func (r refusal) Code() int { return int(r) }

func (r refusal) Error() string {
	return fmt.Sprintf("holdfasttest: %s (%d)", map[refusal]string{busy: "the database is locked", snapshot: "deadlock: the transaction was rolled back"}[r], int(r))
}
