//go:build !unix

package process

// Pause returns false: nothing stops a process here.
func (*Process) Pause() bool { return false }

// Resume does nothing.
func (*Process) Resume() {}
