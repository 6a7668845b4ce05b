package sqlengine

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// fillMost is the most rows that one statement inserts.
const fillMost = 50_000

// leaseByte is the byte for the kind of lock, in hex. The name of a lease's row is this byte
// and then the key.
const leaseByte = "6c"

// FilledKey returns the key of the n-th lease that FillLocks made.
func FilledKey(n int) string { return fmt.Sprintf("fill/%09d", n) }

// FillLocks inserts the rows of free leases n to m-1 into the tables with this prefix.
func (e *Engine) FillLocks(ctx context.Context, prefix string, n, m int, log func(done int)) error {
	name := map[string]string{
		Postgres: `'\x` + leaseByte + `'::bytea || convert_to('fill/' || lpad(n::text, 9, '0'), 'UTF8')`,
		SQLite:   `CAST(x'` + leaseByte + `' || printf('fill/%09d', n) AS BLOB)`,
	}[e.Name]
	if name == "" {
		name = `CONCAT(0x` + leaseByte + `, 'fill/', LPAD(n, 9, '0'))`
	}
	return e.fill(ctx, `INSERT INTO `+prefix+`locks (owner, name, token, attempt, holder, granted_at, expires_at) {numbers} SELECT '', `+
		name+`, 1000 + n, NULL, 'fill', 1, 2 FROM numbers`, n, m, log)
}

// FillRecords inserts finished records n to m-1. If due is set, their keys expired two hours
// ago; otherwise they never expire.
func (e *Engine) FillRecords(ctx context.Context, prefix string, n, m int, due bool, log func(done int)) error {
	hash, attempt, key, now := `UNHEX(SHA2(CONCAT('fill', n), 256))`, `x'00000000000000000000000000000000'`, `n`, `CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)`
	switch e.Name {
	case Postgres:
		hash, attempt, key, now = `sha256(convert_to('fill' || n, 'UTF8'))`, `decode('00000000000000000000000000000000', 'hex')`, `n::text::bytea`, `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`
	case SQLite:
		hash, key, now = `randomblob(32)`, `CAST(n AS BLOB)`, `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`
	}
	expires := `NULL`
	switch clustered := e.Name == MySQL || e.Name == MariaDB; {
	case due:
		expires = now + ` - 7200000000 + n`
	case clustered: // evenly spread hashes, inserted in order: random order would read another page for each row
		hash = fmt.Sprintf(`UNHEX(CONCAT(LPAD(HEX(CAST(n - %d AS UNSIGNED) * %d), 16, '0'), LEFT(SHA2(CONCAT('fill', n), 256), 48)))`,
			n, uint64(math.MaxUint64)/uint64(max(1, m-n)))
	}
	return e.fill(ctx, `INSERT INTO `+prefix+`records (key_hash, namespace, owner, operation, op_key, fingerprint_version, attempt, state, result, created_at, finished_at, result_expires_at, key_expires_at)
{numbers} SELECT `+hash+`, 'fill', '', 'refund', `+key+`, 1, `+attempt+`, 2, NULL, 1, 2, NULL, `+expires+` FROM numbers`, n, m, log)
}

// fill runs an INSERT that selects from numbers, a limited number of rows at a time.
func (e *Engine) fill(ctx context.Context, insert string, n, m int, log func(done int)) error {
	for from := n; from < m; from += fillMost {
		last := min(from+fillMost, m) - 1
		numbers := fmt.Sprintf(`WITH RECURSIVE numbers(n) AS (SELECT %d UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)`, from, last)
		if e.Name == MySQL || e.Name == MariaDB { // these engines bound the depth of a recursion
			numbers = fmt.Sprintf(`WITH d AS (SELECT 0 AS x UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
), numbers AS (SELECT %d + a.x + 10 * b.x + 100 * c.x + 1000 * f.x + 10000 * g.x AS n FROM d a, d b, d c, d f, d g
 WHERE a.x + 10 * b.x + 100 * c.x + 1000 * f.x + 10000 * g.x <= %d)`, from, last-from)
		}
		if err := e.Exec(ctx, strings.Replace(insert, "{numbers}", numbers, 1)); err != nil {
			return err
		}
		log(last + 1)
	}
	return nil
}

// Analyze updates the engine's statistics of the tables, as happens in normal operation.
func (e *Engine) Analyze(ctx context.Context, tables ...string) error {
	switch list := strings.Join(tables, ", "); e.Name {
	case Postgres:
		return e.Exec(ctx, `VACUUM ANALYZE `+list)
	case SQLite:
		return e.Exec(ctx, `ANALYZE`)
	default:
		return e.Exec(ctx, `ANALYZE TABLE `+list)
	}
}
