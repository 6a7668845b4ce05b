package idempotency_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func TestConformanceSQL(t *testing.T)  { t.Parallel(); conformance.Idempotency(t, conformance.SQL()) }
func TestConformanceSQLX(t *testing.T) { t.Parallel(); conformance.Idempotency(t, conformance.SQLX()) }
func TestConformancePgx(t *testing.T)  { t.Parallel(); conformance.Idempotency(t, conformance.Pgx()) }
