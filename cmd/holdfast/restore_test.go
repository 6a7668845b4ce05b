package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestAfterRestore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := existingDSN(t, e)
		run := func(args ...string) (int, string, string) {
			return command(t, append([]string{"after-restore", "-dsn", url}, args...)...)
		}
		if code, _, err := run("--yes", "--by=ana", "--reason=disk"); code != 1 || !strings.Contains(err, "migrate up") {
			t.Errorf("without tables: status %d, %q", code, err)
		}
		for _, prefix := range []string{"holdfast_", "x_"} {
			if code, _, err := command(t, "migrate", "up", "-dsn", url, "-prefix", prefix); code != 0 {
				t.Fatal(err)
			}
		}
		for want, args := range map[string][]string{
			"--yes": {"--by=ana", "--reason=disk"}, "--by: ": {"--yes", "--reason=disk"}, "--reason: ": {"--yes", "--by=ana"},
			"--margin: ": {"--yes", "--by=ana", "--reason=disk", "--margin=-1s"}, "flags only": {"--yes", "now"},
		} {
			if code, out, err := run(args...); code != exitUsage || out != "" || !strings.Contains(err, want) {
				t.Errorf("%v: status %d, %q, %q", args, code, out, err)
			}
		}
		if code, out, err := run("--yes", "--by", "ana", "-reason", "disk", "-prefix", "x_"); code != 0 || err != "" || !strings.Contains(out, "0 operations parked") {
			t.Errorf("status %d, %q, %q", code, out, err)
		}
		code, out, err := run("--yes", "--by", "ana", "-reason", "disk", "-json", "-margin", "1h")
		var got struct{ Floor int64 }
		if e := json.Unmarshal([]byte(out), &got); code != 0 || err != "" || e != nil || got.Floor < time.Now().Add(59*time.Minute).UnixMicro() {
			t.Errorf("status %d, %q, %q", code, out, err)
		}
	})
}
