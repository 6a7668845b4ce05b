package fences

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// names checks that a row's lock is the one that the program acquires, for each type of column and
// and for all bytes of a key.
func names[Tx any](e *env[Tx]) {
	l := e.LockerWith(sqllock.Options{})
	check := func(table, typ, prefix string, keys ...string) {
		e.Helper()
		e.Must(`CREATE TABLE ` + table + ` (id ` + typ + ` NOT NULL, fence BIGINT NOT NULL)`)
		e.enforce(e.fence(fence.Spec{Table: table, Key: prefix + "{id}"}))
		leases := map[string]*sqllock.Lease{}
		for _, key := range keys {
			leases[key] = e.MustAcquire(l, strings.NewReplacer("{{", "{", "}}", "}").Replace(prefix)+key)
		}
		asText := e.Engine.Kin() == dbtest.Postgres && typ != "bytea" || typ == "TEXT" || strings.HasPrefix(typ, "VARCHAR") || strings.HasPrefix(typ, "BIGINT")
		insert := func(key string, token int64) error {
			var id any = []byte(key)
			if asText {
				id = key
			}
			return e.raw(`INSERT INTO `+table+` (id, fence) VALUES ($1, $2)`, id, token)
		}
		last := keys[len(keys)-1]
		for _, key := range keys {
			e.wantPassed(typ+" "+key, insert(key, leases[key].Token()))
			if leases[last].Token() != leases[key].Token() { // the clocks of some engines tick in milliseconds
				e.wantRefused(typ+" "+key+" with another's token", insert(key, leases[last].Token()))
			}
			last = key
		}
		if n := e.Int(`SELECT COUNT(*) FROM ` + table); n != len(keys) {
			e.Errorf("%s: %d rows of %d", typ, n, len(keys))
		}
		for _, lease := range leases {
			e.MustRelease(lease)
		}
	}
	var all, text []string
	for _, key := range conformance.Keys() {
		if len(key) > 255 {
			continue // longer than the column
		}
		all = append(all, key)
		if utf8.ValidString(key) && !strings.ContainsRune(key, 0) {
			text = append(text, key)
		}
	}
	check("of_bytes", e.Bytes(1000), "it's \\ \U0001F600/", all...)
	check("of_text", map[bool]string{true: "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", false: "TEXT"}[e.InnoDB()], "$1 ? {{now}} \"`", text...)
	check("of_numbers", "BIGINT", "", "0", "-5", "9223372036854775807")
	const id = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	switch e.Engine {
	case dbtest.Postgres:
		check("of_uuids", "uuid", "u/", id)
		check("of_varchar", "varchar(40) COLLATE \"C\"", "u/", "a", "a ")
	case dbtest.MariaDB:
		check("of_uuids", "UUID", "u/", id)
		fallthrough
	case dbtest.MySQL:
		check("of_latin", "VARCHAR(20) CHARACTER SET latin1", "l/", "k\u00e9y", "\u00fc")
	}
}

// owners checks that the owner of the lock is a part of its name, fixed or a column.
func owners[Tx any](e *env[Tx]) {
	e.AnyOwner()
	e.Must(`CREATE TABLE payouts (merchant ` + e.Text() + ` NOT NULL, no INT NOT NULL, fence BIGINT NOT NULL)`)
	l := e.LockerWith(sqllock.Options{})
	insert := func(merchant string, lease *sqllock.Lease) error {
		return e.raw(`INSERT INTO payouts (merchant, no, fence) VALUES ($1, 7, $2)`, e.TextKey(merchant), lease.Token())
	}
	// Tokens of different locks may be equal, on a clock of milliseconds: each of these is granted often enough to differ.
	granted := func(l *sqllock.Locker[Tx], terms int) (lease *sqllock.Lease) {
		for range terms - 1 {
			e.MustRelease(e.MustAcquire(l, "payout/7"))
		}
		return e.MustAcquire(l, "payout/7")
	}
	acme := granted(l.For("acme"), 1)
	other, none := granted(l.For("other"), 2), granted(l, 3)
	for other.Token() == acme.Token() || none.Token() == acme.Token() {
		e.MustRelease(other)
		e.MustRelease(none)
		other, none = granted(l.For("other"), 2), granted(l, 3)
	}
	column := e.fence(fence.Spec{Table: "payouts", Key: "payout/{no}", Owner: "{merchant}"})
	e.enforce(column)
	e.wantPassed("its owner", insert("acme", acme))
	e.wantPassed("the other", insert("other", other))
	e.wantRefused("the lease of another owner", insert("acme", other))
	e.wantRefused("the lease of no owner", insert("acme", none))
	e.wantRefused("to another owner", e.raw(`UPDATE payouts SET merchant = $1 WHERE merchant = $2`, e.TextKey("third"), e.TextKey("acme")))
	e.wantPassed("Unenforce", column.Unenforce(e.Ctx))
	e.enforce(e.fence(fence.Spec{Table: "payouts", Key: "payout/{no}", Owner: "acme"}))
	e.wantPassed("the fixed owner", insert("third", acme))
	e.wantRefused("another owner", insert("third", other))

	e.Must(`CREATE TABLE binary_payouts (merchant ` + e.Bytes(128) + ` NOT NULL, no INT NOT NULL, fence BIGINT NOT NULL)`)
	e.enforce(e.fence(fence.Spec{Table: "binary_payouts", Key: "payout/{no}", Owner: "{merchant}"}))
	insert = func(merchant string, lease *sqllock.Lease) error {
		return e.raw(`INSERT INTO binary_payouts (merchant, no, fence) VALUES ($1, 7, $2)`, []byte(merchant), lease.Token())
	}
	e.wantPassed("its owner, in bytes", insert("acme", acme))
	e.wantRefused("the lease of another owner, in bytes", insert("acme", other))
}

// identifiers checks that the names of the program's table and columns are quoted everywhere.
func identifiers[Tx any](e *env[Tx]) {
	table, id, token := "or\"der's `x` \\ $1 ?", `i'd"`, "to`ken"
	if e.Engine == dbtest.MySQL {
		token = `to"ken` // its catalog shows NEW.`to``ken` as NEW.`tto`kenn`
	}
	quote := func(name string) string {
		q := map[bool]string{true: "`", false: `"`}[e.InnoDB()]
		return q + strings.ReplaceAll(name, q, q+q) + q
	}
	exec := func(query string) error {
		_, err := e.SQL.ExecContext(e.Ctx, query) // sent unchanged: ? and $1 are part of a name
		return err
	}
	if err := exec(`CREATE TABLE ` + quote(table) + ` (` + quote(id) + ` INT NOT NULL PRIMARY KEY, n INT, ` + quote(token) + ` BIGINT NOT NULL)`); err != nil {
		e.Fatal(err)
	}
	odd := e.fence(fence.Spec{Table: table, Schema: e.Schema(), Token: token, Key: "o'{i'd\"}"})
	e.enforce(odd)
	e.wantPassed("CheckEnforced", odd.CheckEnforced(e.Ctx))
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "o'5")
	n := conformance.Numbered("", int(lease.Token()))
	e.wantPassed("the holder", exec(`INSERT INTO `+quote(table)+` VALUES (5, 0, `+n+`)`))
	e.wantPassed("the holder", exec(`UPDATE `+quote(table)+` SET n = 1, `+quote(token)+` = `+n))
	e.wantRefused("a stale write", exec(`UPDATE `+quote(table)+` SET n = 2, `+quote(token)+` = 3`))
	e.wantRefused("a stale write", exec(`INSERT INTO `+quote(table)+` VALUES (6, 0, `+n+`)`))
	if e.Engine == dbtest.MySQL {
		e.Must("CREATE TABLE garbled (id INT NOT NULL PRIMARY KEY, `to``ken` BIGINT NOT NULL)")
		if err := e.fence(fence.Spec{Table: "garbled", Token: "to`ken", Key: "k"}).Enforce(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) {
			e.Errorf("a name that the catalog garbles: %v", err)
		}
	}
	for _, s := range odd.EnforceSQL() { // they replace what is there
		e.wantPassed(s, exec(s))
	}
	e.wantPassed("CheckEnforced", odd.CheckEnforced(e.Ctx))
	e.wantPassed("Unenforce", odd.Unenforce(e.Ctx))
}

// input checks that a Spec that cannot hold is refused before anything is changed.
func input[Tx any](e *env[Tx]) {
	e.orders()
	e.Must(`CREATE TABLE loose (id ` + e.Text() + `, n INT NOT NULL, at ` + map[bool]string{true: "DATETIME", false: "TIMESTAMP"}[e.InnoDB()] + ` NOT NULL, fence BIGINT)`)
	for what, spec := range map[string]fence.Spec{
		"no table":                {Key: "k"},
		"a table that is missing": {Table: "none", Key: "k"},
		"no key":                  {Table: "orders"},
		"no such column":          {Table: "orders", Key: "{none}"},
		"an open brace":           {Table: "orders", Key: "order/{id"},
		"a brace too many":        {Table: "orders", Key: "order/id}"},
		"NUL":                     {Table: "orders", Key: "a\x00"},
		"not UTF-8":               {Table: "orders", Key: "\xff"},
		"a long key":              {Table: "orders", Key: strings.Repeat("k", 1025)},
		"a long owner":            {Table: "orders", Key: "k", Owner: strings.Repeat("k", 129)},
		"no such token":           {Table: "orders", Key: "k", Token: "none"},
		"a token that is text":    {Table: "orders", Key: "k", Token: "state"},
		"a token that is NULL":    {Table: "loose", Key: "k"},
		"a key that is NULL":      {Table: "loose", Key: "{id}", Token: "n"},
		"a key that is a time":    {Table: "loose", Key: "{at}", Token: "n"},
	} {
		if _, err := fence.New(e.Ctx, e.DB, spec); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", what, err)
		}
	}
	if e.Engine != dbtest.SQLite { // where a column of any type holds any number
		if _, err := fence.New(e.Ctx, e.DB, fence.Spec{Table: "loose", Key: "k", Token: "n"}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("a token of four bytes: %v", err)
		}
	}
	if _, err := fence.New[Tx](e.Ctx, nil, fence.Spec{Table: "orders", Key: "k"}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	db := e.Handle.Open(e.T, e.DSN).DB
	access.Of(db).Dialect.Capabilities.MultiPrimary = true
	of, err := fence.New(e.Ctx, db, fence.Spec{Table: "orders", Key: "k"})
	e.Check(err)
	for what, err := range map[string]error{"Enforce": of.Enforce(e.Ctx), "CheckEnforced": of.CheckEnforced(e.Ctx)} {
		if !errors.Is(err, fence.ErrNotEnforced) || !strings.Contains(err.Error(), "SingleWriter") {
			e.Errorf("%s with several writers: %v", what, err)
		}
	}
	e.Must(`DROP TABLE holdfast_schema`)
	if _, err := fence.New(e.Ctx, e.DB, fence.Spec{Table: "orders", Key: "k"}); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("without Holdfast's tables: %v", err)
	}
}
