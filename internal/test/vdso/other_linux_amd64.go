package vdso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fakeTimeOfDay is gettimeofday(*timeval, zone), and fakeTime is time(*seconds). The zeros are
// where they find the numbers.
var (
	fakeTimeOfDay = []byte{
		0xb8, 96, 0, 0, 0, // mov eax, SYS_gettimeofday
		0x0f, 0x05, // syscall
		0x48, 0x85, 0xff, // test rdi, rdi
		0x74, 44, // jz end
		0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov rdx, [seconds]
		0x48, 0x01, 0x17, // add [rdi], rdx
		0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov rdx, [microseconds]
		0x48, 0x03, 0x57, 0x08, // add rdx, [rdi+8]
		0x48, 0x81, 0xfa, 0x40, 0x42, 0x0f, 0x00, // cmp rdx, 1e6
		0x7c, 10, // jl store
		0x48, 0x81, 0xea, 0x40, 0x42, 0x0f, 0x00, // sub rdx, 1e6
		0x48, 0xff, 0x07, // inc qword [rdi]
		0x48, 0x89, 0x57, 0x08, // store: mov [rdi+8], rdx
		0xc3, // end: ret
	}
	fakeTime = []byte{
		0xb8, 201, 0, 0, 0, // mov eax, SYS_time
		0x0f, 0x05, // syscall
		0x48, 0x03, 0x05, 0, 0, 0, 0, // add rax, [seconds]
		0x48, 0x85, 0xff, // test rdi, rdi
		0x74, 3, // jz end
		0x48, 0x89, 0x07, // mov [rdi], rax
		0xc3, // end: ret
	}
)

// patience is for how long MoveOther waits for a moment in which no thread reads the clock.
const patience = 10 * time.Second

// MoveOther sets the wall clock of another process to the machine's clock plus by, and stops the
// process meanwhile. It needs the right to trace the process. A program that the process becomes by
// exec has the machine's clock again.
func MoveOther(pid int, by time.Duration) error {
	p := process(fmt.Sprintf("/proc/%d", pid))
	v, err := p.vdso()
	if err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		if err = p.outside(v); err == nil {
			err = p.replace(v, by)
			return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return err
}

// outside returns an error unless each thread has stopped at an instruction outside of the vDSO.
func (p process) outside(v library) error {
	var err error
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = p.stopped(v); !errors.Is(err, errRuns) {
			return err
		}
	}
	return err
}

var errRuns = errors.New("a thread runs")

func (p process) stopped(v library) error {
	threads, _ := os.ReadDir(string(p) + "/task")
	if len(threads) == 0 {
		return errors.New("the process has ended")
	}
	for _, thread := range threads {
		folder := filepath.Join(string(p), "task", thread.Name())
		text, err := os.ReadFile(folder + "/syscall") //nolint:gosec // in /proc
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return err
		}
		stat, _ := os.ReadFile(folder + "/stat") //nolint:gosec // in /proc
		if _, state, _ := bytes.Cut(stat, []byte(") ")); len(state) > 0 && state[0] != 'T' && state[0] != 't' {
			return errRuns
		}
		fields := strings.Fields(string(text)) // the last one is the address of the next instruction
		var at int64
		if _, err := fmt.Sscanf(fields[len(fields)-1], "0x%x", &at); err != nil {
			return errRuns
		}
		if at >= v.base && at < v.base+int64(len(v.image)) {
			return errors.New("a thread reads the clock")
		}
	}
	return nil
}

// replace writes the functions, unless they are there, and the numbers. The process is stopped.
func (p process) replace(v library, by time.Duration) error {
	at, ofDay, seconds := v.place("__vdso_clock_gettime"), v.place("__vdso_gettimeofday"), v.place("__vdso_time")
	code := append(bytes.Clone(fakeClock), offset(by)...)
	if bytes.HasPrefix(v.image[at:], fakeClock) {
		return p.poke(v.base+at, code)
	}
	numbers := len(fakeClock)
	link := func(f []byte, instruction, number int) {
		next := len(code) + instruction + 7
		binary.LittleEndian.PutUint32(f[instruction+3:], uint32(numbers+8*number-next)) //nolint:gosec // two's complement
	}
	day, sec := bytes.Clone(fakeTimeOfDay), bytes.Clone(fakeTime)
	link(day, 12, 0)
	link(day, 22, 2)
	toDay := at + int64(len(code))
	code = append(code, day...)
	link(sec, 7, 0)
	toSec := at + int64(len(code))
	code = append(code, sec...)
	if at == 0 || ofDay == 0 || seconds == 0 || uint64(len(code)) > v.at["__vdso_clock_gettime"].Size {
		return fmt.Errorf("no room in the vDSO: %+v", v.at)
	}
	return errors.Join(
		p.poke(v.base+at, code),
		p.poke(v.base+ofDay, jump(ofDay, toDay)),
		p.poke(v.base+seconds, jump(seconds, toSec)),
	)
}
