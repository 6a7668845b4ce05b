//go:build unix

package campaign

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// An answer is the result of an operation on the tables. The auditor compares it with them.
type answer struct {
	Job     job
	Key     string  `json:",omitempty"`
	ID      string  `json:",omitempty"` // of the caller
	Outcome verdict // the result that the caller got
	Value   string  `json:",omitempty"` // the id of the operation that executed, if the caller got it
	Err     string  `json:",omitempty"`
}

// A verdict is the known outcome of an operation.
type verdict string

const (
	executed verdict = "executed"
	replayed verdict = "replayed"
	refused  verdict = "refused" // certainly nothing was done
	unknown  verdict = "unknown"
	voided   verdict = "voided"   // it was cancelled, and is never done
	late     verdict = "late"     // it is too late to cancel it
	rejected verdict = "rejected" // by the bank

	// finished counts an operation that returned no error. It says nothing about the tables.
	finished verdict = "finished"
)

// A book contains what a process records in one epoch: its history and its answers.
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
		panic(err) // a record with gaps proves nothing
	}
}

// books are the books of a process. They tell which epochs the process has finished, so that
// these can be judged during the campaign.
type books struct {
	o    *order
	mu   sync.Mutex
	open map[int]*book
	done int // all epochs below are finished
}

func (o *order) epoch() int {
	return min(int((history.Now()-o.Begin)/o.Epoch), o.Epochs-1)
}

// begin opens the book of the current epoch for one operation.
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

// end ends that operation.
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

// path returns the place of a process's records of an epoch.
func (o *order) path(what string, epoch int) string {
	return filepath.Join(o.Dir, fmt.Sprintf("%s-%05d-%d-%d.jsonl", what, epoch, o.Client, o.Life))
}
