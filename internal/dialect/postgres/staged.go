package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("GREATEST", "ON CONFLICT (key_hash) DO NOTHING", " FOR UPDATE")
