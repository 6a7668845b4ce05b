//go:build linux

package cluster_test

import (
	"io"
	"log"
	"os"
	"slices"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// run enables these tests; require turns a missing server into a failure.
const (
	run     = "HOLDFAST_TEST_CLUSTER"
	require = "HOLDFAST_TEST_REQUIRE_CLUSTER"
)

func TestMain(m *testing.M) {
	_ = mysqldriver.SetLogger(log.New(io.Discard, "", 0)) // the driver logs every connection that breaks
	if text := os.Getenv(childConfig); text != "" {
		child(text)
		return
	}
	dbtest.VerifyNoLeaks(m)
}

// needs skips a test if clusters are not enabled or a program is missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv(run) == "" {
		t.Skip("clusters of servers are started by make cluster")
	}
	missing := slices.DeleteFunc(programs, func(p string) bool { return dbtest.Find(p) != "" })
	switch {
	case len(missing) == 0:
	case os.Getenv(require) != "":
		t.Fatalf("%s is set, and not on this machine: %v", require, missing)
	default:
		t.Skipf("not on this machine: %v", missing)
	}
}
