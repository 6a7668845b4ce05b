// Package wire has what package idemhttp and its clients must agree on.
package wire

// NotProcessed has the statuses below 500 of requests that were not processed. By default such a response is
// not stored.
var NotProcessed = []int{400, 401, 405, 407, 408, 411, 413, 414, 415, 417, 421, 425, 426, 428, 429, 431}
