//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readMarkers returns the engines that a test used, with the versions that package dbtest
// recorded.
func readMarkers(dir string) (map[engine]string, error) {
	ran := make(map[engine]string)
	for _, e := range allEngines {
		version, err := os.ReadFile(filepath.Join(dir, string(e)))
		switch {
		case os.IsNotExist(err):
		case err != nil:
			return nil, fmt.Errorf("read which engines ran: %w", err)
		default:
			ran[e] = shortVersion(string(version))
		}
	}
	return ran, nil
}

// summary lists the engines that ran and those that did not.
func (r *results) summary(ran map[engine]string) []string {
	var did, didNot []string
	for _, e := range allEngines {
		version, ok := ran[e]
		s := r.server(e)
		switch {
		case ok && s != nil:
			did = append(did, fmt.Sprintf("%s %s (%s)", e, version, s.how))
		case ok:
			did = append(did, fmt.Sprintf("%s %s", e, version))
		case s != nil || e == sqlite:
			didNot = append(didNot, fmt.Sprintf("%s (no test used it)", e))
		default:
			didNot = append(didNot, fmt.Sprintf("%s (%s)", e, r.why(e)))
		}
	}
	if len(did) == 0 {
		did = []string{"none"}
	}
	lines := []string{"engines that ran: " + strings.Join(did, ", ")}
	if len(didNot) > 0 {
		lines = append(lines, "did not run: "+strings.Join(didNot, ", "))
	}
	return lines
}
