package staged

import "github.com/holdfast-go/holdfast/idempotency"

// ReferenceFind returns the statement that finds a provider's reference.
func ReferenceFind[Tx any](s *idempotency.Store[Tx]) string {
	return newTransitions(s).SQL.ReferenceFind.Text
}
