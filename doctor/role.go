package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Role is what the account of the pool is for: see [github.com/holdfast-go/holdfast/migrations.PrintGrants].
type Role string

// checkRole refuses a role that is none.
func checkRole(role Role) error {
	if role != "" && (role == Role(dialect.RoleMigrator) || !slices.Contains(dialect.Roles, dialect.Role(role))) {
		return &holdfast.InputError{Field: "Options.Role", Problem: fmt.Sprintf("%q is not app, reaper, operator or reader", role)}
	}
	return nil
}

// privileges compares what the account may do with what a role needs. Without a role, it says what the
// account lacks for the work of a program.
func (p *patient) privileges(ctx context.Context, role Role) error {
	if p.dialect.Privileges.Held == nil {
		if role != "" {
			p.find("privileges", Notice, "nothing is granted on this engine: "+p.dialect.Privileges.None, "restrict access there")
		}
		return nil
	}
	held, names, err := p.dialect.HeldOn(ctx, p.pool, p.table)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.find("privileges", Notice, "what this account may do could not be read: "+err.Error(), "compare SHOW GRANTS with holdfast migrate grants")
		return nil
	}
	advice := "grant what holdfast migrate grants --role "
	if role == "" {
		p.anyRole(held, names, advice)
		return nil
	}
	if lacks := p.dialect.Missing(dialect.Role(role), held, names); len(lacks) > 0 {
		p.find("privileges", Broken, "the account lacks, for the role "+string(role)+": "+strings.Join(lacks, "; "), advice+string(role)+" prints")
	}
	if more := p.dialect.Excess(dialect.Role(role), held, names); len(more) > 0 {
		p.find("excess privileges", Warning, "the account may do more than the role "+string(role)+" needs: "+strings.Join(more, "; "),
			"revoke it, or connect as an account that has only what holdfast migrate grants --role "+string(role)+" prints")
	}
	return nil
}

// anyRole looks at an account whose role is not given.
func (p *patient) anyRole(held dialect.Held, names map[string]string, advice string) {
	lacks := p.dialect.Missing(dialect.RoleApp, held, names)
	if len(lacks) == 0 {
		return
	}
	var fits []string
	for _, r := range []Role{Role(dialect.RoleReaper), Role(dialect.RoleOperator), Role(dialect.RoleReader)} {
		if len(p.dialect.Missing(dialect.Role(r), held, names)) == 0 {
			fits = append(fits, string(r))
		}
	}
	problem := "the account cannot do what a program does: it lacks " + strings.Join(lacks, "; ")
	if len(fits) == 0 {
		p.find("privileges", Warning, problem, advice+"app prints")
		return
	}
	p.find("privileges", Warning, problem+"; it has the grants of "+strings.Join(fits, " and "),
		advice+"app prints, or say with --role (Options.Role) what the account is for")
}
