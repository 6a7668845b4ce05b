package migrations

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// sharded are the tables of which each shard has the rows of its owners.
var sharded = []string{"records", "locks", "registers", "waiters", "tickets", "staged", "steps", "provider_events", "interventions", "outbox", "outbox_keys", "similar", "limits", "limit_entries", "proposals"}

// reference are the tables of which each shard has its own.
var reference = []string{"schema", "servers", "floor", "sweeps", "migrations"}

// PrintVSchema writes what Vitess has to know about Holdfast's tables in a sharded keyspace, in
// JSON: the entries of its VSchema. The shard is that of the owner, by the vindex xxhash. Give the
// business tables of a transaction a column with the owner and the same vindex. An unsharded
// keyspace needs none. See https://vitess.io/docs/reference/features/vschema/.
func PrintVSchema(w io.Writer, opts ...holdfast.Options) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	l, err := newLayout(holdfast.Vitess, o)
	if err != nil {
		return err
	}
	tables := map[string]any{}
	for _, name := range sharded {
		tables[l.prefix+name] = map[string]any{"column_vindexes": []any{map[string]string{"column": "owner", "name": "owner"}}}
	}
	tables[l.prefix+"audit"] = map[string]any{"column_vindexes": []any{map[string]string{"column": "chain", "name": "owner"}}}
	for _, name := range reference {
		tables[l.prefix+name] = map[string]string{"type": "reference"}
	}
	text, err := json.MarshalIndent(map[string]any{
		"sharded": true, "vindexes": map[string]any{"owner": map[string]string{"type": "xxhash"}}, "tables": tables,
	}, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func onShards(e engine) engine {
	e.shards, e.level = shards, level
	e.kinds = nil // a connection to one shard does not know the tables by the keyspace's name
	return e
}

// shards lists the shards of the connection's keyspace, unless it has one, or the connection leads to
// one of them already.
func shards(ctx context.Context, conn *sql.Conn) (use []string, err error) {
	var keyspace sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&keyspace); err != nil || strings.ContainsAny(keyspace.String, ":/@") {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, `SHOW VITESS_SHARDS`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if of, shard, _ := strings.Cut(name, "/"); of == keyspace.String {
			use = append(use, "USE `"+of+":"+shard+"`")
		}
	}
	if len(use) == 1 {
		use = nil
	}
	return use, rows.Err()
}

// level gives all shards the first one's name of the store, by which a guard knows that it looks at
// the tables that granted its lease.
func level(ctx context.Context, conn *sql.Conn, l *layout, shards []string) error {
	var store []byte
	for i, use := range shards {
		_, err := conn.ExecContext(ctx, use)
		switch {
		case err != nil:
		case i == 0:
			err = conn.QueryRowContext(ctx, `SELECT store FROM `+l.table("floor")+` WHERE id = 1`).Scan(&store)
		default:
			_, err = conn.ExecContext(ctx, `UPDATE `+l.table("floor")+` SET store = ? WHERE id = 1 AND store <> ?`, store, store)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func noLock(*driver) error { return nil }

func noUnlock(context.Context, *driver) error { return nil }
