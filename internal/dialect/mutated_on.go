//go:build mutants

package dialect

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/test/mutants/sqlmutant"
)

// Variables of make mutants. The first is a statement's name, a space and a mutant's ID. The second
// is a file for a line of each mutant that the program's statements have: name, ID, description.
var (
	planted     = os.Getenv("HOLDFAST_TEST_MUTANT")
	mutantsFile = os.Getenv("HOLDFAST_TEST_MUTANTS")

	mutantsMu sync.Mutex
	listed    = map[string]bool{}
)

// mutated plants the fault that HOLDFAST_TEST_MUTANT names into the text of a statement.
func mutated(name, text string) string {
	if mutantsFile != "" {
		list(name, text)
	}
	plantedID, is := strings.CutPrefix(planted, name+" ")
	if !is {
		return text
	}
	for _, m := range sqlmutant.All(text) {
		if m.ID() == plantedID {
			return m.Text
		}
	}
	return text
}

func list(name, text string) {
	mutantsMu.Lock()
	defer mutantsMu.Unlock()
	if listed[name+text] {
		return
	}
	listed[name+text] = true
	f, err := os.OpenFile(mutantsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	for _, m := range sqlmutant.All(text) {
		fmt.Fprintf(f, "%s\t%s\t%s\n", name, m.ID(), m)
	}
}
