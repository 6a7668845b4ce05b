package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

var outbox = dialect.NewOutbox("", "ON CONFLICT (owner, name, message_key) DO UPDATE SET last_seq = MAX(last_seq + 1, {now})")
