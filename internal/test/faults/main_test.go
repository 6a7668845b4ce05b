// Package faults_test checks Holdfast's promises when connections are cut, replies are lost,
// processes are killed and servers restart. It counts every effect in the tables, through the
// test's own connection. Beside each rule is a naive form that breaks it, so that a fault which
// no longer strikes is noticed.
package faults_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"os"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// unreleased returns the error of a release, but for one that CleanupTimeout ended: that is five seconds in this
// package, which a busy machine may need, and the release continues in the background.
func unreleased(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrLost) {
		return nil
	}
	return err
}

func TestMain(m *testing.M) {
	if stage := os.Getenv(childStage); stage != "" {
		child(stage)
		return
	}
	if text := os.Getenv(childLeases); text != "" {
		leasesChild(text)
		return
	}
	if text := os.Getenv(childStaged); text != "" {
		stagedChild(text)
		return
	}
	if text := os.Getenv(childVoids); text != "" {
		voidsChild(text)
		return
	}
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "12") // these tests wait far more than they work
	}
	_ = mysqldriver.SetLogger(log.New(io.Discard, "", 0)) // the driver logs every connection that breaks
	dbtest.ExactCleanup()
	dbtest.VerifyNoLeaks(m)
}
