package hostile

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/limits"
)

// injectLimits uses names, owners, keys and ids of limits that contain SQL, and tables with such names.
func injectLimits[Tx any](e *env[Tx]) {
	e.AnyOwner()
	for _, evil := range Strings() {
		l, err := limits.New(e.Ctx, e.DB, evil)
		if core.CheckName("name", evil, false) != nil {
			e.refuses(evil, "name", err)
			l, err = limits.New(e.Ctx, e.DB, "refunds")
		}
		if err != nil {
			e.Fatalf("%q: %v", evil, err)
		}
		if core.CheckName("owner", evil, true) == nil {
			l = l.For(evil)
		}
		if evil == "" || len(evil) > limits.MaxKey {
			continue
		}
		if _, err := l.Set(e.Ctx, evil, 100); err != nil {
			e.Errorf("%q: %v", evil, err)
		}
		if _, err := l.Take(e.Ctx, limits.Request{Key: evil, ID: evil, Amount: 60}); err != nil {
			e.Errorf("%q: %v", evil, err)
		}
		if _, err := l.Take(e.Ctx, limits.Request{Key: evil, ID: evil + "2", Amount: 60}); !errors.Is(err, limits.ErrExceeded) {
			e.Errorf("%q: %v", evil, err)
		}
		if got, err := l.Entry(e.Ctx, evil); err != nil || got.Key != evil || got.ID != evil {
			e.Errorf("%q: %+v, %v", evil, got, err)
		}
		e.whole(evil)
	}
	for i, table := range oddTables() {
		at, evil := e.quote(table), `'; DELETE FROM `+e.quote(table)+`; --`
		e.Must(`CREATE TABLE ` + at + ` (` + e.quote(oddKey) + ` ` + e.Text() + ` NOT NULL PRIMARY KEY, ` + e.quote(oddValue) + ` BIGINT NOT NULL, ` + e.quote(oddVersion) + ` BIGINT NOT NULL)`)
		e.Must(`INSERT INTO `+at+` VALUES ($1, 100, 0)`, e.TextKey(evil))
		l, err := limits.New(e.Ctx, e.DB, string(rune('a'+i)), limits.Options{Table: &limits.Table{TableSpec: holdfast.TableSpec{Table: table, Key: []string{oddKey}}, Limit: oddValue, Captured: oddVersion}})
		if err != nil {
			e.Errorf("table %q: %v", table, err)
			continue
		}
		if _, err := l.Take(e.Ctx, limits.Request{Key: evil, ID: evil, Amount: 60}); err != nil {
			e.Errorf("table %q: %v", table, err)
		}
		if s, err := l.Get(e.Ctx, evil); err != nil || s.Captured != 60 {
			e.Errorf("table %q: %+v, %v", table, s, err)
		}
	}
	e.Must(`CREATE TABLE lt (k ` + e.Text() + ` NOT NULL PRIMARY KEY, n BIGINT NOT NULL, m BIGINT NOT NULL)`)
	for _, evil := range append(Strings(), "", strings.Repeat("n", 300), `n" = 1 --`) {
		of := func(table, key, limit, captured string) limits.Table {
			return limits.Table{TableSpec: holdfast.TableSpec{Table: table, Key: []string{key}}, Limit: limit, Captured: captured}
		}
		for field, t := range map[string]limits.Table{
			"Table.Table": of(evil, "k", "n", "m"), "Table.Key": of("lt", evil, "n", "m"),
			"Table.Limit": of("lt", "k", evil, "m"), "Table.Captured": of("lt", "k", "n", evil),
		} {
			_, err := limits.New(e.Ctx, e.DB, "x", limits.Options{Table: &t})
			var input *holdfast.InputError
			if !errors.As(err, &input) || input.Field != field {
				e.Errorf("%s %q: %v", field, evil, err)
			}
		}
	}
	e.whole("a table's name")
}
