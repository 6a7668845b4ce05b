package migrations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/golang-migrate/migrate/v4/source"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

//go:embed functions/*.sql
var functionFiles embed.FS

// functionSet is the functions of one engine.
type functionSet struct {
	file string
	// clients are those that clients call, and inner those that they call themselves, with their
	// arguments.
	clients, inner []string
	// kind is what the engine calls one of them. named means that its arguments are a part of its name.
	kind  string
	named bool
	// delimited means that the file has DELIMITER lines, and the driver takes one statement at a time.
	delimited bool
	// texts are placeholders of the text that MySQL and MariaDB share, and what stands for each.
	texts []string
	// places means that the functions have to name their schema.
	places bool
	// own counts the functions of a schema with a name. same counts those that carry a mark, among some names; marked is
	// how many do so if the functions are whole. newest returns the mark of a name. Both see only what is this user's. foreign lists the
	// functions and tables with a prefix in a schema that belong to another user: the owner of a function that is
	// replaced may change it again.
	own, same, newest, foreign string
	marked                     int
	// passes says why the user passes the policies of a table, "" if it does not or there are none.
	// Parameters: schema, table.
	passes string
}

var functionSets = map[string]functionSet{
	"postgres": {
		file: "postgres", kind: "FUNCTION", named: true, places: true,
		clients: []string{
			"claim(text, text, text, bytea, text, integer, bigint)", "claim(text, text, text, text, text, integer, bigint)",
			"finish(text, text, bytea, text, text, bigint, bigint)", "finish(text, text, text, text, text, bigint, bigint)",
			"void(text, text, text, bytea, text, bigint, bigint)", "void(text, text, text, text, text, bigint, bigint)",
			"lookup(text, text, text, bytea, text, integer)", "lookup(text, text, text, text, text, integer)",
			"acquire(text, bytea, bigint, text, text)", "acquire(text, text, bigint, text, text)",
			"renew(text, bytea, text, bigint)", "renew(text, text, text, bigint)",
			"release(text, bytea, text)", "release(text, text, text)",
			"guard(text, bytea, bigint)", "guard(text, text, bigint)",
		},
		inner: []string{
			"check_call()", "called(text, text, bytea, bytea)", "check_bytes(text, bytea, integer, integer)", "key_hash(text, text, text, bytea)",
			"judge(smallint, bytea, smallint, bytea, text, text, bigint, bytea, integer)", "fingerprint(text, integer)", "lease_row(text, bytea)", "attempt(text)",
		},
		own: `SELECT COUNT(*) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::pg_catalog.text AND p.proname = $2::pg_catalog.text`,
		same: `SELECT COUNT(*) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::pg_catalog.text
AND pg_catalog.obj_description(p.oid, 'pg_proc') = $2::pg_catalog.text AND p.proname = ANY (pg_catalog.string_to_array($3::pg_catalog.text, ',')) AND pg_catalog.pg_get_userbyid(p.proowner) = current_user`,
		marked: 1,
		newest: `SELECT COALESCE(MAX(pg_catalog.obj_description(p.oid, 'pg_proc')), '') FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::pg_catalog.text AND p.proname = $2::pg_catalog.text
AND pg_catalog.pg_get_userbyid(p.proowner) = current_user`,
		foreign: `SELECT 'function ' || p.proname || ' belongs to ' || pg_catalog.pg_get_userbyid(p.proowner)
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1::pg_catalog.text AND p.proname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')) AND pg_catalog.pg_get_userbyid(p.proowner) <> current_user
UNION ALL SELECT 'table ' || c.relname || ' belongs to ' || pg_catalog.pg_get_userbyid(c.relowner)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::pg_catalog.text AND c.relname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')) AND pg_catalog.pg_get_userbyid(c.relowner) <> current_user`,
		passes: postgres.PassesPolicies,
	},
	"mysql": procedures(&mysql.Dialect, "{no_wait}", "1", "{session_waits}", "TRUE", "{waiting}", "", "{at_once}", "", "{nowait}", " NOWAIT", "{isolation}", "transaction_isolation", "{share}", "FOR SHARE", "{locked}", "3572"),
	// MariaDB bounds the wait of one statement, and ends it with 1205 where MySQL has 3572.
	"mariadb": procedures(&mariadb.Dialect, "{no_wait}", "0", "{session_waits}", "FALSE", "{waiting}", "SET STATEMENT innodb_lock_wait_timeout = v_wait FOR ", "{at_once}", "SET STATEMENT innodb_lock_wait_timeout = 0 FOR ", "{nowait}", "",
		"{isolation}", "tx_isolation", "{share}", "LOCK IN SHARE MODE", "{locked}", "1205"),
}

// procedures has the statements by which Go takes and renews a lease. A procedure leaves LAST_INSERT_ID() as
// it was.
func procedures(d *dialect.Dialect, texts ...string) functionSet {
	bind := strings.NewReplacer("LAST_INSERT_ID(", "(", "$0", "v_owner", "$1", "v_name", "$2", "v_mine", "$3", "p_ttl_us", "$4", "v_who", "{locks}", "{schema}`{prefix}locks`")
	renew := strings.NewReplacer("$0", "v_owner", "$1", "p_ttl_us", "{names}", "v_name", "{attempts}", "v_mine", "{locks}", "{schema}`{prefix}locks`")
	texts = append(texts, "{take}", bind.Replace(d.Leases.Take.Text), "{renew}", renew.Replace(d.Leases.Renew))
	f := functionSet{
		file: "mysql", kind: "PROCEDURE", delimited: true, texts: texts,
		clients: []string{"claim", "finish", "void", "lookup", "acquire", "renew", "release", "guard"},
		inner:   []string{"check", "check_lease", "claim_key", "fingerprint", "in_transaction", "key_hash", "still_claims"},
		own:     `SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = ? AND routine_name = ?`,
		same:    `SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = ? AND routine_comment = ? AND FIND_IN_SET(routine_name, ?) > 0 AND definer = CURRENT_USER()`,
		newest:  `SELECT COALESCE(MAX(routine_comment), '') FROM information_schema.routines WHERE routine_schema = ? AND routine_name = ? AND definer = CURRENT_USER()`,
	}
	f.marked = len(f.clients) + len(f.inner)
	return f
}

// bodyQuote surrounds the bodies of PostgreSQL's functions.
const bodyQuote = "$holdfast$"

// FunctionsUp creates the functions by which clients in other languages take part, or replaces them:
// holdfast_claim, holdfast_finish, holdfast_void, holdfast_lookup, holdfast_acquire,
// holdfast_renew, holdfast_release and holdfast_guard, with the prefix of the tables. They are functions on
// PostgreSQL, and procedures on MySQL and MariaDB. docs/reference/protocol.md describes them. They run with the
// rights of the role that creates them, which must be the owner of the tables, or a role with all
// rights to their rows. PrintFunctionGrants has the grants of a client. Any number of processes may
// call FunctionsUp at once, at every start. Where the tables have the policies of [PrintRowSecurity], the role
// must not pass them. It only reads while the functions are
// those of this build, made by this user, or those of a newer build, which it leaves. A procedure that it replaces on MySQL and MariaDB loses its grants, so give
// them again.
//
// Errors: [holdfast.ErrUnsupported] on SQLite, Vitess and TiDB, which have none, and on clusters with
// several writers, and for a role that passes the policies; [holdfast.ErrSchema] if the tables are missing.
func FunctionsUp(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) error {
	return retry(ctx, pool, opts, func(d *driver, _ source.Driver) error {
		var have int
		table := d.layout.table("schema")
		err := d.conn.QueryRowContext(d.ctx, `SELECT version FROM `+table).Scan(&have)
		switch {
		case errors.Is(err, sql.ErrNoRows) || d.layout.dialect.Classify(err) == dialect.NoTable || err == nil && have != Version:
			return &holdfast.SchemaError{Table: table, Have: have, Min: Version, Max: Version, Err: err}
		case err != nil:
			return err
		}
		return d.functions("up")
	}, false)
}

// FunctionsDown drops the functions, and no record. Down does so too.
func FunctionsDown(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) error {
	return retry(ctx, pool, opts, func(d *driver, _ source.Driver) error { return d.functions("down") }, false)
}

// PrintFunctions writes the SQL of FunctionsUp. On PostgreSQL Options.Schema is required, because the
// functions name their schema. On MySQL and MariaDB the text is for the client mysql or mariadb, which
// knows DELIMITER.
func PrintFunctions(w io.Writer, e holdfast.Engine, opts ...holdfast.Options) error {
	return printFunctions(w, e, opts, func(l *layout, f *functionSet) (string, error) {
		text, _, err := f.render(l, "up")
		return text, err
	})
}

// PrintFunctionGrants writes the GRANT statements for a role that calls the functions and needs no
// right to the tables. On MySQL and MariaDB role is an account: user@host.
func PrintFunctionGrants(w io.Writer, e holdfast.Engine, role string, opts ...holdfast.Options) error {
	return printFunctions(w, e, opts, func(l *layout, f *functionSet) (string, error) { return f.grants(l, role) })
}

func printFunctions(w io.Writer, e holdfast.Engine, opts []holdfast.Options, text func(*layout, *functionSet) (string, error)) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	l, err := newLayout(e, o)
	if err != nil {
		return err
	}
	f, err := functionsOf(l)
	if err != nil {
		return err
	}
	if f.places && o.Schema == "" {
		return errcode.Invalid("Options.Schema", "is missing: the functions name their schema, so say which one has the tables")
	}
	out, err := text(l, f)
	if err == nil {
		_, err = io.WriteString(w, out)
	}
	return err
}

func functionsOf(l *layout) (*functionSet, error) {
	f, ok := functionSets[l.dialect.Name]
	if !ok {
		return nil, &holdfast.UnsupportedError{
			Engine: l.dialect.Name, Check: "functions", What: "functions for other languages",
			Problem: "it has no stored functions, or none in which a claim could run in the caller's transaction", Remedy: "send the statements of docs/reference/protocol.md",
		}
	}
	return &f, nil
}

// functions creates or drops the functions.
func (d *driver) functions(direction string) error {
	f, err := functionsOf(d.layout)
	if err != nil {
		return err
	}
	if d.layout.multiPrimary && direction == "up" {
		return &holdfast.UnsupportedError{
			Engine: d.layout.dialect.Name, Check: "functions", What: "functions for other languages",
			Problem: "other nodes of this cluster write too, and the locks of a function do not reach them",
			Remedy:  "send all writes to one node, and declare that with holdfast.Options{SingleWriter: true}",
		}
	}
	l := *d.layout
	l.schema = d.schema
	text, id, err := f.render(&l, direction)
	if err != nil {
		return err
	}
	if direction == "up" {
		if there, err := d.functionsThere(f, id); err != nil || there {
			return err
		}
	}
	if err := d.engine.lock(d); err != nil {
		return err
	}
	if direction == "up" { // a newer build may have made them meanwhile
		if there, err := d.functionsThere(f, id); err != nil || there {
			return errors.Join(err, d.Unlock())
		}
	}
	statements := []string{text}
	if f.delimited {
		statements = splitDelimited(text)
	}
	d.failed = d.trustFunctions(f)
	if d.failed == nil && direction == "up" {
		d.failed = d.underPolicies(f)
	}
	for i := 0; i < len(statements) && d.failed == nil; i++ {
		d.failed = d.exec(statements[i])
	}
	if d.failed == nil && direction == "up" { // another user may have made one since
		d.failed = d.trustFunctions(f)
	}
	if d.failed != nil {
		return errors.Join(d.failed, d.Unlock())
	}
	return d.Unlock()
}

// functionsThere reports whether the functions are those of this build, or of a newer one.
func (d *driver) functionsThere(f *functionSet, id string) (bool, error) {
	var newest string
	var n int
	err := cmp.Or(
		d.conn.QueryRowContext(d.ctx, f.newest, d.schema, d.layout.prefix+"claim").Scan(&newest),
		d.conn.QueryRowContext(d.ctx, f.same, d.schema, id, strings.Join(f.all(d.layout), ",")).Scan(&n),
	)
	if err != nil || n != f.marked && revisionOf(newest) <= functionsRevision {
		return false, err
	}
	return true, cmp.Or(d.trustFunctions(f), d.underPolicies(f))
}

// all returns the names of the functions, each once.
func (f *functionSet) all(l *layout) (names []string) {
	for _, function := range slices.Concat(f.clients, f.inner) {
		name, _, _ := strings.Cut(function, "(")
		names = append(names, l.prefix+name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// functionsRevision rises whenever the text of a function changes: in a rolling deploy an older program must not put
// its functions back. TestFunctionsRevision knows the texts.
const functionsRevision = 1

// mark is the comment of a function: its revision, and a part of the hash of all texts.
const mark = "holdfast functions %d %.8x"

func revisionOf(comment string) (revision int) {
	var hash string
	_, _ = fmt.Sscanf(comment, "holdfast functions %d %s", &revision, &hash) // any other comment is of none
	return revision
}

// underPolicies refuses a user who passes the policies of row level security: the functions run with its
// rights, so that each client would have the rows of every owner.
func (d *driver) underPolicies(f *functionSet) error {
	if f.passes == "" {
		return nil
	}
	var why string
	err := d.conn.QueryRowContext(d.ctx, f.passes, d.schema, d.layout.prefix+"records").Scan(&why)
	if err != nil || why == "" {
		return err
	}
	return &holdfast.UnsupportedError{
		Engine: d.layout.dialect.Name, Check: "row level security", What: "functions", Value: d.user + " " + why,
		Problem: "the functions run with the rights of the user who makes them, and this one passes the policies, so that a client claims and finishes operations of every owner",
		Remedy:  "make a role without SUPERUSER and BYPASSRLS, and not among those for every owner, the owner of the tables and the functions, and run holdfast migrate functions up as that role",
	}
}

// dropFunctions drops the functions if the role can see one.
func (d *driver) dropFunctions() error {
	f, err := functionsOf(d.layout)
	if err != nil {
		return nil //nolint:nilerr // the engine has none
	}
	var n int
	if err := d.conn.QueryRowContext(d.ctx, f.own, d.schema, d.layout.prefix+"claim").Scan(&n); err != nil || n == 0 {
		return err
	}
	return d.functions("down")
}

// render returns the SQL of one direction for a layout, and an id of that text.
func (f *functionSet) render(l *layout, direction string) (sql, id string, err error) {
	if strings.Contains(l.schema, bodyQuote) {
		return "", "", errcode.Invalid("Options.Schema", "contains "+bodyQuote+", which ends the text of a function")
	}
	text, err := functionFiles.ReadFile("functions/" + f.file + "." + direction + ".sql")
	if err != nil {
		return "", "", err
	}
	all := f.names(l, slices.Concat(f.clients, f.inner))
	var drops strings.Builder
	for _, name := range all {
		fmt.Fprintf(&drops, "DROP %s IF EXISTS %s;\n", f.kind, name)
	}
	rendered := strings.NewReplacer("{schema}", l.qualifier(), "{prefix}", l.prefix, "{now}", l.dialect.Now, "{lockspace}", dialect.Lockspace(l.table("records")),
		"{clock}", mysql.ServerClock, "{functions}", "  "+strings.Join(all, ",\n  "), "{drops}\n", drops.String()).Replace(strings.NewReplacer(f.texts...).Replace(string(text)))
	id = fmt.Sprintf(mark, functionsRevision, sha256.Sum256([]byte(rendered)))
	return strings.ReplaceAll(rendered, "{text}", id), id, nil
}

// names qualifies and quotes functions.
func (f *functionSet) names(l *layout, functions []string) []string {
	names := make([]string, len(functions))
	for i, function := range functions {
		name, arguments, _ := strings.Cut(function, "(")
		names[i] = l.table(name)
		if f.named {
			names[i] += "(" + arguments
		}
	}
	return names
}

func (f *functionSet) grants(l *layout, role string) (string, error) {
	if role == "" || strings.ContainsRune(role, 0) {
		return "", errcode.Invalid("role", "is missing: say which role calls the functions")
	}
	to := l.dialect.Privileges.Account(role)
	var b strings.Builder
	if f.places {
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s TO %s;\n", l.dialect.Ident(l.schema), to)
	}
	for _, name := range f.names(l, f.clients) {
		fmt.Fprintf(&b, "GRANT EXECUTE ON %s %s TO %s;\n", f.kind, name, to)
	}
	return b.String(), nil
}

// splitDelimited cuts a text for the client mysql into statements: at the ends of lines, by the
// delimiter that a DELIMITER line sets.
func splitDelimited(text string) (out []string) {
	delimiter := ";"
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if set, is := strings.CutPrefix(line, "DELIMITER "); is {
			delimiter = set
			continue
		}
		if b.Len() == 0 && (line == "" || strings.HasPrefix(line, "-- ") || line == "--") {
			continue
		}
		if end, ends := strings.CutSuffix(line, delimiter); ends {
			b.WriteString(end)
			out = append(out, b.String())
			b.Reset()
			continue
		}
		b.WriteString(line + "\n")
	}
	return out
}
