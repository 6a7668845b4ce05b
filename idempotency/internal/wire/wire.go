// Package wire has what package idemhttp and its clients must agree on.
package wire

// NotFinal has the statuses below 500 that do not settle a request: it was not processed, or 409, 412, 423 and 424,
// which are about the moment: the same request may succeed later. By default such a response is not stored.
var NotFinal = []int{400, 401, 405, 407, 408, 409, 411, 412, 413, 414, 415, 417, 421, 423, 424, 425, 426, 428, 429, 431}
