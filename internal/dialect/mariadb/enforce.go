package mariadb

import (
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// enforce returns MySQL's SQL, except that MariaDB replaces a trigger in one statement.
func enforce(e dialect.Enforce) dialect.Enforce {
	e.Replaces = true
	e.Install = func(t dialect.Trigger) []string {
		return []string{`CREATE OR REPLACE TRIGGER ` + mysql.On(t)}
	}
	return e
}
