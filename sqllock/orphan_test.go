package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// TestOrphan checks that a grant whose session was lost before its answer came is no lease: another
// process may have taken the lock over.
func TestOrphan(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, _, _ := openLocker(t, engine, Options{TTL: time.Hour})
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		s, err := l.settings(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		name, err := lockname.Of(lockname.Lease, "", "key")
		if err != nil {
			t.Fatal(err)
		}
		lost := keeper.NewProcess()
		lost[len(lost)-1] |= 1 // of a session
		if !lost.InSession() {
			t.Fatal("it should be the id of a session")
		}
		lease, err := l.leases.begin(keeper.Attempt{Name: name, ID: lost.NewAttemptID(), TTL: time.Hour}, s, 1, time.Now(), true)
		if lease != nil || err != nil {
			t.Errorf("got %v, %v", lease, err)
		}
	})
}
