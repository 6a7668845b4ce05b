package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// The test binary starts itself as one of several processes.
const (
	childEngine = "HOLDFAST_MIGRATE_CHILD_ENGINE"
	childDSN    = "HOLDFAST_MIGRATE_CHILD_DSN"
	childPrefix = "HOLDFAST_MIGRATE_CHILD_PREFIX"
	childStart  = "HOLDFAST_MIGRATE_CHILD_START"
	childLoop   = "HOLDFAST_MIGRATE_CHILD_LOOP"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEngine) == "" {
		dbtest.VerifyNoLeaks(m)
		return
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child() error {
	pool, _, err := dsn.Open(os.Getenv(childDSN))
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	prefix := holdfast.Options{Prefix: os.Getenv(childPrefix)}
	if os.Getenv(childLoop) != "" { // until it is killed
		for {
			_ = migrations.Up(ctx, pool, prefix)
			_ = migrations.Down(ctx, pool, prefix)
		}
	}
	start, err := strconv.ParseInt(os.Getenv(childStart), 10, 64)
	if err != nil {
		return err
	}
	time.Sleep(time.Until(time.Unix(0, start)))
	return migrations.Up(ctx, pool, prefix)
}

func command(t *testing.T, e dbtest.Engine, url string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), childEngine+"="+string(e), childDSN+"="+url), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestProcessesAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		for round, processes := range []int{2, 2, 2, 2, 2, 2, 2, 2, 8} {
			prefix := fmt.Sprintf("round%d_", round)
			start := strconv.FormatInt(time.Now().Add(300*time.Millisecond).UnixNano(), 10)
			var wait []func()
			for range processes {
				cmd, out := command(t, e, url, childPrefix+"="+prefix, childStart+"="+start)
				must(t, cmd.Start())
				wait = append(wait, func() {
					if err := cmd.Wait(); err != nil {
						t.Errorf("round %d of %d processes: %v: %s", round, processes, err, out)
					}
				})
			}
			for _, w := range wait {
				w()
			}
			works(t, pool, holdfast.Options{Prefix: prefix})
			wantVersion(t, pool, migrations.Version, holdfast.Options{Prefix: prefix})
		}
	})
}

// others counts the sessions of the killed process that may still do something.
func others(t *testing.T, pool *sql.DB, e dbtest.Engine) int {
	t.Helper()
	switch e {
	case dbtest.SQLite:
		return 0
	case dbtest.Postgres:
		return scan[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE application_name = current_schema()`)
	case dbtest.Vitess: // whose sessions are the router's
		return 1 - scan[int](t, pool, `SELECT IS_FREE_LOCK('`+mysqlLock(t, pool)+`')`)
	}
	return scan[int](t, pool, `SELECT COUNT(*) FROM `+e.Sessions()+` WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
}

func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		pool.SetMaxIdleConns(0) // so that only the sessions of the killed process remain
		dirty := 0
		for i := range 8 {
			childURL := url
			if e == dbtest.Postgres {
				childURL += "&application_name=" + scan[string](t, pool, `SELECT current_schema()`)
			}
			cmd, out := command(t, e, childURL, childPrefix+"=holdfast_", childLoop+"=1")
			must(t, cmd.Start())
			time.Sleep(time.Duration(150+29*i) * time.Millisecond)
			must(t, cmd.Process.Kill())
			_ = cmd.Wait()
			if out.Len() > 0 {
				t.Errorf("the process said: %s", out)
			}
			// The server may still be finishing the Down of the killed process.
			for others(t, pool, e) > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if _, d, err := migrations.Applied(t.Context(), pool); err == nil && d {
				dirty++
			}
			must(t, migrations.Up(t.Context(), pool))
			works(t, pool)
		}
		t.Logf("%d of 8 kills left a dirty version", dirty)
		if dirty > 0 && (e == dbtest.Postgres || e == dbtest.SQLite) {
			t.Error("DDL and version are not one transaction")
		}
	})
}
