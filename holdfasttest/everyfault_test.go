package holdfasttest_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
	"github.com/holdfast-go/holdfast/internal/test/kittest/handlers"
)

func TestEveryFault(t *testing.T) {
	dbtest.NotUnderRace(t, "TestRefundSurvivesEveryFault has the same memory, in less time")
	t.Parallel()
	kittest.EveryFault[*sql.Tx, sql.Result]{
		Program: kittest.SQL(handlers.SQLite),
		Run: func(tb holdfasttest.TB, h kittest.Handler[*sql.Tx], opts ...holdfast.Options) int {
			return holdfasttest.EveryFault(tb, holdfasttest.Handler(h), opts...)
		},
	}.Test(t, nil)
}
