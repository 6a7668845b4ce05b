package main

import (
	"bufio"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/examples/internal/process"
)

// environmentURL passes the database URL to a child.
const environmentURL = "REFUND_EXAMPLE_DSN"

// startChild starts this program again, as a replica or a client.
func startChild(url string, args ...string) (*process.Process, error) {
	cmd, err := process.Self(environmentURL, url, args...)
	if err != nil {
		return nil, err
	}
	return process.Start(cmd)
}

// followParent runs in the child: it reads the parent's lines until the parent closes the pipe or
// dies, and then calls gone.
func followParent(gone func(), heard func(words []string)) {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		heard(strings.Fields(scanner.Text()))
	}
	gone()
}
