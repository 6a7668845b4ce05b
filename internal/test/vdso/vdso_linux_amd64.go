package vdso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Possible reports whether this platform can move the clock of a process.
const Possible = true

// fakeClock is clock_gettime(clock, *timespec) as a system call. It adds seconds and nanoseconds
// to CLOCK_REALTIME only. The two numbers follow the code.
var fakeClock = []byte{
	0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 44, // jnz end
	0x48, 0x8b, 0x15, 46, 0, 0, 0, // mov rdx, [seconds]
	0x48, 0x01, 0x16, // add [rsi], rdx
	0x48, 0x8b, 0x15, 44, 0, 0, 0, // mov rdx, [nanoseconds]
	0x48, 0x03, 0x56, 0x08, // add rdx, [rsi+8]
	0x48, 0x81, 0xfa, 0x00, 0xca, 0x9a, 0x3b, // cmp rdx, 1e9
	0x7c, 10, // jl store
	0x48, 0x81, 0xea, 0x00, 0xca, 0x9a, 0x3b, // sub rdx, 1e9
	0x48, 0xff, 0x06, // inc qword [rsi]
	0x48, 0x89, 0x56, 0x08, // store: mov [rsi+8], rdx
	0xc3, // end: ret
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
}

// offset is the numbers of a move: seconds, nanoseconds and microseconds.
func offset(by time.Duration) []byte {
	seconds := by.Truncate(time.Second)
	if seconds > by {
		seconds -= time.Second
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(seconds/time.Second))           //nolint:gosec // two's complement
	b = binary.LittleEndian.AppendUint64(b, uint64(by-seconds))                       //nolint:gosec // it is not below zero
	return binary.LittleEndian.AppendUint64(b, uint64((by-seconds)/time.Microsecond)) //nolint:gosec // likewise
}

// Move sets this process's wall clock to the machine's clock plus by.
func Move(by time.Duration) error {
	numbers, err := patched()
	if err != nil {
		return err
	}
	return self.poke(numbers, offset(by)[:16])
}

// patched changes the vDSO of this process, once, and returns the address of the two numbers.
var patched = sync.OnceValues(func() (int64, error) {
	v, err := self.vdso()
	if err != nil {
		return 0, err
	}
	// A thread that runs clock_gettime now must not find it half written. One write places a
	// jump there, to the space of another function that Go does not call.
	from, to := v.at["__vdso_clock_gettime"], v.at["__vdso_gettimeofday"]
	room := int64((to.Value + 15) &^ 15)
	if from.Value%8 != 0 || room+int64(len(fakeClock))+16 > int64(to.Value+to.Size) || from.Value == 0 {
		return 0, fmt.Errorf("no room in the vDSO: %+v %+v", from, to)
	}
	if err := self.poke(v.base+room, append(bytes.Clone(fakeClock), make([]byte, 16)...)); err != nil {
		return 0, err
	}
	head := append(jump(int64(from.Value), room), v.image[from.Value+5:from.Value+8]...)
	return v.base + room + int64(len(fakeClock)), self.poke(v.base+int64(from.Value), head)
})

// jump is the instruction at one place that continues at another one.
func jump(from, to int64) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(to-from-5)) //nolint:gosec // two's complement
}

// A process is its folder in /proc.
type process string

const self process = "/proc/self"

// A library is a vDSO in the memory of a process.
type library struct {
	base  int64
	image []byte
	at    map[string]elf.Symbol
}

// place returns where a function begins, 0 if there is none.
func (v library) place(function string) int64 {
	return int64(v.at[function].Value) //nolint:gosec // it is in the image
}

// vdso finds the vDSO in the process's memory.
func (p process) vdso() (v library, err error) {
	maps, err := os.ReadFile(string(p) + "/maps")
	if err != nil {
		return v, err
	}
	for line := range strings.Lines(string(maps)) {
		var end int64
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &v.base, &end); err != nil {
			return v, err
		}
		if v.image, err = p.peek(v.base, int(end-v.base)); err != nil {
			return v, err
		}
		file, err := elf.NewFile(bytes.NewReader(v.image))
		if err != nil {
			return v, err
		}
		symbols, err := file.DynamicSymbols()
		v.at = map[string]elf.Symbol{}
		for _, s := range symbols {
			v.at[s.Name] = s
		}
		return v, err
	}
	return v, errors.New("no vDSO")
}

func (p process) peek(at int64, n int) ([]byte, error) {
	mem, err := os.Open(string(p) + "/mem")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mem.Close() }()
	b := make([]byte, n)
	_, err = mem.ReadAt(b, at)
	return b, err
}

// poke writes to the process's memory, even where it is read-only.
func (p process) poke(at int64, b []byte) error {
	mem, err := os.OpenFile(string(p)+"/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Close() }()
	_, err = mem.WriteAt(b, at)
	return err
}
