// Package mariadb is the dialect of MariaDB: MySQL's, with what differs.
package mariadb

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// Dialect is MariaDB's.
var Dialect = func() dialect.Dialect {
	d := mysql.Dialect
	d.Name = "mariadb"
	d.Rows = mysql.Rows(exact)
	return d
}()

func exact(typ, collation string) (bool, string) {
	return mysql.Exact(typ, collation, strings.HasSuffix(collation, "_nopad_bin"), "utf8mb4_nopad_bin")
}
