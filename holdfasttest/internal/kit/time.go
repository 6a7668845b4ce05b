package kit

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
)

// TimePasses ends all leases, and the pauses of staged operations, of db, whose database pool opens.
func TimePasses[Tx any](db *holdfast.DB[Tx], pool *sql.DB) error {
	a := access.Of(db)
	for _, update := range []string{
		`UPDATE ` + a.Table("staged") + ` SET due_at = 0 WHERE accepted = 0`,
		`UPDATE ` + a.Table("locks") + ` SET expires_at = 0 WHERE attempt IS NOT NULL`,
		`UPDATE ` + a.Table("tickets") + ` SET expires_at = 0`,
	} {
		if _, err := pool.ExecContext(context.Background(), update); err != nil {
			return err
		}
	}
	return nil
}
