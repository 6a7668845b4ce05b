// Package polyglot tests Holdfast beside clients in other languages, which know its tables and not
// this module: make polyglot installs the languages and their drivers from Debian's packages, and
// runs the tests.
//
// holder.py and holder.php each hold leases. They read commands from their standard input, one a
// line, and answer each with a line:
//
//	acquire KEY TTL     token N, or held                 (the TTL in microseconds)
//	write ORDER TOKEN   ok, or refused and the error's code
//	open ORDER TOKEN    the same without a commit
//	commit              ok
package polyglot
