package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Bounds of a Message, in bytes.
const (
	maxKey   = 255
	maxID    = 255
	maxTopic = 255
	maxBody  = 1 << 20 // the headers count
)

// Message is a message to publish.
type Message struct {
	// Owner is the id of a tenant, merchant or account, as Op.Owner: at most 128 bytes. Required, unless the
	// DB is SingleOwner. Messages of different owners are never ordered among themselves.
	Owner string
	// Key orders messages: those of one key are published in order. Use the id of what the message
	// is about, such as an order. 1 to 255 bytes, compared byte for byte. Required.
	Key string
	// ID is what consumers recognise duplicates by, the same at each delivery. At most 255 bytes of
	// UTF-8. Default: a new UUID.
	ID string
	// Topic and Headers are for the publisher, both UTF-8. Topic has at most 255 bytes.
	Topic   string
	Headers map[string]string
	// Body is the content, at most 1 MiB.
	Body []byte
}

// Delivery is a message that a relay publishes.
type Delivery struct {
	Message

	// Seq rises within a key, not without gaps.
	Seq int64
	// Attempt counts the times that a relay began with this message, from 1. A message that was
	// published right behind another one counts as 1 again if the relay dies.
	Attempt int
	// Written is when it was written, by the database's clock.
	Written time.Time
}

// DeadLetter is a message that is not published any more. It holds up the later messages of its key
// until it is requeued or discarded.
type DeadLetter struct {
	Delivery

	// Reason is the text of the last error, shortened.
	Reason string
	// Died is since when, by the database's clock.
	Died time.Time
}

// prepared is a checked message.
type prepared struct {
	Message

	headers any
}

func prepare(owners core.Owners, field string, m Message) (p prepared, err error) {
	if m.ID == "" {
		m.ID = uuid.NewString()
	}
	if m.Body == nil {
		m.Body = []byte{}
	}
	p.Message = m
	size := len(m.Body)
	if len(m.Headers) > 0 {
		text, err := once.Marshal(m.Headers)
		if err != nil {
			return p, once.Invalid(field+".Headers", err.Error())
		}
		p.headers, size = text, size+len(text)
	}
	text := func(name, s string, most int) error {
		if len(s) > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return once.Invalid(field+"."+name, fmt.Sprintf("%.40q is not UTF-8 without NUL of at most %d bytes", s, most))
		}
		return nil
	}
	switch {
	case m.Key == "" || len(m.Key) > maxKey:
		return p, once.Invalid(field+".Key", fmt.Sprintf("has %d bytes, 1 to %d are allowed", len(m.Key), maxKey))
	case size > maxBody:
		return p, once.Invalid(field+".Body", fmt.Sprintf("has %d bytes with the headers, at most %d are allowed: store it elsewhere and send where it is", size, maxBody))
	}
	return p, errors.Join(owners.Check(field+".Owner", m.Owner), text("ID", m.ID, maxID), text("Topic", m.Topic, maxTopic))
}

// row is a row of the table.
type row struct {
	Delivery

	state  int
	reason string
	due    int64
}

const (
	waiting = 1
	dead    = 3
)

func scan(r core.Row) (m row, err error) {
	var key, headers []byte
	var written int64
	if err := r.Scan(&m.Owner, &key, &m.Seq, &m.state, &m.ID, &m.Topic, &headers, &m.Body, &m.Attempt, &m.reason, &m.due, &written); err != nil {
		return m, err
	}
	m.Key, m.Written = string(key), time.UnixMicro(written)
	if len(headers) > 0 {
		err = json.Unmarshal(headers, &m.Headers)
	}
	return m, err
}
