package sqlite

import (
	_ "embed"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

//go:embed shape.txt
var golden string

// floor is the minor version 3.x that introduced unixepoch('subsec').
const floor = 42

var admission = dialect.Admission{
	Facts: `SELECT 'version', sqlite_version()
UNION ALL SELECT 'schema', 'main'
UNION ALL SELECT 'query_only', CAST(query_only AS TEXT) FROM pragma_query_only
UNION ALL SELECT 'journal_mode', journal_mode FROM pragma_journal_mode
UNION ALL SELECT 'ignore_check_constraints', CAST(ignore_check_constraints AS TEXT) FROM pragma_ignore_check_constraints
UNION ALL SELECT 'read_uncommitted', CAST(read_uncommitted AS TEXT) FROM pragma_read_uncommitted`,
	Versions: dialect.Versions{Tested: []string{"3.42 and later (run: 3.53)"}, Floor: "3.42", Untested: "none: the library is a part of the program"},
	Identify: identify,
	Rules: []dialect.Rule{
		dialect.Rule{
			Name: dialect.RuleReadOnly, Breaks: "nothing can be claimed (G4)", Remedy: "take query_only out of the DSN",
		}.Value("query_only", "1"),
		dialect.Rule{
			Name: "journal", Breaks: "nothing rolls back (G4)", Remedy: "use journal_mode(WAL), or DELETE",
		}.Value("journal_mode", "off"),
		dialect.Rule{
			Name: "read uncommitted", Breaks: "connections that share a cache see what is rolled back later (G4)", Remedy: "take read_uncommitted out of the DSN",
		}.Value("read_uncommitted", "1"),
		dialect.Rule{
			Name: "ignore_check_constraints", Breaks: "SQLite does not check the constraints of a table, such as the one that keeps a limit (G4)",
			Remedy: "take ignore_check_constraints out of the DSN",
		}.Value("ignore_check_constraints", "1"),
		{
			Name: dialect.RuleNames, Setting: "attached databases, temporary tables", Breaks: "a table of that name in another database hides Holdfast's (G4)",
			Neutral:    "each name in a statement is qualified",
			Neutralise: func(*dialect.Dialect, dialect.Facts) {},
		},
	},
	Kind: `SELECT schema, type FROM pragma_table_list WHERE schema = $1 AND lower(name) = lower($2)`,
	Table: func(kind []string) *dialect.Finding {
		if kind[1] == "table" {
			return nil
		}
		return &dialect.Finding{
			Check: "table", Setting: "table", Value: "a " + kind[1],
			Breaks: "its rows have no unique key, or do not roll back (G4, G7)", Remedy: "name the table itself",
		}
	},
	Shape: `WITH own AS (SELECT name, schema, type FROM pragma_table_list WHERE schema = $1 AND instr(',' || $2 || ',', ',' || name || ',') > 0)
SELECT name, 'kind', type, '' FROM own
UNION ALL SELECT own.name, 'column', c.name, LOWER(c.type) || CASE WHEN c."notnull" = 1 OR c.pk > 0 THEN ' not null' ELSE '' END FROM own, pragma_table_info(own.name, own.schema) c
UNION ALL SELECT own.name, 'unique', 'primary key', printf('%02d ', c.pk) || c.name FROM own, pragma_table_info(own.name, own.schema) c WHERE c.pk > 0
UNION ALL SELECT own.name, 'unique', l.name, printf('%02d ', x.seqno) || COALESCE(x.name, 'expression') || CASE WHEN l.partial = 1 THEN ' partial' ELSE '' END
 FROM own, pragma_index_list(own.name, own.schema) l, pragma_index_info(l.name, own.schema) x WHERE l."unique" = 1 AND l.origin <> 'pk'
UNION ALL SELECT m.tbl_name, 'trigger', m.name, '' FROM {schema}sqlite_master m WHERE m.type = 'trigger' AND m.tbl_name IN (SELECT name FROM own)`,
	Golden: golden,
}

// identify accepts every version since the floor: the library is linked into the program, and
// all of these versions behave the same.
func identify(f dialect.Facts) dialect.Identity {
	major, minor, _ := dialect.Numbers(f["version"])
	if major < 3 || major == 3 && minor < floor {
		return dialect.TooOld("SQLite "+f["version"], fmt.Sprint("3.", floor))
	}
	return dialect.Identity{Product: fmt.Sprint("SQLite ", major), Standing: dialect.Tested}
}
