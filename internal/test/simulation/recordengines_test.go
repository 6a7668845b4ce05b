package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/migrations"
)

// twice runs each statement of a session on the store and, with the store's clock, on a connection of SQLite, and compares the
// answers and the codes of the errors.
type twice struct {
	t       *testing.T
	records *records
	session session
	real    *sql.Conn
	now     int64
	runs    int
	codes   map[int]int
}

func (b *twice) ask(ctx context.Context, name, text string, args []any, write bool) (answer, error) {
	if strings.HasPrefix(text, `PRAGMA`) {
		return answer{rows: [][]any{{"0"}}}, nil
	}
	got, known, failed := b.records.run(&b.session, name, text, args, b.now)
	if !known {
		return got, fmt.Errorf("%w: %s", errUnknown, text)
	}
	b.runs++
	want, err := b.askSQLite(ctx, strings.ReplaceAll(text, sqlite.Dialect.Now, strconv.FormatInt(b.now, 10)), args, write)
	code := dialect.SQLiteCode(err)
	b.codes[code]++
	if code != dialect.SQLiteCode(failed) || (err == nil) != (failed == nil) {
		b.t.Errorf("%s\n%v: %v, and of the store %v", text, args, err, failed)
	}
	if strings.Contains(text, "RETURNING ") { // it is a query
		want.affected = got.affected
	}
	if w, g := sortedRows(want.rows), sortedRows(got.rows); want.affected != got.affected || !slices.Equal(w, g) {
		b.t.Errorf("%s\n%v: %d %v, and of the store %d %v", text, args, want.affected, w, got.affected, g)
	}
	return got, failed
}

func (b *twice) askSQLite(ctx context.Context, text string, args []any, write bool) (a answer, err error) {
	if !write || strings.Contains(text, "RETURNING ") {
		rows, err := b.real.QueryContext(ctx, text, args...)
		if err != nil {
			return a, err
		}
		return all(rows)
	}
	r, err := b.real.ExecContext(ctx, text, args...)
	if err != nil || strings.HasPrefix(text, "COMMIT") || !strings.Contains(text, " ") || strings.Contains(text, "SAVEPOINT") {
		return a, err
	}
	a.affected, err = r.RowsAffected()
	return a, err
}

// Exec and Query implement core.Querier.
func (b *twice) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	a, err := b.ask(ctx, core.StatementName(ctx), text, args, true)
	return core.Result{Affected: a.affected}, err
}

func (b *twice) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	a, err := b.ask(ctx, core.StatementName(ctx), text, args, false)
	return &read{rows: a.rows}, err
}

// end begins or ends a transaction or a part of one, unless there is none, or one.
func (b *twice) end(ctx context.Context, how string) {
	switch {
	case how == "begin" && b.session.txn == nil:
		if _, err := b.real.ExecContext(ctx, "BEGIN"); err != nil {
			b.t.Error(err)
		}
		b.session.txn = &txn{}
	case how == "commit", how == "rollback":
		_, _ = b.ask(ctx, how, strings.ToUpper(how), nil, true)
	case how != "begin" && b.session.txn != nil && b.session.txn.begun:
		_, _ = b.ask(ctx, how, map[string]string{"savepoint": "SAVEPOINT p", "release": "RELEASE SAVEPOINT p", "rollback to": "ROLLBACK TO SAVEPOINT p"}[how], nil, true)
	}
}

// recordColumns are the columns of a record, but for the owner.
const recordColumns = `key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, result, codec, business_id, created_at, finished_at, result_expires_at, key_expires_at, holder, program, request_id`

// TestRecordsAreSQLite compares the store of records with SQLite, statement by statement, of two sessions: each answer, the code of
// each error, and the rows that are committed.
func TestRecordsAreSQLite(t *testing.T) {
	s, codes, runs := recordsOf(&sqlite.Dialect, quoted), map[int]int{}, 0
	file := onDisk(t)
	for seed := range uint64(4) {
		if _, err := file.ExecContext(t.Context(), `DELETE FROM holdfast_records; DELETE FROM effects`); err != nil {
			t.Fatal(err)
		}
		r := newRecords()
		var sessions [2]*twice
		for i := range sessions {
			conn, err := file.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sessions[i] = &twice{t: t, records: r, real: conn, codes: codes}
		}
		now := epoch.UnixMicro()
		for i, of := range recordSequence(seed, 500) {
			now += int64(i%7) * (20 * time.Minute).Microseconds() / 3
			b := sessions[of.session]
			b.now = now
			if of.end != "" {
				b.end(t.Context(), of.end)
			} else {
				_, _ = s.run(t.Context(), b, of)
			}
			if of.end == "" && of.kind < reserves {
				_, _ = core.Stmt{Name: "effect", Text: effectText}.Exec(t.Context(), b, string('a'+rune(of.key)), int64(of.attempt))
			}
			if b.session.txn == nil {
				compareCommitted(t, file, r)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %+v", seed, i, of)
			}
		}
		for _, b := range sessions {
			runs += b.runs
			b.end(t.Context(), "rollback")
			_ = b.real.Close()
		}
	}
	for _, code := range []int{0, 1, 5, 517} {
		if codes[code] == 0 {
			t.Errorf("no statement had the code %d: %v", code, codes)
		}
	}
	t.Logf("records statements=%d codes=%v", runs, codes)
}

// onDisk is a new SQLite for several connections, with Holdfast's tables and one for effects.
func onDisk(t *testing.T) *sql.DB {
	t.Helper()
	file, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(0)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := migrations.Up(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if _, err := file.ExecContext(t.Context(), `CREATE TABLE effects (k TEXT, v INTEGER, PRIMARY KEY (k, v))`); err != nil {
		t.Fatal(err)
	}
	return file
}

// compareCommitted compares what a third connection sees.
func compareCommitted(t *testing.T, file *sql.DB, r *records) {
	t.Helper()
	got := [][]any{}
	for _, row := range r.committed.rows {
		got = append(got, row[1:])
	}
	for _, rows := range []map[string]record{r.committed.ops, r.committed.steps} {
		for _, row := range rows {
			got = append(got, row[1:])
		}
	}
	for _, row := range r.committed.anchors {
		got = append(got, append(slices.Clone(row[1:]), nil, ""))
	}
	for _, row := range r.committed.tickets {
		got = append(got, row[1:])
	}
	for key, values := range r.committed.effects {
		for _, v := range values {
			got = append(got, []any{key, v})
		}
	}
	var want [][]any
	for _, query := range []string{`SELECT ` + recordColumns + ` FROM holdfast_records`, `SELECT ` + opColumns + ` FROM holdfast_staged`, `SELECT ` + stepColumns + ` FROM holdfast_steps`, `SELECT k, v FROM effects`, `SELECT name, token, expires_at, attempt, holder FROM holdfast_locks`, `SELECT ` + ticketColumns + ` FROM holdfast_tickets`} {
		rows, err := file.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		a, err := all(rows)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a.rows...)
	}
	if w, g := sortedRows(want), sortedRows(got); !slices.Equal(w, g) {
		t.Errorf("committed\n%v, and in the store\n%v", w, g)
	}
}

// inStore is a session of the store, alone.
type inStore struct {
	records *records
	session session
}

func (a *inStore) ask(ctx context.Context, text string, args []any) (answer, error) {
	if strings.HasPrefix(text, `PRAGMA`) {
		return answer{rows: [][]any{{"0"}}}, nil
	}
	got, known, err := a.records.run(&a.session, core.StatementName(ctx), text, args, time.Now().UnixMicro())
	if !known {
		err = fmt.Errorf("%w: %s", errUnknown, text)
	}
	return got, err
}

// Exec and Query implement core.Querier.
func (a *inStore) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	got, err := a.ask(ctx, text, args)
	return core.Result{Affected: got.affected}, err
}

func (a *inStore) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	got, err := a.ask(ctx, text, args)
	return &read{rows: got.rows}, err
}

var errBack = errors.New("this transaction is rolled back")

// sameRecords runs transactions on the store of records and on an engine, each with its own texts: those of DoTx, and those of
// Do where the engine locks first. Callers learn the same, and the rows are the same, but for times.
func sameRecords(e *conformance.Env[*sql.Tx]) {
	a := access.Of(e.DB)
	mine, theirs := recordsOf(&sqlite.Dialect, quoted), recordsOf(a.Dialect, a.Table)
	for seed := range uint64(2) {
		e.Must(`DELETE FROM ` + a.Table("records"))
		r := newRecords()
		steps := slices.DeleteFunc(recordSequence(seed, 120), func(s recordStep) bool {
			return !theirs.lockFirst && (s.kind == reserves || s.kind == executes)
		})
		for n := 0; len(steps) > 0; n++ {
			one := steps[:min(len(steps), 1+n%5)]
			steps = steps[len(one):]
			inMemory := &inStore{records: r, session: session{txn: &txn{}}}
			back := n%3 == 2
			var want []any
			for _, of := range one {
				got, err := mine.run(e.Ctx, inMemory, of)
				e.Check(err)
				want = append(want, got)
			}
			if back {
				e.Check(r.rollback(&inMemory.session))
			} else {
				e.Check(r.commit(&inMemory.session))
			}
			err := a.Attempt(e.Ctx, core.TxOptions{LockTimeout: time.Second}, nil, func(ctx context.Context, _ *sql.Tx, q core.Querier, _ core.Reply) error {
				for i, of := range one {
					if got, err := theirs.run(ctx, q, of); err != nil || !reflect.DeepEqual(got, want[i]) {
						return fmt.Errorf("step %d, %+v: %v, and of the store %v: %w", i, of, got, want[i], err)
					}
				}
				if back {
					return errBack
				}
				return nil
			})
			if back && errors.Is(err, errBack) {
				err = nil
			}
			e.Check(err)
			compareWith(e, a.Table("records"), r)
			if n%4 == 3 { // time passes
				age(r, e, a.Table("records"))
			}
		}
	}
}

// age makes every record ten hours older.
func age(r *records, e *conformance.Env[*sql.Tx], table string) {
	const hours = 10
	for hash, row := range r.committed.rows {
		row = slices.Clone(row)
		for _, at := range []int{ofResultEnd, ofKeyEnd} {
			if end, is := row[at].(int64); is {
				row[at] = end - hours*hour.Microseconds()
			}
		}
		r.committed.rows[hash] = row
	}
	e.Must(`UPDATE ` + table + ` SET result_expires_at = result_expires_at - 36000000000, key_expires_at = key_expires_at - 36000000000`)
}

// compareWith compares the rows, but for times, of which it compares whether there is one.
func compareWith(e *conformance.Env[*sql.Tx], table string, r *records) {
	var want, got []string
	e.Each(`SELECT `+recordColumns+` FROM `+table, func(rows *sql.Rows) {
		var hash, key, fingerprint, attempt, result []byte
		var version, state int64
		var space, operation string
		var codec, business, holder, program, request sql.NullString
		var created, finished, resultEnd, keyEnd sql.NullInt64
		e.Check(rows.Scan(&hash, &space, &operation, &key, &fingerprint, &version, &attempt, &state, &result, &codec, &business, &created, &finished, &resultEnd, &keyEnd, &holder, &program, &request))
		want = append(want, fmt.Sprint(string(hash), space, operation, string(key), string(fingerprint), version, string(attempt), state, string(result), codec.String, business.String,
			created.Valid, finished.Valid, resultEnd.Valid, keyEnd.Valid, holder.String, program.String, request.String))
	})
	for _, row := range r.committed.rows {
		got = append(got, fmt.Sprint(string(blob(row[1])), row[2], row[3], string(blob(row[4])), string(blob(row[5])), row[6], string(blob(row[7])), row[8], string(blob(row[9])), text(row[10]), text(row[11]),
			row[12] != nil, row[13] != nil, row[14] != nil, row[15] != nil, text(row[16]), text(row[17]), text(row[18])))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		e.Fatalf("rows\n%v, and of the store\n%v", want, got)
	}
}
