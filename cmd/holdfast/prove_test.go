package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// TestProve checks that each engine passes, in text and in JSON, and that the report is kept.
func TestProve(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := existingDSN(t, e)
		file := filepath.Join(t.TempDir(), "report.json")
		code, out, said := command(t, "prove", "-duration=10m", "-json", "-report", file, "-dsn", url)
		var report prove.Report
		if err := json.Unmarshal([]byte(out), &report); code != exitOK || said != "" || err != nil || strings.Count(out, "\n") != 1 {
			t.Fatalf("status %d, %s, %s", code, out, said)
		}
		if report.Verdict != prove.Pass || report.Engine != string(e) || len(report.Promises) != 8 {
			t.Errorf("got %s", report.Text())
		}
		if is, err := os.ReadFile(file); err != nil || string(is) != out {
			t.Errorf("kept %s, %v", is, err)
		}
		if code, out, said := command(t, "prove", "-report", file, "-dsn", url); code != exitUsage || out != "" || !strings.Contains(said, "--report") {
			t.Errorf("over another report: status %d, %s, %s", code, out, said)
		}
	})
}

// TestProveFails checks that prove finds a server that accepts FOR UPDATE and locks nothing,
// and that a server which Holdfast refuses also gives a report.
func TestProveFails(t *testing.T) {
	t.Parallel()
	address := regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`)
	locks := regexp.MustCompile(`FOR (NO KEY )?(UPDATE|SHARE)( OF \w+)?|LOCK IN SHARE MODE|SKIP LOCKED|NOWAIT`)
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.MySQL {
			return // how each of them fails is package prove's test
		}
		url := existingDSN(t, e)
		at := address.FindStringSubmatchIndex(url)
		proxy, err := faultproxy.New(url[at[2]:at[3]])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		proxy.Edit(func(request []byte) {
			for _, m := range locks.FindAllIndex(request, -1) {
				copy(request[m[0]:m[1]], strings.Repeat(" ", m[1]-m[0]))
			}
		})
		file := filepath.Join(t.TempDir(), "report.txt")
		code, out, said := command(t, "prove", "-report", file, "-dsn", url[:at[2]]+proxy.Addr()+url[at[3]:])
		if code != exitBroken || !strings.HasPrefix(out, "FAIL: ") || !strings.Contains(out, "\nG2  fail ") || !strings.Contains(out, "\nrow lock: fail: ") ||
			!strings.Contains(said, "promises are broken") {
			t.Errorf("status %d, %s, %s", code, out, said)
		}
		if is, err := os.ReadFile(file); err != nil || string(is) != out {
			t.Errorf("kept %s, %v", is, err)
		}
		code, out, said = command(t, "prove", "-dsn", dbtest.With(url, "autocommit=0"))
		if code != exitBroken || !strings.Contains(out, "refused: ") || !strings.Contains(out, "autocommit") || said == "" {
			t.Errorf("refused: status %d, %s, %s", code, out, said)
		}
	})
}

// TestProveKeepsNothing checks that a failed run keeps no report.
func TestProveKeepsNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report")
	if code, out, _ := command(t, "prove", "-report", file, "-dsn", "postgres://u@127.0.0.1:1/db"); code != exitFailed || out != "" {
		t.Errorf("status %d, %s", code, out)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
}

// TestInterruptedProve checks that an interrupted process drops its tables.
func TestInterruptedProve(t *testing.T) {
	t.Parallel()
	url := existingDSN(t, dbtest.SQLite)
	pool := dbtest.OpenSQL(t, url)
	tables := func() (n int) {
		if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "prove", "-duration=10m")
	cmd.Env = append(os.Environ(), asCommand+"=1", dsnVariable+"="+url)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for tables() == 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailed || out.Len() > 0 || said.Len() == 0 {
		t.Errorf("%v, %s, %s", cmd.ProcessState, &out, &said)
	}
	if n := tables(); n != 0 {
		t.Errorf("%d tables are left", n)
	}
}
