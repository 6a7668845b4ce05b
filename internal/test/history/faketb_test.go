package history_test

import (
	"fmt"
	"testing"
)

// fakeTB keeps the messages of a test.
type fakeTB struct {
	testing.TB

	name, said string
}

func (f *fakeTB) Helper()                      {}
func (f *fakeTB) Name() string                 { return f.name }
func (f *fakeTB) Logf(s string, args ...any)   { f.said += fmt.Sprintf(s, args...) + "\n" }
func (f *fakeTB) Errorf(s string, args ...any) { f.said += fmt.Sprintf(s, args...) + "\n" }
