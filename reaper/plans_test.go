package reaper_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPlansOfOneIndex checks that the reaper finds due records by the index that both lives share, and
// does not read a table of records that live for ever.
func TestPlansOfOneIndex(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine != dbtest.MySQL && engine != dbtest.MariaDB {
			return // partial indexes
		}
		e := conformance.New(t, conformance.SQL(), engine)
		e.Must(`INSERT INTO holdfast_records (owner, key_hash, namespace, operation, op_key, fingerprint_version, attempt, state, created_at, key_expires_at)
SELECT '', UNHEX(SHA2(a.n + 10 * b.n + 100 * c.n + 1000 * d.n, 256)), 'n', 'o', 'k', 1, REPEAT('a', 16), 2, 1, IF(a.n + b.n + c.n = 0, 1, NULL)
FROM ` + digits("a") + `, ` + digits("b") + `, ` + digits("c") + `, ` + digits("d"))
		e.Must(`ANALYZE TABLE holdfast_records`)
		sweep := access.Of(e.DB).Dialect.Sweep
		for name, text := range map[string]string{
			"results, find": sweep.Results.Find, "results, count": sweep.Results.Count, "keys, find": sweep.Keys.Find, "keys, count": sweep.Keys.Count,
		} {
			stmt := core.Compile(name, `EXPLAIN FORMAT=JSON `+strings.ReplaceAll(text, "{records}", "holdfast_records"), true)
			var plan string
			if _, err := stmt.QueryRow(e.Ctx, access.Of(e.DB).Pool, []any{&plan}, 1000, -1, "", []byte{}, 500); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ranges := strings.Contains(plan, `"access_type": "range"`) || strings.Contains(plan, `index_range_scan`) // MariaDB, MySQL
			if !strings.Contains(plan, `"records_due_at"`) || !ranges {
				t.Errorf("%s: %s", name, plan)
			}
		}
	})
}

func digits(name string) string {
	return `(SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) ` + name
}
