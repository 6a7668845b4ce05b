package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// losingScene loses the answer of one COMMIT.
type losingScene struct {
	*stagedScene

	lost func() // happens between that COMMIT and its next try
}

func (w *losingScene) run(s *statement) (known bool) {
	known = w.stagedScene.run(s)
	if lost := w.lost; s.name == "commit" && lost != nil {
		w.lost, s.err = nil, errCut
		lost()
	}
	return known
}

// TestCancelAgain: a cancel finds a call that has begun, and the answer of its COMMIT is lost. The call turns out not to be done, so that
// the cancel's second transaction ends the operation. It must say so.
func TestCancelAgain(t *testing.T) {
	open(t)
	w := &world{rng: rand.New(rand.NewPCG(1, 44)), calm: true, ordinals: map[string]int{}}
	scene := &losingScene{stagedScene: newStagedScene(w).(*stagedScene)}
	w.scene, w.gate.open, handles[0].world, handles[0].life = scene, true, w, nil
	side, err := newStagedSide(t.Context(), handles[0].db, 0)
	if err != nil {
		t.Fatal(err)
	}
	parks := stagedStep{kind: does, pays: unclear}
	t.Log(side.run(t.Context(), parks))
	late := side.run(t.Context(), stagedStep{kind: cancels})
	scene.lost = func() {
		steps := maps.Clone(scene.records.committed.steps)
		for id, row := range steps {
			if row[stepName] == "pay" {
				row = slices.Clone(row)
				row[stepState] = notDoneStep
				steps[id] = row
			}
		}
		scene.records.committed.steps = steps
	}
	if got := side.run(t.Context(), stagedStep{kind: cancels}); got != "executedok" || scene.lost != nil || !scene.opOf("k0").voided() {
		t.Errorf("cancel: %s; before: %s; lost: %v; the row: %v", got, late, scene.lost == nil, scene.opOf("k0"))
	}
}
