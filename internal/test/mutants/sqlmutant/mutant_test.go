package sqlmutant_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/mutants/sqlmutant"
)

// TestAll lists the mutants of statements that have each form that Holdfast's have.
func TestAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"conjuncts", `DELETE FROM t WHERE a = $1 AND (b IS NULL OR c = 2 AND d = 3) AND e BETWEEN 1 AND 2`, []string{
			`condition| DELETE FROM t WHERE (a = $1 OR 1 = 1) AND (b IS NULL OR c = 2 AND d = 3) AND e BETWEEN 1 AND 2`,
			`condition| DELETE FROM t WHERE a = $1 AND ((b IS NULL OR c = 2 AND d = 3) OR 1 = 1) AND e BETWEEN 1 AND 2`,
			`condition| DELETE FROM t WHERE a = $1 AND (b IS NULL OR (c = 2 OR 1 = 1) AND d = 3) AND e BETWEEN 1 AND 2`,
			`condition| DELETE FROM t WHERE a = $1 AND (b IS NULL OR c = 2 AND (d = 3 OR 1 = 1)) AND e BETWEEN 1 AND 2`,
			`condition| DELETE FROM t WHERE a = $1 AND (b IS NULL OR c = 2 AND d = 3) AND (e BETWEEN 1 AND 2 OR 1 = 1)`,
		}},
		{"lists of any length", `SELECT 1 FROM t WHERE a IN ($1, $2, $3)`, []string{
			`condition| SELECT 1 FROM t WHERE (a IN ($1, $2, $3) OR 1 = 1)`,
		}},
		{"locks", `SELECT a FROM t l FOR NO KEY UPDATE OF l SKIP LOCKED`, []string{
			`lock| SELECT a FROM t l `,
			`lock| SELECT a FROM t l FOR NO KEY UPDATE OF l `,
		}},
		{"lock of a transaction", `SELECT pg_catalog.pg_try_advisory_xact_lock(1, $1::int)`, []string{
			`lock| SELECT (concat(1, $1::int) IS NOT NULL)`,
		}},
		{"assignments", `UPDATE "t" l SET a = GREATEST(a + 1, $1), b = NULL FROM c WHERE l.a > c.a`, []string{
			`assignment| UPDATE "t" l SET a = CASE WHEN 1 = 1 THEN l.a ELSE GREATEST(a + 1, $1) END, b = NULL FROM c WHERE l.a > c.a`,
			`assignment| UPDATE "t" l SET a = GREATEST(a + 1, $1), b = CASE WHEN 1 = 1 THEN l.b ELSE NULL END FROM c WHERE l.a > c.a`,
			`maximum| UPDATE "t" l SET a = (CASE WHEN 1 = 1 THEN a + 1 ELSE $1 END), b = NULL FROM c WHERE l.a > c.a`,
			`maximum| UPDATE "t" l SET a = (CASE WHEN 1 = 0 THEN a + 1 ELSE $1 END), b = NULL FROM c WHERE l.a > c.a`,
			`arithmetic| UPDATE "t" l SET a = GREATEST(a + 0, $1), b = NULL FROM c WHERE l.a > c.a`,
			`condition| UPDATE "t" l SET a = GREATEST(a + 1, $1), b = NULL FROM c WHERE (l.a > c.a OR 1 = 1)`,
			`comparison| UPDATE "t" l SET a = GREATEST(a + 1, $1), b = NULL FROM c WHERE l.a >= c.a`,
		}},
		{"upsert", `INSERT INTO "s"."t" (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b`, []string{
			`assignment| INSERT INTO "s"."t" (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = CASE WHEN 1 = 1 THEN "s"."t".b ELSE EXCLUDED.b END`,
		}},
		{"upsert of MySQL", "INSERT INTO `t` (a, b) VALUES (?, ?) ON DUPLICATE KEY UPDATE b = VALUES(b)", []string{
			"assignment| INSERT INTO `t` (a, b) VALUES (?, ?) ON DUPLICATE KEY UPDATE b = CASE WHEN 1 = 1 THEN `t`.b ELSE VALUES(b) END",
		}},
		{"join", "UPDATE t l JOIN (SELECT a FROM t WHERE a = 1 LIMIT 1 FOR UPDATE) f ON l.a = f.a SET l.b = 1", []string{
			"condition| UPDATE t l JOIN (SELECT a FROM t WHERE (a = 1 OR 1 = 1) LIMIT 1 FOR UPDATE) f ON l.a = f.a SET l.b = 1",
			"lock| UPDATE t l JOIN (SELECT a FROM t WHERE a = 1 LIMIT 1 ) f ON l.a = f.a SET l.b = 1",
			"condition| UPDATE t l JOIN (SELECT a FROM t WHERE a = 1 LIMIT 1 FOR UPDATE) f ON (l.a = f.a OR 1 = 1) SET l.b = 1",
			"assignment| UPDATE t l JOIN (SELECT a FROM t WHERE a = 1 LIMIT 1 FOR UPDATE) f ON l.a = f.a SET l.b = CASE WHEN 1 = 1 THEN l.b ELSE 1 END",
		}},
		{"strings are no SQL", `SELECT ' WHERE a > 1' FROM "a > 1"`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, m := range sqlmutant.All(c.text) {
				got = append(got, m.Kind+"| "+m.Text)
			}
			if g, w := strings.Join(got, "\n"), strings.Join(c.want, "\n"); g != w {
				t.Errorf("the mutants are\n%s\nwant\n%s", g, w)
			}
		})
	}
}

// TestIDs checks that a mutant has the same ID in lists of any length, and equal parts have
// different ones.
func TestIDs(t *testing.T) {
	t.Parallel()
	short, long := sqlmutant.All(`SELECT 1 FROM t WHERE a IN ($1, $2)`), sqlmutant.All(`SELECT 1 FROM t WHERE a IN ($1, $2, $3, $4)`)
	if short[0].ID() != long[0].ID() {
		t.Errorf("%s and %s, want the same", short[0].ID(), long[0].ID())
	}
	one, other := sqlmutant.All(`UPDATE "s1"."t" SET a = (SELECT b FROM "s1"."u")`), sqlmutant.All(`UPDATE "s2"."t" SET a = (SELECT b FROM "s2"."u")`)
	if one[0].ID() != other[0].ID() {
		t.Errorf("%s and %s in two schemas, want the same", one[0].ID(), other[0].ID())
	}
	twice := sqlmutant.All(`SELECT 1 FROM t WHERE a = 1 UNION SELECT 1 FROM t WHERE a = 1`)
	if len(twice) != 2 || twice[0].ID() == twice[1].ID() {
		t.Errorf("%v, want two with IDs of their own", twice)
	}
}
