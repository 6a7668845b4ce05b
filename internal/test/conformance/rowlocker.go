package conformance

import "github.com/holdfast-go/holdfast/sqllock/rowlock"

// RowLocker opens a rowlock.Locker on the environment's handle. Lockers share no memory, as in
// two processes.
func (e *Env[Tx]) RowLocker() *rowlock.Locker[Tx] {
	e.Helper()
	l, err := rowlock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	return l
}
