//go:build unix

package doctor_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// eventually waits until the finding for check appears, or disappears if there is false.
func eventually(t *testing.T, url, check string, there bool) {
	t.Helper()
	for end := time.Now().Add(dbtest.Hang); ; time.Sleep(50 * time.Millisecond) {
		if _, ok := diagnose(t, url)[check]; ok == there {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s found: %v is not so", check, there)
		}
	}
}

// TestPostgresServers checks a server that does not write through, its standby, and a database
// that receives a subscription.
func TestPostgresServers(t *testing.T) {
	t.Parallel()
	primary := dbtest.OwnPostgres(t, "-c fsync=off -c full_page_writes=off -c wal_level=logical")
	migrate(t, primary.URL)
	found := diagnose(t, primary.URL)
	want(t, found, "fsync", doctor.Broken)
	want(t, found, "full_page_writes", doctor.Broken)
	wantNone(t, found, "synchronous standbys", "replication", "standby")

	standby := primary.Standby(t)
	found = diagnose(t, standby.URL)
	want(t, found, "standby", doctor.Broken)
	if !strings.Contains(found["standby"].Problem, "standby") || !strings.Contains(found["standby"].Advice, "primary") {
		t.Errorf("got %+v", found["standby"])
	}
	if _, err := holdfastpgx.Open(t.Context(), dbtest.OpenPgx(t, standby.URL), holdfast.Options{SingleOwner: true}); err == nil {
		t.Error("pgx opens a standby")
	}
	eventually(t, primary.URL, "synchronous standbys", true) // the standby streams
	want(t, diagnose(t, primary.URL), "synchronous standbys", doctor.Warning)
	exec(t, primary.URL, `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`)
	eventually(t, primary.URL, "synchronous standbys", false)

	reports := strings.Replace(primary.URL, "/postgres?", "/reports?", 1)
	exec(t, primary.URL, `CREATE DATABASE reports`, `CREATE PUBLICATION everything FOR ALL TABLES`,
		`SELECT pg_create_logical_replication_slot('reports', 'pgoutput')`)
	migrate(t, reports)
	wantNone(t, diagnose(t, reports), "tables")
	exec(t, reports, `CREATE SUBSCRIPTION reports CONNECTION '`+primary.URL+`' PUBLICATION everything WITH (create_slot = false, copy_data = false)`)
	want(t, diagnose(t, reports), "tables", doctor.Broken)
}

// TestReadOnlyServer checks that a well-configured replica is refused by name.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	url := dbtest.OwnMariaDB(t, "--read-only")
	found := diagnose(t, url)
	want(t, found, "read only", doctor.Broken)
	exec(t, url, `SET GLOBAL read_only = 0`)
	wantNone(t, diagnose(t, url), "read only")
}

// TestPgBouncer runs a real PgBouncer in the mode that takes sessions away and in the mode
// that keeps them, and a driver that relies on its session.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // PgBouncer is for PostgreSQL only
		}
		dsn := dbtest.DSN(t, e)
		migrate(t, dsn)
		wantNone(t, diagnose(t, dsn), "pooler", "prepared statements")
		session := dbtest.PgBouncer(t, dsn, "session")
		wantNone(t, diagnose(t, session), "pooler", "prepared statements")

		transaction := dbtest.PgBouncer(t, dsn, "transaction")
		for _, mode := range []string{"exec", "simple_protocol"} {
			found := diagnose(t, transaction+"&default_query_exec_mode="+mode)
			want(t, found, "pooler", doctor.Warning)
			wantNone(t, found, "prepared statements")
		}
		if dbtest.BouncerPrepares(t) {
			found := diagnose(t, transaction)
			want(t, found, "pooler", doctor.Warning)
			wantNone(t, found, "prepared statements")
			return
		}
		want(t, diagnose(t, transaction), "prepared statements", doctor.Broken)
		pool := dbtest.OpenPgx(t, transaction)
		db, err := holdfastpgx.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err == nil {
			var found []doctor.Finding
			if found, err = doctor.Check(t.Context(), db); err == nil && (len(found) == 0 || found[0].Check != "prepared statements") {
				t.Errorf("pgx: got %+v", found)
			}
		}
		if err != nil {
			if f, ok := doctor.Refused(err); !ok || f[0].Check != "prepared statements" {
				t.Errorf("pgx: %v", err)
			}
		}
	})
}

// TestReplica checks a server that accepts writes and also applies those of another server.
// The source does not exist, which makes no difference to what the server reports.
func TestReplica(t *testing.T) { //nolint:paralleltest // a channel of a server that tests share
	for engine, queries := range map[dbtest.Engine][4]string{
		dbtest.MySQL: {
			`CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='none', SOURCE_PASSWORD='none' FOR CHANNEL 'hf_doctor'`,
			`START REPLICA IO_THREAD FOR CHANNEL 'hf_doctor'`, `STOP REPLICA FOR CHANNEL 'hf_doctor'`, `RESET REPLICA ALL FOR CHANNEL 'hf_doctor'`,
		},
		dbtest.MariaDB: {
			`CHANGE MASTER 'hf_doctor' TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='none', MASTER_PASSWORD='none'`,
			`START SLAVE 'hf_doctor' SQL_THREAD`, `STOP SLAVE 'hf_doctor'`, `RESET SLAVE 'hf_doctor' ALL`,
		},
	} {
		conformance.Run(t, conformance.Only(conformance.SQL(), engine), func(e *conformance.Env[*sql.Tx]) {
			end := func() {
				for _, q := range queries[2:] {
					_, _ = e.SQL.ExecContext(context.WithoutCancel(e.Ctx), q)
				}
			}
			end() // undo what a killed test left
			defer end()
			wantNone(e.T, diagnose(e.T, e.DSN), "replication")
			e.Must(queries[0])
			e.Must(queries[1])
			want(e.T, diagnose(e.T, e.DSN), "replication", doctor.Broken)
			end()
			wantNone(e.T, diagnose(e.T, e.DSN), "replication")
		})
	}
}
