package main

import (
	"sync"
	"time"
)

// event is one request for a refund and its outcome, for the page.
type event struct {
	Seq     int    `json:"seq"`
	Time    int64  `json:"time"` // ms since 1970
	Order   string `json:"order"`
	Refund  string `json:"refund"`
	Amount  string `json:"amount"`
	Protect string `json:"protect"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
	Millis  int64  `json:"millis"`
}

// keptEvents bounds the memory of a long run.
const keptEvents = 100

// eventLog keeps the last requests of this process for the page. The tables, and not the log, are
// the record of refunds.
type eventLog struct {
	mu     sync.Mutex
	seq    int
	events []event
}

func newEventLog() *eventLog { return &eventLog{events: []event{}} }

func (l *eventLog) add(e event, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Seq, e.Time, e.Millis = l.seq, time.Now().UnixMilli(), time.Since(began).Milliseconds()
	l.events = append(l.events, e)
	if extra := len(l.events) - keptEvents; extra > 0 {
		l.events = append([]event{}, l.events[extra:]...)
	}
}

// recent returns a copy, newest first.
func (l *eventLog) recent() []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]event, len(l.events))
	for i, e := range l.events {
		out[len(out)-1-i] = e
	}
	return out
}
