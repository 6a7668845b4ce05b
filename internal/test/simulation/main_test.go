package simulation

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	dbtest.VerifyNoLeaks(m)
}
