// Package similar finds similar operations in tables that exist: operations that were executed
// under different keys, and rows of the program's own tables, which are alike and close in time. It
// changes nothing. To refuse such operations, see idempotency.Similar; begin with its ReportOnly.
//
//	found, err := similar.Records(ctx, store, similar.Filter{Name: "refund", Window: time.Minute})
//
// The command holdfast ops similar does the same.
package similar
