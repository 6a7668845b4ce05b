// Package likely finds what is likely a duplicate in tables that exist: operations that were executed
// under different keys, and rows of the program's own tables, which are alike and close in time. It
// changes nothing. To refuse such operations, see idempotency.Similar; begin with its ReportOnly.
//
//	found, err := likely.Records(ctx, store, likely.Filter{Name: "refund", Window: time.Minute})
//
// The command holdfast ops similar does the same.
package likely
