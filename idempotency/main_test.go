package idempotency_test

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(work(job))
	}
	dbtest.VerifyNoLeaks(m)
}
