package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("GREATEST", "ON CONFLICT (key_hash) DO NOTHING", " FOR UPDATE", "position($7 in op_key) > 0")
