package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var outbox = dialect.NewOutbox(" AS k", "ON CONFLICT (owner, name, message_key) DO UPDATE SET last_seq = GREATEST(k.last_seq + 1, {now})")
