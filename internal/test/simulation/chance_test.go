package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// change is a text that takes the place of another one, which a file has once.
type change struct{ file, from, to string }

// chance makes everything random in package runtime (math/rand/v2, maps, select, timers of the same moment) follow
// from seedChance, which seeded_test.go declares. A goroutine runs until it waits, however slow the machine is.
var chance = []change{
	{"runtime/rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n\tif chance != 0 {\n\t\treturn drawn()\n\t}\n"},
	{"runtime/rand.go", "mp.cheaprand = rand()", "mp.cheaprand = bootstrapRand()"},
	{"runtime/rand.go", "\n//go:linkname maps_rand", `
var chance uint64 // the state of splitmix64, which begins with the seed

//go:linkname seedChance
func seedChance(seed uint64) { chance = seed<<1 | 1 }

//go:nosplit
func drawn() uint64 {
	chance += 0x9e3779b97f4a7c15
	z := chance
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

//go:linkname maps_rand`},
	// The seed of a map is not drawn: what a sync.Pool makes anew, after a collection, may have a map.
	{"runtime/rand.go", "func maps_rand() uint64 {\n", "func maps_rand() uint64 {\n\tif chance != 0 {\n\t\treturn 1\n\t}\n"},
	{"runtime/rand.go", "// mrandinit ", "//go:linkname maps_order internal/runtime/maps.order\nfunc maps_order() uint64 { return rand() }\n\n// mrandinit "},
	{"internal/runtime/maps/runtime.go", "func rand() uint64\n", "func rand() uint64\n\n//go:linkname order\nfunc order() uint64\n"},
	{"internal/runtime/maps/table.go", "it.entryOffset = rand()\n\tit.dirOffset = rand()", "it.entryOffset = order()\n\tit.dirOffset = order()"},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1 << 62"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(rand())"},
}

// build builds this package's tests with changes: of Go's own files, and of the module's.
func build(t *testing.T, changes ...change) (binary string) {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[string]string{} // a file's path, and the text that it has instead
	for _, c := range append(slices.Clip(chance), changes...) {
		path := filepath.Join(strings.TrimSpace(string(root)), "src", c.file)
		if !strings.HasPrefix(c.file, "runtime/") && !strings.HasPrefix(c.file, "internal/runtime/") {
			path = filepath.Join("..", "..", "..", c.file)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if replaced[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			replaced[path] = string(text)
		}
		if n := strings.Count(replaced[path], c.from); n != 1 {
			t.Fatalf("%s has %d times the text that is to be changed, so it is not as this test knows it: %s", c.file, n, c.from)
		}
		replaced[path] = strings.Replace(replaced[path], c.from, c.to, 1)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for path, text := range replaced {
		file := filepath.Join(dir, fmt.Sprintf("%d-%s", len(overlay["Replace"]), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][path] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "simulation.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags", "simulation", "-overlay", list, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// child runs a test of a binary, and returns what it prints.
func child(t *testing.T, binary string, args ...string) (out string, err error) {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), binary, append([]string{"-test.v", "-test.timeout", "0"}, args...)...).CombinedOutput()
	return string(printed), err
}

// onlyLong skips a test that builds the tests anew, unless -duration is given.
func onlyLong(t *testing.T) {
	t.Helper()
	if *duration == 0 {
		t.Skip("make simulation runs it: it builds package runtime")
	}
}

// TestExact runs schedules on every processor for as long as -duration says, and then some seeds twice, with a Go
// that draws nothing itself.
func TestExact(t *testing.T) {
	onlyLong(t)
	binary, first := build(t), *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) % 1e9
	}
	for _, args := range [][]string{
		{"-test.run", "^TestSchedules$", "-duration", (*duration / time.Duration(len(scenes))).String()},
		{"-test.run", "^TestReplay$", "-schedules", "5000"},
	} {
		var children sync.WaitGroup
		for n := range runtime.NumCPU() {
			children.Go(func() {
				out, err := child(t, binary, append(slices.Clip(args), "-seed", strconv.FormatUint(first+uint64(n)*1e9, 10))...)
				if err != nil {
					t.Errorf("%v", err)
				}
				t.Log(strings.TrimSpace(out))
			})
		}
		children.Wait()
	}
}
