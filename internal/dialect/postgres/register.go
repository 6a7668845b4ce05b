package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var register = dialect.RegisterOf(` ON CONFLICT (owner, name) DO NOTHING`, ``)
