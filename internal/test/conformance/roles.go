package conformance

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// RoleVariable names roles, with commas: the pools of every environment then belong to an account that
// has exactly the printed grants of these roles, and all rights to rows of the test's own tables.
const RoleVariable = "HOLDFAST_TEST_ROLE"

// RowSecurityVariable puts, with roles, PostgreSQL's tables under the printed policies of row level security;
// an environment's pools then have Options.OwnerSetting. Their account has the rows of one owner, or those of
// every owner if the value is "every-owner".
const RowSecurityVariable = "HOLDFAST_TEST_ROW_SECURITY"

var credentials = regexp.MustCompile(`//[^@]*@`)

// enterRole gives the environment an account in the roles of RoleVariable.
func (e *Env[Tx]) enterRole() {
	e.Helper()
	if roles := os.Getenv(RoleVariable); roles != "" && e.Engine != dbtest.SQLite {
		dbtest.Needs(e, e.Engine, dbtest.Users)
		e.entered, e.admin = true, e.DSN
		e.DSN = e.As("env", strings.Split(roles, ",")...)
		e.enterRowSecurity()
	}
}

func (e *Env[Tx]) enterRowSecurity() {
	e.Helper()
	value := os.Getenv(RowSecurityVariable)
	if value == "" || e.Engine != dbtest.Postgres {
		return
	}
	e.reaper = e.As("reaper", string(migrations.Reaper))
	everyOwner := e.accounts[len(e.accounts)-1:]
	if value == "every-owner" {
		everyOwner = e.accounts
	}
	var b strings.Builder
	e.Check(migrations.PrintRowSecurity(&b, holdfast.PostgreSQL, everyOwner, holdfast.Options{Schema: e.Schema()}))
	e.Must(b.String())
	e.rowSecurity = true
	open := e.Handle.Open
	e.Handle.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[Tx] {
		tb.Helper()
		if len(opts) == 0 {
			opts = []holdfast.Options{{}}
		}
		opts = slices.Clone(opts)
		opts[0].OwnerSetting = holdfast.DefaultOwnerSetting
		pool := open(tb, dsn, opts...)
		pool.DB = access.WithOwners(pool.DB, core.OneOwner)
		return pool
	}
}

// RowSecurity reports whether the environment's pools are under row level security.
func (e *Env[Tx]) RowSecurity() bool { return e.rowSecurity }

// reaperDB opens a pool of an account in the role of the reaper, for an environment that is in a role.
func (e *Env[Tx]) reaperDB(opts []holdfast.Options) *holdfast.DB[Tx] {
	e.Helper()
	if e.reaper == "" {
		e.reaper = e.As("reaper", string(migrations.Reaper))
	}
	if len(opts) > 0 {
		return e.Open(e.reaper, opts...).DB
	}
	if e.reapers == nil {
		e.reapers = e.Open(e.reaper).DB
	}
	return e.reapers
}

// As makes an account with exactly the printed grants of some roles, and all rights to rows of the
// test's own tables, and returns its URL of the test's database. name tells accounts of a test apart.
func (e *Env[Tx]) As(name string, roles ...string) (url string) {
	e.Helper()
	account := regexp.MustCompile(`hf_[a-z0-9]+`).FindString(e.DSN) + "_" + name
	ends := []string{`DROP USER ` + account}
	if e.Engine == dbtest.Postgres {
		ends = []string{`DROP OWNED BY ` + account, `DROP ROLE ` + account}
		e.Must(`CREATE ROLE ` + account + ` LOGIN PASSWORD 'pw'`)
	} else {
		e.Must(`CREATE USER ` + account + ` IDENTIFIED BY 'pw'`)
	}
	pool, admin := e.SQL, cmp.Or(e.admin, e.DSN)
	e.Cleanup(func() {
		if e.Engine != dbtest.Postgres { // the test's pool is closed by now
			var err error
			if pool, err = dbtest.OpenURL(admin); err != nil {
				e.Error(err)
				return
			}
			defer func() { _ = pool.Close() }()
		}
		for _, end := range ends {
			if _, err := pool.Exec(end); err != nil {
				e.Error(err)
			}
		}
	})
	for _, role := range roles {
		for _, q := range Grants(e, role, account) {
			e.Must(q)
		}
	}
	e.accounts = append(e.accounts, account)
	e.grantOwn()
	return credentials.ReplaceAllString(e.DSN, "//"+account+":pw@")
}

// Grants returns the printed grants of a role.
func Grants[Tx any](e *Env[Tx], role, account string) []string {
	e.Helper()
	var b strings.Builder
	if err := migrations.PrintGrants(&b, holdfast.Engine(e.Engine), migrations.Role(role), account, holdfast.Options{Schema: e.Schema()}); err != nil {
		e.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(b.String(), ";\n"), ";\n")
}

// grantOwn gives the accounts of the environment all rights to rows of the test's own tables.
func (e *Env[Tx]) grantOwn() {
	e.Helper()
	ident := func(name string) string {
		if e.Engine == dbtest.Postgres {
			return dialect.QuoteIdent(`"`, name)
		}
		return dialect.QuoteIdent("`", name)
	}
	for _, table := range e.tableNames() {
		if strings.HasPrefix(table, "holdfast_") {
			continue
		}
		for _, account := range e.accounts {
			_, err := e.SQL.ExecContext(e.Ctx, `GRANT SELECT, INSERT, UPDATE, DELETE ON `+ident(e.Schema())+`.`+ident(table)+` TO `+account)
			e.Check(err)
		}
	}
}
