package holdfasttest

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
)

// Handler is a handler of the program for [EveryFault].
type Handler struct {
	// Setup makes the program's tables and rows on a new database, and resets what stands for the
	// outside world. It runs before each fault.
	Setup func(ctx context.Context, kit *Kit[*sql.Tx]) error
	// Call builds the program on the kit, as a process does when it starts, and makes one request with
	// this key. A nil error is the answer "done" to the client; after an error of an uncertain outcome the
	// client asks again. The program uses the kit's DB, Pool and Transport, and no other connection.
	Call func(ctx context.Context, kit *Kit[*sql.Tx], key string) error
	// Invariant returns what is wrong once the request has its answer: in the database, and outside.
	Invariant func(ctx context.Context, kit *Kit[*sql.Tx]) error
	// OtherKeyRefused means that the same request under another key must fail, such as a second refund
	// of an order.
	OtherKeyRefused bool
}

// EveryFault runs a handler once for each point at which it can be hurt, and each fault there. It ends the
// test at the first point after which the invariant does not hold, and names the line of the program that
// ran it. It returns the number of points.
//
// A point is a statement, a COMMIT or a call through the kit's Transport, of the program or of Holdfast. The
// faults: the process is killed before it, or after it; it is done, and its answer is lost; a timeout, in
// the database that of a lock; a deadlock; the connection is reset before it. At a COMMIT also: its answer
// is lost, and Holdfast cannot ask what became of it, so that the call gets ErrUnknown. Outside of
// transactions also: the process stands still until its leases have ended, while another one serves the same
// request, and with OtherKeyRefused that of another key.
//
// After the fault the client asks again with the same key, a new process if the old one is dead, until the
// answer is definite. It must be the answer of a run without a fault. Then comes the other key, if it must
// be refused, and then Invariant. Between two requests all leases and pauses of Holdfast end, and also while
// a call does not return for long.
//
// The databases are SQLite's, a new one for each fault, with opts. Packages mysqltest and pgxtest have an
// EveryFault on a server.
func EveryFault(tb TB, h Handler, opts ...holdfast.Options) (points int) {
	tb.Helper()
	return everyfault.Run(tb, prepareFiles(tb, opts), everyfault.Handler[*Kit[*sql.Tx]](h))
}
