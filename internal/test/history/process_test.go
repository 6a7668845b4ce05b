package history_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
)

const childFile = "HISTORY_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		child(path)
	}
	dbtest.VerifyNoLeaks(m)
}

// child holds a lease, has recorded an attempt that never returns, and waits until it is killed.
func child(path string) {
	rec, err := history.Create(path)
	if err != nil {
		panic(err)
	}
	c := rec.Client(1)
	c.Grant("held").Won(1, time.Now().Add(time.Hour))
	c.Grant("attempted")
	fmt.Println("ready")
	select {}
}

// TestKilledProcess checks that the file of a killed process contains its completed operations
// and the one in progress, on the clock of the surviving processes.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "child.jsonl")
	rec := history.New()
	rec.Client(1).Grant("clock").Failed()

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	cut(t, path)

	dead, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	rec.Client(1).Grant("clock").Failed()
	mine := rec.History()
	if len(dead) != 2 || dead[1].Outcome != "" || dead[0].Call < mine[0].Return || dead[0].Return > mine[1].Call {
		t.Fatalf("killed process: %v, between %v", dead, mine)
	}

	rec.Client(1).Grant("attempted").Won(1, time.Time{})
	history.Check(t, history.Merge(rec.History(), dead))

	rec.Client(1).Grant("held").Won(2, time.Time{})
	if got := rulesOf(history.Judge(history.Merge(rec.History(), dead))); !slices.Equal(got, []history.Rule{history.Exclusion}) {
		t.Errorf("granted within the trust window of the dead: %q", got)
	}
}

// cut appends the beginning of a line, as a process does that is killed while it writes.
func cut(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(`{"id":2,"cli`)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
