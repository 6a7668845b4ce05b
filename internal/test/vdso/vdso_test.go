//go:build unix

package vdso_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/vdso"
)

// variable makes the program a child: moved moves its own clock, read prints its clock as it begins and for
// each line that it is sent.
const variable = "HOLDFAST_VDSO_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(variable) {
	case "moved":
		moved()
	case "read":
		fmt.Println(time.Now().UnixNano())
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println(time.Now().UnixNano())
		}
	default:
		dbtest.VerifyNoLeaks(m)
	}
}

// slack is what the wall clock and the monotonic one may drift apart in a test.
const slack = 10 * time.Millisecond

var moves = []time.Duration{time.Hour, -90 * time.Second, -time.Millisecond, 1500 * time.Millisecond, 0}

// TestMove checks that a process's wall clock moves while its monotonic clock does not.
func TestMove(t *testing.T) {
	t.Parallel()
	out, err := child(t, "moved").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func moved() {
	begin := time.Now()
	for _, by := range moves {
		before := time.Now()
		machine := begin.Round(0).Add(time.Since(begin))
		if err := vdso.Move(by); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		now := time.Now()
		took := now.Sub(before)
		if off := now.Round(0).Sub(machine) - by; off < -slack || off > took+slack {
			fmt.Printf("moved by %v it is off by %v after %v\n", by, off, took)
		}
		if took < 0 || took > time.Hour/2 {
			fmt.Printf("moved by %v the stopwatch says %v\n", by, took)
		}
	}
}

// TestMoveOther checks that the wall clock of another process moves, again and again.
func TestMoveOther(t *testing.T) {
	t.Parallel()
	cmd := child(t, "read")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	if _, err := fmt.Fscan(out, &at); err != nil { // a process that has only been started has no vDSO yet
		t.Fatal(err)
	}
	for _, by := range moves {
		if err := vdso.MoveOther(cmd.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &at); err != nil {
			t.Fatal(err)
		}
		if off := time.Unix(0, at).Sub(before) - by; off < -slack || off > time.Since(before)+slack {
			t.Errorf("moved by %v it is off by %v", by, off)
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func child(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	if !vdso.Possible {
		t.Skip("a clock cannot be moved on this architecture")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+what)
	return cmd
}
