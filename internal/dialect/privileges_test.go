package dialect

import "testing"

// TestRights checks that each table says what each role may do with it.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, table := range GrantedTables() {
		for _, role := range Roles {
			d := Dialect{QuoteRune: '"', Privileges: Privileges{LockNeedsUpdate: true}}
			if role == RoleMigrator {
				continue // it owns them
			}
			list, ok := d.Rights(role, table)
			if !ok {
				t.Errorf("internal/dialect/privileges.go does not say what the role %s may do with the table %s", role, table)
			}
			for _, r := range list {
				if len(r.Columns) > 0 && r.Columns[0] == "" {
					t.Errorf("%s, %s: lockColumns names no column", role, table)
				}
			}
		}
	}
	if len(rights) != len(GrantedTables()) {
		t.Error("there are rights for tables that do not exist")
	}
}
