package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
)

// impossibleVersionsAreRefused checks that impossible versions fail before anything is sent. The
// naive form, found in some libraries, omits the condition for a zero version.
func impossibleVersionsAreRefused[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	const last = 1<<63 - 1
	tx := e.BeginTx(sql.LevelDefault)
	for _, v := range []int64{0, -1, -last} {
		row := conformance.Account{No: "a", Owner: "Eve", Cents: 666, Version: v}
		_, err1 := accounts.Update(e.Ctx, row)
		_, err2 := accounts.UpdateTx(e.Ctx, tx, row)
		for _, err := range []error{err1, err2, accounts.Delete(e.Ctx, row), accounts.DeleteTx(e.Ctx, tx, row)} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("version %d: %v", v, err)
			}
		}
	}
	if _, err := accounts.InsertTx(e.Ctx, tx, conformance.Account{No: "b", Version: -1}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	if _, err := accounts.InsertTx(e.Ctx, tx, conformance.Account{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("an empty key: %v", err)
	}
	e.EndTx(tx, true) // tx is unchanged
	e.WantAccount(conformance.Account{No: "a", Version: 1})

	// At the maximum of the type, an update fails; the version does not wrap around.
	e.Must(`UPDATE accounts SET version = $1`, int64(last-1))
	row, err := accounts.Update(e.Ctx, conformance.Account{No: "a", Version: last - 1})
	if err != nil || row.Version != last {
		e.Errorf("%+v, %v", row, err)
	}
	if _, err := accounts.Update(e.Ctx, row); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("after the last version: %v", err)
	}
	type short struct {
		No      string `db:"account_no"`
		Version int8   `db:"version"`
	}
	shorts, err := optimistic.New[short](e.Ctx, e.DB, holdfast.TableSpec{Table: "accounts", Key: []string{"account_no"}})
	if err != nil {
		e.Fatal(err)
	}
	if _, err := shorts.Update(e.Ctx, short{"a", 127}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("after the last version of an int8: %v", err)
	}
	if s, err := shorts.Get(e.Ctx, short{No: "a"}); err == nil {
		e.Errorf("a version that the field cannot hold was read as %d", s.Version)
	}
	if err := accounts.Delete(e.Ctx, row); err != nil {
		e.Errorf("a row in its last version can be deleted: %v", err)
	}
}

func uuidVersions[Tx any](e *env[Tx]) {
	columns := map[dbtest.Engine][]string{
		dbtest.Postgres: {"uuid", "text", "char(36)", "bytea"},
		dbtest.MySQL:    {"CHAR(36)", "VARCHAR(36)", "BINARY(16)", "VARBINARY(16)"},
		dbtest.MariaDB:  {"UUID", "CHAR(36)", "BINARY(16)"},
		dbtest.SQLite:   {"TEXT", "BLOB"},
	}[e.Engine.Kin()]
	for i, column := range columns {
		table := fmt.Sprint("uuids", i)
		e.Must(`CREATE TABLE ` + table + ` (no ` + e.Text() + ` NOT NULL PRIMARY KEY, n INT NOT NULL, v ` + column + ` NOT NULL)`)
		type text struct {
			No string `db:"no"`
			N  int    `db:"n"`
			V  string `db:"v"`
		}
		type bytes struct {
			No string   `db:"no"`
			N  int      `db:"n"`
			V  [16]byte `db:"v"`
		}
		type google struct {
			No string    `db:"no"`
			N  int       `db:"n"`
			V  uuid.UUID `db:"v"`
		}
		moves(e, table, column, text{No: "text"}, func(r text, v string) text { r.V = v; return r }, func(r text) string { return r.V })
		moves(e, table, column, bytes{No: "bytes"}, func(r bytes, v string) bytes {
			u, _ := uuid.Parse(v)
			r.V = u
			return r
		}, func(r bytes) string { return uuid.UUID(r.V).String() })
		moves(e, table, column, google{No: "google"}, func(r google, v string) google { r.V, _ = uuid.Parse(v); return r }, func(r google) string { return r.V.String() })

		texts, err := optimistic.New[text](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{"no"}}, optimistic.Options{Version: "v"})
		if err != nil {
			e.Fatal(err)
		}
		for _, v := range []string{"", uuid.Nil.String(), "1", strings.ToUpper(uuid.NewString()), "' OR 1=1 --"} {
			if _, err := texts.Update(e.Ctx, text{"text", 6, v}); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s: version %q: %v", column, v, err)
			}
		}
	}
}

// moves inserts, updates, conflicts and deletes one row of a table with such a version column.
func moves[R, Tx any](e *env[Tx], table, column string, row R, with func(R, string) R, of func(R) string) {
	e.Helper()
	t, err := optimistic.New[R](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{"no"}}, optimistic.Options{Version: "v"})
	if err != nil {
		e.Errorf("%s: %v", column, err)
		return
	}
	first, err := t.Insert(e.Ctx, row)
	if err != nil {
		e.Errorf("%s: %v", column, err)
		return
	}
	second, err := t.Update(e.Ctx, first)
	if err != nil || of(second) == of(first) || len(of(second)) != 36 {
		e.Errorf("%s: %+v, then %+v, %v", column, first, second, err)
	}
	if there, err := t.Get(e.Ctx, row); err != nil || of(there) != of(second) {
		e.Errorf("%s: %+v, %v", column, there, err)
	}
	_, err = t.Update(e.Ctx, first)
	wantConflict(e, err, table, of(first), of(second))
	if _, err := t.Update(e.Ctx, with(first, uuid.Nil.String())); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("%s: no version: %v", column, err)
	}
	wantConflict(e, t.Delete(e.Ctx, first), table, of(first), of(second))
	if err := t.Delete(e.Ctx, second); err != nil {
		e.Errorf("%s: %v", column, err)
	}
	// A new insert of the same key does not reuse an old version.
	again, err := t.Insert(e.Ctx, row)
	if err != nil || of(again) == of(first) {
		e.Errorf("%s: %+v, %v", column, again, err)
	}
}

func tablesAreChecked[Tx any](e *env[Tx]) {
	type R struct {
		No string `db:"no"`
		V  int64  `db:"v"`
	}
	key := `no ` + e.Text() + ` NOT NULL PRIMARY KEY, `
	bad := map[string]string{
		key + `v BIGINT`:                                                  "NULL",
		key + `v TIMESTAMP NOT NULL`:                                      "within one tick",
		key + `v DATE NOT NULL`:                                           "within one tick",
		key + `v DECIMAL(10) NOT NULL`:                                    "no integer",
		key + `v DOUBLE PRECISION NOT NULL`:                               "no integer",
		key + `v VARCHAR(36) NOT NULL`:                                    "string",
		key + `w BIGINT NOT NULL`:                                         "no column",
		`no ` + e.Text() + ` NOT NULL, v BIGINT NOT NULL`:                 "unique index",
		`no ` + e.Text() + ` UNIQUE, v BIGINT NOT NULL`:                   "NULL",
		`no INT NOT NULL PRIMARY KEY, v BIGINT NOT NULL`:                  "holds a number",
		`no ` + e.Text() + ` NOT NULL, v BIGINT NOT NULL, UNIQUE (no, v)`: "unique index",
	}
	if e.InnoDB() {
		bad[key+`v DATETIME(6) NOT NULL`] = "within one tick"
		bad[key+`v YEAR NOT NULL`] = "no integer"
	}
	spec, version := holdfast.TableSpec{Key: []string{"no"}}, optimistic.Options{Version: "v"}
	n := 0
	for columns, why := range bad {
		n++
		spec.Table = fmt.Sprint("bad", n)
		e.Must(`CREATE TABLE ` + spec.Table + ` (` + columns + `)`)
		if _, err := optimistic.New[R](e.Ctx, e.DB, spec, version); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(fmt.Sprint(err), why) {
			e.Errorf("%s: got %v, want %q in it", columns, err, why)
		}
	}
	for i, typ := range []string{"SMALLINT", "INT", "BIGINT"} {
		spec.Table = fmt.Sprint("good", i)
		e.Must(`CREATE TABLE ` + spec.Table + ` (` + key + `v ` + typ + ` NOT NULL)`)
		t, err := optimistic.New[R](e.Ctx, e.DB, spec, version)
		if err != nil {
			e.Fatal(err)
		}
		// The column's own maximum counts too, where it is smaller.
		if _, err = t.Insert(e.Ctx, R{"a", 32767}); err != nil {
			e.Error(err)
		}
		if _, err = t.Update(e.Ctx, R{"a", 32767}); errors.Is(err, holdfast.ErrInvalid) != (typ == "SMALLINT" && e.Engine != dbtest.SQLite) {
			e.Errorf("%s: %v", typ, err)
		}
	}

	type timed struct {
		No string    `db:"no"`
		V  time.Time `db:"v"`
	}
	type flag struct {
		No string `db:"no"`
		V  bool   `db:"v"`
	}
	type nullable struct {
		No string        `db:"no"`
		V  sql.NullInt64 `db:"v"`
	}
	type pointed struct {
		No string `db:"no"`
		V  *int64 `db:"v"`
	}
	type numbered struct {
		No int64 `db:"no"` // MySQL: WHERE no = 0 finds every row that does not begin with a digit
		V  int64 `db:"v"`
	}
	_, err1 := optimistic.New[timed](e.Ctx, e.DB, spec, version)
	_, err2 := optimistic.New[flag](e.Ctx, e.DB, spec, version)
	_, err3 := optimistic.New[nullable](e.Ctx, e.DB, spec, version)
	_, err4 := optimistic.New[pointed](e.Ctx, e.DB, spec, version)
	_, err5 := optimistic.New[numbered](e.Ctx, e.DB, spec, version)
	_, err6 := optimistic.New[int](e.Ctx, e.DB, spec, version)
	_, err7 := optimistic.New[R, Tx](e.Ctx, nil, spec, version)
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("struct %d: %v", i+1, err)
		}
	}
	for what, spoil := range map[string]func(*holdfast.TableSpec, *optimistic.Options){
		"no table":          func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Table = "" },
		"another table":     func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Table = "nowhere" },
		"a table's quote":   func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Table = `x"; DROP TABLE effects; --` },
		"a table's NUL":     func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Table = "x\x00" },
		"another schema":    func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Schema = "nowhere" },
		"no key":            func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Key = nil },
		"another key":       func(s *holdfast.TableSpec, _ *optimistic.Options) { s.Key = []string{"other"} },
		"no version":        func(_ *holdfast.TableSpec, o *optimistic.Options) { o.Version = "" },
		"another version":   func(_ *holdfast.TableSpec, o *optimistic.Options) { o.Version = "other" },
		"version is key":    func(_ *holdfast.TableSpec, o *optimistic.Options) { o.Version = "no" },
		"a version's quote": func(_ *holdfast.TableSpec, o *optimistic.Options) { o.Version = `v" = 0 OR "v` },
	} {
		s, o := spec, version
		spoil(&s, &o)
		if _, err := optimistic.New[R](e.Ctx, e.DB, s, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", what, err)
		}
	}
}
