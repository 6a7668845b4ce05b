package postgres

import "strings"

// setOwner keeps an existing owner: the session is bound to it, or the program's transaction is, and
// the policies refuse the rows of another one.
const setOwner = `SELECT pg_catalog.set_config($1, $2, true) WHERE COALESCE(pg_catalog.current_setting($1, true), '') = ''`

// rowSecurity returns the policies. A session without an owner has the rows of the empty owner, which are
// ownerless. FORCE: the policies hold for the owner of the tables too.
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

// exempt says why the role r is exempt from the policies of the table c: "" if it does not.
const exempt = `CASE WHEN NOT c.relrowsecurity THEN '' WHEN r.rolsuper THEN 'is a superuser' WHEN r.rolbypassrls THEN 'has BYPASSRLS'
 WHEN r.oid = c.relowner AND NOT c.relforcerowsecurity THEN 'owns the table, whose policies are not forced'
 WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_policy p CROSS JOIN LATERAL pg_catalog.unnest(p.polroles) AS m(role)
  WHERE p.polrelid = c.oid AND p.polname = 'holdfast_every_owner' AND m.role <> 0 AND pg_catalog.pg_has_role(r.oid, m.role, 'USAGE')) THEN 'has the rows of every owner by a policy'
 ELSE '' END`

// PassesPolicies returns why the current user passes the policies of a table. Parameters: schema, table.
const PassesPolicies = `SELECT COALESCE((SELECT ` + exempt + ` FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, pg_catalog.pg_roles r
WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text AND r.rolname = current_user), '')`

// passingFunctions lists the functions for clients whose owner passes the policies of the records beside them.
const passingFunctions = `SELECT COALESCE(pg_catalog.string_agg(DISTINCT f.name || ', whose owner ' || f.owner || ' ' || f.why, '; '), '') FROM (
 SELECT p.proname::pg_catalog.text AS name, r.rolname::pg_catalog.text AS owner, ` + exempt + ` AS why
 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_roles r ON r.oid = p.proowner
 JOIN pg_catalog.pg_class c ON c.relnamespace = p.pronamespace AND c.relname = pg_catalog.regexp_replace(p.proname::pg_catalog.text, '(claim|finish|lookup)$', 'records')
 WHERE p.prosecdef AND p.proname ~ '(claim|finish|lookup)$') f WHERE f.why <> ''`
