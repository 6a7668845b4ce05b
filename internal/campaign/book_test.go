//go:build unix

package campaign

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-go/holdfast/internal/history"
)

// An answer is what an operation on the tables said: the auditor holds it
// against them.
type answer struct {
	Job     job
	Key     string
	ID      string  // of the one who asked
	Outcome verdict // what it was told
	Value   string  `json:",omitempty"` // by whom it was done, if it was told
	Err     string  `json:",omitempty"`
}

// A verdict is what is known of an operation.
type verdict string

const (
	executed verdict = "executed"
	replayed verdict = "replayed"
	refused  verdict = "refused" // nothing was done, surely
	unknown  verdict = "unknown"
)

// A book is what a process records in one epoch: its history, and its answers.
type book struct {
	epoch   int
	users   int
	rec     *history.Recorder
	mu      sync.Mutex
	answers *os.File
}

func (b *book) told(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.answers.Write(append(line, '\n')); err != nil {
		panic(err) // a record with holes proves nothing
	}
}

// books are those of a process. It says which epochs it has done with, so that
// they can be judged while the campaign goes on.
type books struct {
	o    *order
	mu   sync.Mutex
	open map[int]*book
	done int // those below are
}

func (o *order) epoch() int {
	return min(int((history.Now()-o.Begin)/o.Epoch), o.Epochs-1)
}

// begin opens the book of the present epoch for one operation.
func (b *books) begin() *book {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.o.epoch()
	k := b.open[now]
	if k == nil {
		k = &book{epoch: now}
		var err error
		if k.rec, err = history.Create(b.o.path("history", now)); err == nil {
			k.answers, err = os.OpenFile(b.o.path("answers", now), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		}
		if err != nil {
			panic(err)
		}
		b.open[now] = k
	}
	k.users++
	return k
}

// end is the end of that operation.
func (b *books) end(k *book) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.users--
	for now := b.o.epoch(); b.done < now; b.done++ {
		if old := b.open[b.done]; old != nil {
			if old.users > 0 {
				return
			}
			_ = old.rec.Close()
			_ = old.answers.Close()
			delete(b.open, b.done)
		}
		fmt.Println("done", b.done)
	}
}

// path is where one process's records of an epoch are.
func (o *order) path(what string, epoch int) string {
	return filepath.Join(o.Dir, fmt.Sprintf("%s-%05d-%d-%d.jsonl", what, epoch, o.Client, o.Life))
}
