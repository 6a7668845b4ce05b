package idemhttp_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }
