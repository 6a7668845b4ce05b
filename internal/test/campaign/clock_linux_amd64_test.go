package campaign

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

// canMoveClock is true: this platform can move a process's wall clock. A Go program reads the
// time from the kernel's vDSO and uses no library, so libfaketime cannot change it. Here the
// process itself puts another clock_gettime into its own copy of the vDSO.
const canMoveClock = true

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

// moveClock sets this process's wall clock to the machine's clock plus by. Its monotonic clock
// stays.
func moveClock(by time.Duration) {
	numbers, err := patched()
	if err == nil {
		seconds := by.Truncate(time.Second)
		if seconds > by {
			seconds -= time.Second
		}
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], uint64(seconds/time.Second))
		binary.LittleEndian.PutUint64(b[8:], uint64(by-seconds))
		err = poke(numbers, b[:])
	}
	if err != nil {
		panic(fmt.Sprint("the clock of this process cannot be moved: ", err))
	}
}

// patched changes the vDSO, once, and returns the address of the two numbers.
var patched = sync.OnceValues(func() (int64, error) {
	base, image, err := vdso()
	if err != nil {
		return 0, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	at := map[string]elf.Symbol{}
	for _, s := range symbols {
		at[s.Name] = s
	}
	// A thread that runs clock_gettime now must not find it half written. One write places a
	// jump there, to the space of another function that Go does not call.
	from, to := at["__vdso_clock_gettime"], at["__vdso_gettimeofday"]
	room := int64((to.Value + 15) &^ 15)
	if from.Value%8 != 0 || room+int64(len(fakeClock))+16 > int64(to.Value+to.Size) || from.Value == 0 {
		return 0, fmt.Errorf("no room in the vDSO: %+v %+v", from, to)
	}
	if err := poke(base+room, append(bytes.Clone(fakeClock), make([]byte, 16)...)); err != nil {
		return 0, err
	}
	jump := bytes.Clone(image[from.Value : from.Value+8])
	jump[0] = 0xe9
	binary.LittleEndian.PutUint32(jump[1:], uint32(room-int64(from.Value)-5))
	return base + room + int64(len(fakeClock)), poke(base+int64(from.Value), jump)
})

// vdso finds the vDSO in this process's memory.
func vdso() (base int64, image []byte, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var end int64
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
			return 0, nil, err
		}
		image, err = peek(base, int(end-base))
		return base, image, err
	}
	return 0, nil, errors.New("no vDSO")
}

func peek(at int64, n int) ([]byte, error) {
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mem.Close() }()
	b := make([]byte, n)
	_, err = mem.ReadAt(b, at)
	return b, err
}

// poke writes to this process's memory, even where it is read-only.
func poke(at int64, b []byte) error {
	mem, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Close() }()
	_, err = mem.WriteAt(b, at)
	return err
}
