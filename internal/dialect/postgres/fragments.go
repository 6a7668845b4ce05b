package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var fragments = dialect.Fragments{
	Greatest:       "GREATEST",
	Contains:       "position({p} in {c}) > 0",
	Integer:        "bigint",
	User:           "session_user::text",
	Ignore:         "ON CONFLICT ({key}) DO NOTHING",
	Update:         "ON CONFLICT ({key}) DO UPDATE SET",
	As:             " AS k",
	Old:            "k.",
	ForUpdate:      " FOR UPDATE",
	ForNoKeyUpdate: " FOR NO KEY UPDATE",
}
