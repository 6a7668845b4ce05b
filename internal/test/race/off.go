//go:build !race

// Package race reports whether the race detector is enabled.
package race

// Enabled reports whether the binary was built with -race.
const Enabled = false
