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

func TestLostSQL(t *testing.T)  { t.Parallel(); conformance.Lost(t, conformance.SQL()) }
func TestLostSQLX(t *testing.T) { t.Parallel(); conformance.Lost(t, conformance.SQLX()) }
func TestLostPgx(t *testing.T)  { t.Parallel(); conformance.Lost(t, conformance.Pgx()) }

func TestRowsSQL(t *testing.T)  { t.Parallel(); conformance.Rows(t, conformance.SQL()) }
func TestRowsSQLX(t *testing.T) { t.Parallel(); conformance.Rows(t, conformance.SQLX()) }
func TestRowsPgx(t *testing.T)  { t.Parallel(); conformance.Rows(t, conformance.Pgx()) }

func TestDoTxSQL(t *testing.T)  { t.Parallel(); conformance.DoTx(t, conformance.SQL()) }
func TestDoTxSQLX(t *testing.T) { t.Parallel(); conformance.DoTx(t, conformance.SQLX()) }
func TestDoTxPgx(t *testing.T)  { t.Parallel(); conformance.DoTx(t, conformance.Pgx()) }

func TestInputSQL(t *testing.T)  { t.Parallel(); conformance.Input(t, conformance.SQL()) }
func TestInputSQLX(t *testing.T) { t.Parallel(); conformance.Input(t, conformance.SQLX()) }
func TestInputPgx(t *testing.T)  { t.Parallel(); conformance.Input(t, conformance.Pgx()) }
