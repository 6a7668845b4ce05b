package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

// A plain insert of an entry tells whether it won. A driver's count of rows does not. Without the index a read of
// what has expired may lock the entries of other limits.
var limits = dialect.LimitsOf(dialect.CompareColumns, ``, ` ON DUPLICATE KEY UPDATE name = name`,
	` FORCE INDEX (limit_entries_due_at)`, ` FOR UPDATE`, ` FOR UPDATE`, `SIGNED`)
