package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

// FOR NO KEY UPDATE leaves inserts alone that refer to the row of a limit.
var limits = dialect.LimitsOf(dialect.CompareRows, ` ON CONFLICT (owner, name, id) DO NOTHING`, ` ON CONFLICT (owner, name, limit_key) DO NOTHING`,
	``, ` FOR NO KEY UPDATE`, ` FOR NO KEY UPDATE`, `bigint`)
