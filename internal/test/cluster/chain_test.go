//go:build linux

package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	chain "github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// auditOnTwo has interventions on two nodes at once. Each lock there is local, so only the key of the
// audit's table, which both nodes certify, keeps the chain from forking: none is lost, and both nodes have
// the same end. What lost its place says so, and nothing happened.
func auditOnTwo(t *testing.T, urls []string) {
	const each = 20
	var all []*opened
	for _, url := range urls[:2] {
		o := openOn(t, url, sqllock.Options{Holder: "olga", TTL: time.Hour})
		for i := range each {
			if _, err := o.locks.Acquire(t.Context(), fmt.Sprint(url, " audit", i)); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, o)
	}
	// Another test of the same cluster, which may have run before, has intervened on one node. That one has
	// all of its rows.
	count := func(o *opened) int { return o.number(`SELECT COUNT(*) FROM holdfast_audit`) }
	want := max(count(all[0]), count(all[1])) + 2*each
	var wg sync.WaitGroup
	for i, o := range all {
		wg.Go(func() {
			for n := range each {
				for {
					had, err := o.locks.ForceRelease(t.Context(), fmt.Sprint(urls[i], " audit", n), 0, holdfast.Actor{By: "test", Reason: "asked"})
					if errors.Is(err, holdfast.ErrRetry) {
						continue
					}
					if err != nil || !had {
						t.Errorf("node %d: %v, %v", i, had, err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	var heads [][]byte
	for i, o := range all {
		// A node has the other's rows some time after their commit was answered there.
		dbtest.Eventually(t, "the other node's rows have arrived", func() bool {
			return count(o) >= want
		})
		report, err := chain.Verify(t.Context(), o.db)
		if err != nil || report.Rows != int64(want) || len(report.Heads) != 1 {
			t.Fatalf("node %d: %+v, %v", i, report, err)
		}
		heads = append(heads, report.Heads[0].Hash)
	}
	if !bytes.Equal(heads[0], heads[1]) {
		t.Errorf("the chain ends in %x and in %x", heads[0], heads[1])
	}
}
