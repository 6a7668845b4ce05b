// Package once runs a key once. It joins the duplicates of one process ([Flights]), repeats a
// transaction until its outcome is definite ([Retry]), and refuses a key inside its own
// function ([Enter]).
//
// It knows no tables. Packages idempotency, businessrow and staged provide the reads and the
// transactions.
package once
