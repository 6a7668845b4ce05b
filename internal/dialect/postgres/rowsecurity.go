package postgres

import "strings"

// setOwner keeps an owner that is there: the session is bound to it, or the program's transaction is, and
// the policies refuse the rows of another one.
const setOwner = `SELECT pg_catalog.set_config($1, $2, true) WHERE COALESCE(pg_catalog.current_setting($1, true), '') = ''`

// rowSecurity returns the policies. A session without an owner has the rows of the empty owner, which are
// nobody's. FORCE: the policies hold for the owner of the tables too.
func rowSecurity(setting string, tables, everyOwner []string) (list []string) {
	mine := `owner = COALESCE(pg_catalog.current_setting('` + setting + `', true), '')` // two words: holdfast.Options was checked
	list = []string{`BEGIN`}                                                            // a session sees all policies of a table, or none
	for _, t := range tables {
		list = append(list,
			`DROP POLICY IF EXISTS holdfast_owner ON `+t,
			`CREATE POLICY holdfast_owner ON `+t+` USING (`+mine+`) WITH CHECK (`+mine+`)`,
			`DROP POLICY IF EXISTS holdfast_every_owner ON `+t)
		if len(everyOwner) > 0 {
			to := make([]string, len(everyOwner))
			for i, account := range everyOwner {
				to[i] = ident(account)
			}
			list = append(list, `CREATE POLICY holdfast_every_owner ON `+t+` TO `+strings.Join(to, ", ")+` USING (true) WITH CHECK (true)`)
		}
		list = append(list, `ALTER TABLE `+t+` ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`)
	}
	return append(list, `COMMIT`)
}

// foreignPolicies is a condition on a table with row level security: it is not the one of rowSecurity,
// whole. Another policy may hide rows, or show them to others.
const foreignPolicies = `(NOT own.relforcerowsecurity
 OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = own.oid AND p.polname = 'holdfast_owner')
 OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = own.oid AND NOT (p.polpermissive AND p.polcmd = '*'
  AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid)
  AND CASE p.polname WHEN 'holdfast_owner' THEN p.polroles = '{0}' AND pg_catalog.pg_get_expr(p.polqual, p.polrelid)
    ~ '^\(owner = COALESCE\((pg_catalog[.])?current_setting\(''[A-Za-z0-9_.]+''::text, true\), ''''::text\)\)$'
   WHEN 'holdfast_every_owner' THEN p.polroles <> '{0}' AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true' ELSE false END)))`
