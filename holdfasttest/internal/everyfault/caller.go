package everyfault

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// caller returns the line of the program that runs: the first frame outside of Holdfast, database/sql, the
// driver and net/http. aside: it is another goroutine of the program's than the call's. Holdfast waits for some
// statements, such as a COMMIT, in another goroutine: then it is the line that has begun that.
func caller() (line string, aside bool) {
	pcs := make([]uintptr, 1024)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var s stack
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		s.add(f.Function, f.File, f.Line)
	}
	if s.line == "" {
		s = begun()
	}
	if s.line == "" {
		return "a goroutine that is not the program's", false
	}
	return s.line, !s.calls
}

// stack is what counts of a goroutine's.
type stack struct {
	line  string // of the program, the innermost
	calls bool   // it is the call's
}

func (s *stack) add(function, file string, line int) {
	if s.line == "" && file != "" && !below(function, file) {
		s.line = fmt.Sprintf("%s:%d", file, line)
	}
	if strings.Contains(function, "/holdfasttest/internal/everyfault.Handler[") && strings.HasSuffix(function, ".answers") {
		s.calls = true
	}
}

var (
	titles  = regexp.MustCompile(`^goroutine (\d+) `)
	parents = regexp.MustCompile(`(?m)^created by .* in goroutine (\d+)$`)
	places  = regexp.MustCompile(`(?m)^(.+)\(.*\)\n\t(.+):(\d+)`)
)

// begun returns the stack of the goroutine that has begun this one, or the one before it, if it is the program's.
func begun() (s stack) {
	all := make([]byte, 1<<20)
	for {
		n := runtime.Stack(all, true)
		if n < len(all) {
			all = all[:n]
			break
		}
		all = make([]byte, 2*len(all))
	}
	goroutines := bytes.Split(all, []byte("\n\n"))
	of := map[string][]byte{}
	for _, g := range goroutines {
		if title := titles.FindSubmatch(g); title != nil {
			of[string(title[1])] = g
		}
	}
	for g := goroutines[0]; ; { // this one is the first
		parent := parents.FindSubmatch(g)
		if parent == nil {
			return s
		}
		if g = of[string(parent[1])]; g == nil {
			return s // it has ended
		}
		for _, place := range places.FindAllSubmatch(g, -1) {
			line, _ := strconv.Atoi(string(place[3]))
			s.add(string(place[1]), string(place[2]), line)
		}
		if s.line != "" {
			return s
		}
	}
}

// below reports whether a function is not the program's.
func below(function, file string) bool {
	for _, library := range []string{"database/sql.", "net/http.", "runtime.", "testing.", "sync.", "context.", "reflect."} {
		if strings.HasPrefix(function, library) {
			return true
		}
	}
	const own = "github.com/holdfast-go/holdfast"
	return strings.Contains(file, "@v") || // a module, such as an ORM
		strings.HasPrefix(function, own) && !strings.HasPrefix(function, own+"/examples/") &&
			!strings.HasPrefix(function, own+"/internal/test/kittest/handlers.") && !strings.HasSuffix(file, "_test.go")
}
