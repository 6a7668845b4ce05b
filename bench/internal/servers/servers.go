// Package servers starts those servers that are no SQL database.
package servers

// Set are the servers that are there.
type Set struct{}
