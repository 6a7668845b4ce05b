// Package vdso moves the wall clock of one process, for tests. A program reads the clock from the vDSO,
// which the kernel maps into its memory: [Move] and [MoveOther] put other functions into the process's
// own copy. So the clock moves of programs that use no library for it, as Go's, and of those that do
// not bear libfaketime, as MySQL.
//
// Monotonic clocks stay. So do the kernel's timers: a wait until a time of the moved clock ends when
// the machine's clock has reached that time.
package vdso
