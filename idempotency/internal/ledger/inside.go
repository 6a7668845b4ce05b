package ledger

var ofStaged func(run, store any) any

// RegisterStaged is for package staged, which this package cannot import. of returns what package operators
// asks of the operations of an *idempotency.Store; run is a *staged.Run of the same transactions.
func RegisterStaged(of func(run, store any) any) struct{} {
	ofStaged = of
	return struct{}{}
}

// OfStaged is for package operators.
func OfStaged(run, store any) any { return ofStaged(run, store) }
