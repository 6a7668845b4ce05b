package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

var register = dialect.RegisterOf(` ON DUPLICATE KEY UPDATE name = name`, ` LOCK IN SHARE MODE`)
