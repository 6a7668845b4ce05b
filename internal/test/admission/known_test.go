package admission_test

import (
	"database/sql"
	"embed"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

//go:embed settings/*.txt
var settingFiles embed.FS

// decisions maps each setting of settings/<engine>.txt to the head of its section: "refused: rule",
// "neutralised: rule", "doctor: why" or "harmless: why".
func decisions(t *testing.T, e dbtest.Engine) map[string]string {
	t.Helper()
	text, err := settingFiles.ReadFile("settings/" + string(e) + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	all, section := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(head, "]")
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		for name := range strings.FieldsSeq(line) {
			if was, twice := all[name]; twice {
				t.Errorf("%s is in %q and %q", name, was, section)
			}
			all[strings.ToLower(name)] = section
		}
	}
	return all
}

// setting is one setting of a server. Sessions may set values, the ones to try.
type setting struct {
	name     string
	sessions bool
	values   []string
}

// settingLists read the settings of a server: the name, whether sessions may set it, its type, and the
// values of an enumeration.
var settingLists = map[dbtest.Engine]string{
	dbtest.Postgres: `SELECT name, context IN ('user', 'superuser'), vartype, COALESCE(array_to_string(enumvals, ','), '') FROM pg_settings WHERE category <> 'Customized Options' OR name LIKE 'plpgsql.%'`,
	// MySQL does not say which values an enumeration has, but takes their numbers.
	dbtest.MySQL:   `SELECT LOWER(variable_name), variable_scope <> 'GLOBAL', LOWER(data_type), '0,1,2,3' FROM performance_schema.variables_metadata`,
	dbtest.MariaDB: `SELECT LOWER(variable_name), variable_scope <> 'GLOBAL' AND read_only = 'NO', LOWER(variable_type), COALESCE(enum_value_list, '') FROM information_schema.system_variables`,
	dbtest.SQLite:  `SELECT name, 1, 'boolean', '' FROM pragma_pragma_list`,
}

func settingsOf(t *testing.T, e dbtest.Engine, pool *sql.DB) (all []setting) {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), settingLists[e])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s setting
		var kind, values string
		if err := rows.Scan(&s.name, &s.sessions, &kind, &values); err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "bool", "boolean":
			s.values = []string{"0", "1"}
		case "enum", "enumeration", "set", "flagset":
			s.values = strings.Split(values, ",")
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSettingsAreKnown compares settings/*.txt with the server's own list of settings: each one has a
// decision. What is refused or neutralised has a rule that names it, and a case that shows it. With the
// values of a setting that is harmless, a session has the same keys and locks as one without it.
func TestSettingsAreKnown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if _, there := settingLists[e]; !there {
			return
		}
		dsn := migrated(t, e)
		pool := dbtest.OpenSQL(t, dsn)
		plain, known := mustOpen(t, pool), decisions(t, e)
		var rounds [][]string
		for _, s := range settingsOf(t, e, pool) {
			section := decision(known, s)
			verdict, why, _ := strings.Cut(section, ": ")
			switch verdict {
			case "refused", "neutralised":
				ruled(t, e, s.name, why, verdict == "neutralised")
			case "doctor", "harmless":
				if !s.sessions || why == "reads" {
					continue
				}
				for i, value := range s.values {
					if i == len(rounds) {
						rounds = append(rounds, nil)
					}
					rounds[i] = append(rounds[i], param(e, s.name, value))
				}
			default:
				t.Errorf("nothing is known about the setting %s: does it change a value, an identity or a comparison? Refuse it, neutralise it, or say why it is harmless, in internal/test/admission/settings/%s.txt", s.name, e)
			}
		}
		tried := 0
		for _, params := range rounds {
			for some := range slices.Chunk(params, 8) {
				tried += same(t, plain, dsn, some)
			}
		}
		t.Logf("%s: %d values of harmless settings were tried", e, tried)
		if tried < 20 {
			t.Errorf("only %d values were tried", tried)
		}
	})
}

func decision(known map[string]string, s setting) string {
	name := strings.ToLower(s.name)
	if section, ok := known[name]; ok || s.sessions {
		return section
	}
	for family, section := range known {
		if start, ok := strings.CutSuffix(family, "*"); ok && strings.HasPrefix(name, start) {
			return section
		}
	}
	return ""
}

// ruled fails unless the engine has the rule about the setting, and TestAdmission or TestSettings a case.
func ruled(t *testing.T, e dbtest.Engine, name, rule string, neutralised bool) {
	t.Helper()
	rules := dialectOf(e).Admission.Rules
	is := func(r dialect.Rule) bool {
		return r.Name == rule && strings.Contains(r.Setting, name) && (r.Refused == "") == neutralised
	}
	if !slices.ContainsFunc(rules, is) {
		t.Errorf("no rule %q names %s", rule, name)
	}
	shown := slices.Contains(elsewhere, rule)
	for _, e := range kin(e) {
		shown = shown || slices.ContainsFunc(environments(), func(env environment) bool { return env.rule == rule && slices.Contains(env.on, e) }) ||
			slices.ContainsFunc(settings(e), func(s string) bool { return strings.HasSuffix(s, "!"+rule) })
	}
	if !shown {
		t.Errorf("no case shows the rule %q about %s", rule, name)
	}
}

// kin returns the engines that share rules with e: binlog_format needs a server with a binary log, and
// sql_mode has its refused modes on MariaDB.
func kin(e dbtest.Engine) on {
	if innodbEngine(e) {
		return innodb
	}
	return on{e}
}

// elsewhere lists rules about servers that the tests start for them: search paths are in TestNames,
// databases in TestEncodingOfDatabase, groups and Galera in internal/test/cluster.
var elsewhere = []string{"search_path", "server_encoding", "group consistency", "Galera", "wsrep_on"}

func dialectOf(e dbtest.Engine) *dialect.Dialect {
	for _, d := range dialects {
		if strings.EqualFold(d.name, string(e)) || e == dbtest.Postgres && d.name == "PostgreSQL" {
			return d.of
		}
	}
	return nil
}

// param is a parameter of a URL that sets a value.
func param(e dbtest.Engine, name, value string) string {
	switch e {
	case dbtest.SQLite:
		return "_pragma=" + name + "(" + value + ")"
	case dbtest.MySQL, dbtest.MariaDB:
		if _, err := strconv.Atoi(value); err != nil {
			value = "'" + value + "'"
		}
	}
	return name + "=" + url.QueryEscape(value)
}

// same checks that a session with the settings has the keys and locks of plain, where the driver writes
// values into the statements. If the server does not take one of them, same tries fewer. It returns how
// many it tried.
func same(t *testing.T, plain *holdfast.DB[*sql.Tx], dsn string, params []string) int {
	t.Helper()
	written := map[holdfast.Engine]string{holdfast.PostgreSQL: "&default_query_exec_mode=simple_protocol", holdfast.MySQL: "&interpolateParams=true", holdfast.MariaDB: "&interpolateParams=true"}
	with := strings.Join(params, "&")
	pool := dbtest.OpenSQL(t, dbtest.With(dsn, with+written[plain.Engine()]))
	pool.SetMaxOpenConns(2)
	defer func() { _ = pool.Close() }()
	db, err := open(t, pool)
	switch {
	case errors.Is(err, holdfast.ErrUnsupported):
		t.Errorf("%s: %v", with, err)
		return 0
	case err != nil && len(params) > 1:
		half := len(params) / 2
		return same(t, plain, dsn, params[:half]) + same(t, plain, dsn, params[half:])
	case err != nil:
		return 0
	}
	names := []string{"café " + with}
	if len(names[0]) > 120 {
		names[0] = names[0][:120]
	}
	if runs, leases := executions(t, names, plain, db); runs != 1 || leases != 1 {
		t.Errorf("%s: %d functions ran and %d leases were granted, want one of each", with, runs, leases)
	}
	return len(params)
}
