package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ownerMove are the printed statements of a move, by what they are for.
func ownerMove(t *testing.T, e holdfast.Engine) map[string][]string {
	t.Helper()
	var b strings.Builder
	must(t, migrations.PrintOwnerMove(&b, e))
	all := map[string][]string{}
	for part := range strings.SplitSeq(b.String(), "\n\n") {
		comment, texts, _ := strings.Cut(part, "\n")
		about, _, _ := strings.Cut(strings.TrimPrefix(comment, "-- "), ":")
		all[about] = strings.Split(strings.TrimSuffix(strings.TrimSpace(texts), ";"), ";\n")
	}
	return all
}

// TestOwnerMove moves an owner to another database by the printed statements alone. Each table with
// owners is among them, and each of its columns that can be written.
func TestOwnerMove(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		from, to := newPlace(t, e), newPlace(t, e)
		move := ownerMove(t, holdfast.Engine(e))
		for _, table := range dialect.Tables {
			columns, owned := writable(t, from.pool, e, "holdfast_"+table)
			texts := move["holdfast_"+table]
			if owned != (len(texts) > 0) {
				t.Errorf("%s has owners: %v, and is moved with %d statements", table, owned, len(texts))
			}
			if !owned {
				continue
			}
			listed := regexp.MustCompile(`\(([^)]*)\) VALUES`).FindStringSubmatch(texts[1])[1]
			got := strings.FieldsFunc(listed, func(r rune) bool { return strings.ContainsRune("`\", ", r) })
			slices.Sort(got)
			if !slices.Equal(got, columns) {
				t.Errorf("%s: columns %q, want %q", table, got, columns)
			}
		}

		const owner = "shop-7"
		runs, token := from.work(t, owner)
		if runs != 1 {
			t.Fatalf("%d runs at the source", runs)
		}
		if n := scanned(t, from.pool, move["wait at the source until it returns 0"][0], owner); n != 0 {
			t.Errorf("%d leases live after they were released", n)
		}
		tx, err := to.pool.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		rows := 0
		for about, texts := range move {
			if len(texts) == 3 {
				n := moveRows(t, from.pool, tx, texts, owner)
				if rows += n; n == 0 && slices.Contains([]string{"holdfast_records", "holdfast_locks", "holdfast_registers"}, about) {
					t.Errorf("%s: no row, which shows nothing", about)
				}
			}
		}
		must(t, tx.Commit())
		for about, texts := range move {
			if strings.HasPrefix(about, "the floor") {
				floor := scanned(t, from.pool, texts[0])
				_, err := to.pool.ExecContext(t.Context(), texts[1], slices.Repeat([]any{floor}, max(1, strings.Count(texts[1], "?")))...)
				must(t, err)
			} else if len(texts) == 3 {
				_, err := from.pool.ExecContext(t.Context(), texts[2], owner)
				must(t, err)
			}
		}
		if runs, later := to.work(t, owner); runs != 0 || later <= token {
			t.Errorf("at the target: %d runs, and token %d after %d", runs, later, token)
		}
		if runs, _ := from.work(t, owner); runs != 1 {
			t.Errorf("%d runs at the source without its records: the test shows nothing", runs)
		}
		t.Logf("%d rows moved", rows)
	})
}

type place struct {
	pool  *sql.DB
	store *idempotency.Store[*sql.Tx]
	locks *sqllock.Locker[*sql.Tx]
	names *register.Register[*sql.Tx]
}

func newPlace(t *testing.T, e dbtest.Engine) *place {
	t.Helper()
	p := &place{pool: dbtest.OpenSQL(t, dbtest.DSN(t, e))}
	must(t, migrations.Up(t.Context(), p.pool))
	db, err := holdfastsql.Open(t.Context(), p.pool)
	must(t, err)
	p.store, err = idempotency.New(t.Context(), db)
	must(t, err)
	p.locks, err = sqllock.New(t.Context(), db)
	must(t, err)
	t.Cleanup(func() { _ = p.locks.Close(context.WithoutCancel(t.Context())) })
	p.names, err = register.New(t.Context(), db)
	must(t, err)
	return p
}

// work asks for a refund of the owner, and takes its lock.
func (p *place) work(t *testing.T, owner string) (runs int, token int64) {
	t.Helper()
	op := idempotency.Op{Owner: owner, Name: "refund", Key: "k", Request: 1}
	_, err := idempotency.Do(t.Context(), p.store, op, func(context.Context, *sql.Tx) (int, error) { runs++; return 1, nil })
	must(t, err)
	lease, err := p.locks.For(owner).Acquire(t.Context(), "balance")
	must(t, err)
	must(t, lease.Release(t.Context()))
	_, _ = p.names.For(owner).Create(t.Context(), "name", []byte("v")) // it may be there
	return runs, lease.Token()
}

func moveRows(t *testing.T, from *sql.DB, to *sql.Tx, texts []string, owner string) (n int) {
	t.Helper()
	rows, err := from.QueryContext(t.Context(), texts[0], owner)
	must(t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	must(t, err)
	for ; rows.Next(); n++ {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		_, err := to.ExecContext(t.Context(), texts[1], values...)
		must(t, err)
	}
	must(t, rows.Err())
	return n
}

// scanned runs a query of one number, whose parameters, if any, are all the owner.
func scanned(t *testing.T, pool *sql.DB, query string, owner ...any) (n int64) {
	t.Helper()
	if questions := strings.Count(query, "?"); questions > 1 && len(owner) > 0 {
		owner = slices.Repeat(owner, questions)
	}
	must(t, pool.QueryRowContext(t.Context(), query, owner...).Scan(&n))
	return n
}

// writable lists the columns of a table that the engine does not compute, and says whether one of them is
// the owner.
func writable(t *testing.T, pool *sql.DB, e dbtest.Engine, table string) (columns []string, owned bool) {
	t.Helper()
	query := fmt.Sprintf(`SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '%s' AND COALESCE(GENERATION_EXPRESSION, '') = ''`, table)
	switch e.Kin() {
	case dbtest.Postgres:
		query = fmt.Sprintf(`SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '%s' AND is_generated = 'NEVER'`, table)
	case dbtest.SQLite:
		query = fmt.Sprintf(`SELECT name FROM pragma_table_xinfo('%s') WHERE hidden = 0`, table)
	}
	rows, err := pool.QueryContext(t.Context(), query)
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		columns = append(columns, name)
	}
	must(t, rows.Err())
	slices.Sort(columns)
	// A row of the audit has an owner, and its place in a chain.
	return columns, slices.Contains(columns, "owner") && table != "holdfast_audit"
}
