package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("GREATEST", "ON DUPLICATE KEY UPDATE version = version", " FOR UPDATE", "LOCATE($8, op_key) > 0", dialect.CompareColumns)
