//go:build unix

package dbtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// PostgresNode has the programs, the files and the port of a PostgreSQL server, which may be the primary of
// others or a standby. It does not start the server.
type PostgresNode struct {
	Name string // as a standby
	Port string // on 127.0.0.1
	Dir  string // of its data and its log
	As   *syscall.Credential

	bin string
}

// NewPostgresNode returns a node without data. The error names what this machine lacks: the programs or an
// account for them.
func NewPostgresNode(tb testing.TB, name string) (*PostgresNode, error) {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, errors.New("no initdb in /usr/lib/postgresql/*/bin")
	}
	as, err := accountOf("postgres")
	if err != nil {
		return nil, err
	}
	return &PostgresNode{Name: name, Port: FreePort(tb), Dir: OwnFolder(tb, as), As: as, bin: filepath.Dir(found[len(found)-1])}, nil
}

// Program returns the path of a program of this PostgreSQL.
func (n *PostgresNode) Program(name string) string { return filepath.Join(n.bin, name) }

// Data returns the folder of the data.
func (n *PostgresNode) Data() string { return filepath.Join(n.Dir, "data") }

// Log returns the file for the server's output.
func (n *PostgresNode) Log() string { return filepath.Join(n.Dir, "log") }

// Address returns host:port.
func (n *PostgresNode) Address() string { return "127.0.0.1:" + n.Port }

// URL returns the URL of the database postgres.
func (n *PostgresNode) URL() string {
	return "postgres://holdfast@" + n.Address() + "/postgres?sslmode=disable"
}

// Run runs a program of this PostgreSQL until it ends.
func (n *PostgresNode) Run(program string, args ...string) error {
	return runAs(n.As, n.Dir, n.Program(program), args...)
}

// Init makes the data of a new primary.
func (n *PostgresNode) Init() error {
	return n.Run("initdb", "-D", n.Data(), "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
}

// CopyOf makes the data of a standby of primary, which runs. What the node had is lost.
func (n *PostgresNode) CopyOf(primary *PostgresNode) error {
	if err := os.RemoveAll(n.Data()); err != nil {
		return err
	}
	return n.Run("pg_basebackup", "-d", primary.URL()+"&application_name="+n.Name, "-D", n.Data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// Conninfo returns the connection string with which the node is a standby of primary.
func (n *PostgresNode) Conninfo(primary *PostgresNode) string {
	return "host=127.0.0.1 port=" + primary.Port + " user=holdfast application_name=" + n.Name
}

// Configure adds settings such as "port=5432" to the file postgresql.conf.
func (n *PostgresNode) Configure(settings ...string) error {
	file := filepath.Join(n.Data(), "postgresql.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, fmt.Sprintf("\n%s\n", strings.Join(settings, "\n"))...), 0o600)
}
