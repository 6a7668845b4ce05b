package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

var outbox = dialect.NewOutbox("", "ON DUPLICATE KEY UPDATE last_seq = GREATEST(last_seq + 1, {now})")
