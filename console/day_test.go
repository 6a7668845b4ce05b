package console_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/statements"
)

// day returns the sums of the series on the first page, and the number of bars of all.
func (s *site) day() (sums map[string]string, bars int) {
	s.Helper()
	_, page := s.get("")
	_, page, _ = strings.Cut(page, `id="day"`)
	sums = map[string]string{}
	for _, m := range regexp.MustCompile(`<b>([^<]*)</b> <span class="soft">([^<,]*)`).FindAllStringSubmatch(page, -1) {
		sums[html.UnescapeString(m[2])] = m[1]
	}
	return sums, len(regexp.MustCompile(`UTC: [1-9]\d*</title>`).FindAllString(page, -1))
}

// TestOverviewDay has one row of each series in the last day, and one before it.
func TestOverviewDay(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		series := map[string]string{"Interventions and proposals": "0", "Operations that became unknown": "0", "Operations that became due": "0", "Messages that died in an outbox": "0"}
		want := func(bars int) {
			s.Helper()
			sums, n := s.day()
			if fmt.Sprint(sums) != fmt.Sprint(series) || n != bars {
				s.Errorf("%v in %d bars, want %v in %d", sums, n, series, bars)
			}
		}
		want(0)
		for _, key := range []string{"now", "resolved", "yesterday", "stuck", "at work"} {
			s.park(refund(key), "no answer")
		}
		form := url.Values{"id": {s.id("resolved")}, "as": {"step-rejected"}, "code": {"no"}, "message": {"no"}, "by": {"ada"}, "reason": {"ticket 7"}}
		s.post("resolve", form)
		e.Must(`UPDATE holdfast_staged SET due_at = due_at - 90000000000 WHERE op_key = $1`, []byte("yesterday"))
		e.Must(`UPDATE holdfast_staged SET state = 1, due_at = due_at - 7200000000 WHERE op_key = $1`, []byte("stuck"))
		e.Must(`UPDATE holdfast_staged SET state = 1 WHERE op_key IN ($1, $2)`, []byte("at work"), []byte("resolved")) // due a moment ago
		for _, name := range []string{"first", "second"} {
			box, err := outbox.New(s.Ctx, s.DB, name)
			s.Check(err)
			s.Check(s.DB.InTx(s.Ctx, func(ctx context.Context, tx *sql.Tx) error {
				return box.Write(ctx, tx, outbox.Message{Key: "1", Topic: "made", Body: []byte("x")})
			}))
			relay, err := outbox.NewRelay(box, func(context.Context, outbox.Delivery) error { return outbox.Permanent(errors.New("no such topic")) }, outbox.Options{Logger: slog.New(slog.DiscardHandler)})
			s.Check(err)
			_, err = relay.Pass(s.Ctx)
			s.Check(err)
		}
		series["Interventions and proposals"], series["Operations that became unknown"] = "1", "1"
		series["Operations that became due"], series["Messages that died in an outbox"] = "1", "2"
		want(4)
	})
}

// TestPlansOfTheDay checks that each series is read from a range of an index.
func TestPlansOfTheDay(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		fillDay(e)
		since := fmt.Sprint(time.Now().Add(-day).UnixMicro())
		until := fmt.Sprint(time.Now().UnixMicro())
		var recent string
		statements.In(*auditlog.New(access.Of(e.DB).Dialect, access.Of(e.DB).Table), func(name, text string) {
			if name == "audit.recent" {
				recent = text
			}
		})
		for _, c := range []struct {
			text, index string
			args        []string
		}{
			{dialect.DayUnknown, "staged_due_at", []string{since, "2000"}},
			{dialect.DayStuck, "staged_due_at", []string{since, until, "2000"}},
			{dialect.DayBox, "outbox_due_at", []string{"'a'"}},
			{dialect.DayDead, "outbox_due_at", []string{"'b'", since, "2000"}},
			{dialect.DayInterventions, "", []string{"9223372036854775807", "200"}},
			{recent, "", []string{"''", "''", "'x'", "2000"}}, // of one operation
		} {
			text := strings.NewReplacer("{staged}", "holdfast_staged", "{outbox}", "holdfast_outbox", "{audit}", "holdfast_audit").Replace(c.text)
			for i, arg := range c.args {
				text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i+1), arg)
			}
			if plan := planOf(e, text); !usesIndex(e.Engine, plan, c.index) {
				e.Errorf("%s: %s", text, plan)
			}
		}
	})
}

const day = 24 * time.Hour

// fillDay writes tables in which the rows that are looked for are few, as they are in a busy database.
func fillDay(e *conformance.Env[*sql.Tx]) {
	e.Helper()
	binary := func(n int) string {
		digits := hex.EncodeToString([]byte(fmt.Sprintf("%032d", n)))
		if e.Engine == dbtest.Postgres {
			return `'\x` + digits + `'::bytea`
		}
		return `X'` + digits + `'`
	}
	now := time.Now().UnixMicro()
	const rows = 3000
	insert := func(into string, row func(n int) string) {
		values := make([]string, rows)
		for n := range values {
			values[n] = "(" + row(n) + ")"
		}
		e.Must(`INSERT INTO ` + into + ` VALUES ` + strings.Join(values, ", "))
	}
	insert(`holdfast_staged (owner, key_hash, namespace, operation, op_key, fingerprint_version, state, token, due_at, step, mode, started, finished, accepted, restored, version, created_at, moved_at)`, func(n int) string {
		state := map[int]int{0: 1, 1: 6}[n%100]
		if state == 0 {
			state = 2
		}
		return fmt.Sprintf(`'', %s, 'n', 'o', %s, 0, %d, %d, %d, '', 1, 1, 1, 0, 0, 1, 1, 1`, binary(n), binary(n), state, n, now-int64(n)*1e9)
	})
	insert(`holdfast_outbox (owner, name, message_key, seq, id, topic, body, state, starts, due_at, written_at)`, func(n int) string {
		return fmt.Sprintf(`'', '%c', %s, %d, 'i', 't', %s, %d, 1, %d, 1`, 'a'+n%3, binary(n), n, binary(n), 2+n%100/99, now-int64(n)*1e9)
	})
	insert(`holdfast_audit (chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash)`, func(n int) string {
		return fmt.Sprintf(`'', %d, %d, 'a', 's', 'erase', 'record', '', 'n', %s, 'why', '', '', '', %s`, n+1, now-int64(rows-n)*1e9, binary(n), binary(n))
	})
	for _, table := range []string{"staged", "outbox", "audit"} {
		if e.Engine == dbtest.SQLite {
			break // it has no statistics, unless asked for them
		}
		analyze := "ANALYZE holdfast_" + table
		if e.InnoDB() {
			analyze = "ANALYZE TABLE holdfast_" + table
		}
		e.Must(analyze)
	}
}

func planOf(e *conformance.Env[*sql.Tx], text string) string {
	e.Helper()
	explain := map[dbtest.Engine]string{dbtest.SQLite: "EXPLAIN QUERY PLAN ", dbtest.Postgres: "EXPLAIN "}[e.Engine]
	if explain == "" {
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	rows, err := e.SQL.QueryContext(e.Ctx, explain+text)
	e.Check(err)
	defer rows.Close()
	columns, err := rows.Columns()
	e.Check(err)
	var plan strings.Builder
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		e.Check(rows.Scan(dest...))
		for i, v := range values {
			fmt.Fprintf(&plan, "%s=%s ", columns[i], v.String)
		}
		plan.WriteByte('\n')
	}
	e.Check(rows.Err())
	return plan.String()
}

// usesIndex reports whether a plan searches an index, "" for the table's key.
func usesIndex(engine dbtest.Engine, plan, index string) bool {
	switch engine {
	case dbtest.SQLite:
		if index == "" {
			index = "sqlite_autoindex_holdfast_audit_1"
		}
		return strings.Contains(plan, "SEARCH") && strings.Contains(plan, index) && !strings.Contains(plan, "SCAN holdfast") && !strings.Contains(plan, "TEMP B-TREE")
	case dbtest.Postgres:
		if index == "" {
			index = "holdfast_audit_pkey"
		}
		return strings.Contains(plan, index) && strings.Contains(plan, "Index Cond") && !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "Sort")
	}
	if index == "" {
		index = "PRIMARY"
	}
	return strings.Contains(plan, " key="+index+" ") && (strings.Contains(plan, "type=range") || strings.Contains(plan, "type=ref")) && !strings.Contains(plan, "filesort")
}
