// Holdfastvet is a tool for go vet -vettool; see package holdfastvet.
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/holdfast-go/holdfast/holdfastvet"
)

func main() {
	unitchecker.Main(holdfastvet.Analyzer)
}
