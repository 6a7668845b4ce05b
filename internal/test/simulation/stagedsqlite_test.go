package simulation

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"testing"
)

// Columns of the tables of staged operations, but for the owner.
const (
	opColumns   = `key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, request, state, result, result_type, attempt, holder, token, due_at, step, mode, started, finished, accepted, restored, version, reason, created_at, moved_at, finished_at, reversed_at, program, request_id, result_expires_at, key_expires_at`
	stepColumns = `key_hash, name, state, provider_key, result, result_type, token, starts, begun_at, moved_at, provider, reference, deadline_at, reversed_at`
)

// TestStagedIsSQLite runs each statement of some schedules again, and of calls one after the other, on a new store and on SQLite with the
// store's clock, and compares each answer, the code of each error, and what is committed.
func TestStagedIsSQLite(t *testing.T) {
	_, logs := stagedOnStore(t)
	file, names, codes, runs := onDisk(t), map[string]int{}, map[int]int{}, 0
	for i, log := range logs {
		runs += again(t, file, append(slices.Clip(log), contended(t, log)...), names, codes)
		if t.Failed() {
			t.Fatalf("calls %d", i)
		}
	}
	for name := range stagedWrites {
		if names[name] == 0 {
			t.Errorf("nothing has sent %s: %v", name, names)
		}
	}
	for _, code := range []int{0, 1, 5, 517} {
		if codes[code] == 0 {
			t.Errorf("no statement had the code %d: %v", code, codes)
		}
	}
	runs += simulateAgain(t, file, 6, newStagedScene, func(s scene) *records { return s.(*stagedScene).records }, names, codes)
	t.Logf("staged statements=%d kinds=%d codes=%v", runs, len(names), codes)
}

// contended are statements of a log whose transactions are in each other's way.
func contended(t *testing.T, log []logged) (list []logged) {
	t.Helper()
	in := func(s *session, name string) {
		for _, l := range log {
			if l.name == name {
				list = append(list, logged{s, s != nil, l.name, l.text, l.args, l.now})
				return
			}
		}
		t.Fatalf("no %s", name)
	}
	end := func(s *session) { list = append(list, logged{s, s != nil, "rollback", "rollback", nil, 0}) }
	a, b := &session{}, &session{}
	list = append(list, logged{name: "forget all"})
	in(a, "staged.look")
	in(nil, "staged.insert") // commits on its own
	in(a, "staged.insert")   // its snapshot is older
	end(a)
	in(a, "staged.step.insert")
	in(b, "staged.insert") // the lock is taken
	in(nil, "staged.insert")
	end(b)
	end(a)
	end(nil) // there is no transaction
	return append(list, logged{name: "forget all"})
}

// simulateAgain runs the statements of some seeds again.
func simulateAgain(t *testing.T, file *sql.DB, seeds int, of func(*world) scene, records func(scene) *records, names map[string]int, codes map[int]int) (runs int) {
	t.Helper()
	for seed := range seeds {
		w := simulate(t, logging(of, records), uint64(seed+1), false)
		if w.violation != "" {
			w.explain(t, of)
			t.FailNow()
		}
		runs += again(t, file, append([]logged{{name: "forget all"}}, records(w.scene).log...), names, codes)
		if t.Failed() {
			t.Fatalf("seed %d", seed+1)
		}
	}
	return runs
}

// logging keeps what a scene runs.
func logging(of func(*world) scene, into func(scene) *records) func(*world) scene {
	return func(w *world) scene {
		s := of(w)
		into(s).logs = true
		return s
	}
}

// again runs statements again.
func again(t *testing.T, file *sql.DB, log []logged, names map[string]int, codes map[int]int) (runs int) {
	t.Helper()
	r, open := newTickets(), map[*session]*twice{}
	connect := func() *twice {
		conn, err := file.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return &twice{t: t, records: r, real: conn, codes: codes}
	}
	single := connect()
	idle := []*twice{}
	for i, l := range log {
		if l.name == "make due" {
			r.makeDue()
			if _, err := file.ExecContext(t.Context(), `UPDATE holdfast_staged SET due_at = due_at - 172800000000 WHERE state = 1`); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if l.name == "forget all" {
			r.committed = newTickets().committed
			for _, table := range []string{"holdfast_staged", "holdfast_steps", "holdfast_locks", "holdfast_tickets", "effects"} {
				if _, err := file.ExecContext(t.Context(), `DELETE FROM `+table); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		b := single
		if l.inTx {
			if b = open[l.session]; b == nil {
				if len(idle) == 0 {
					idle = append(idle, connect())
				}
				b, idle = idle[0], idle[1:]
				open[l.session] = b
				b.end(t.Context(), "begin")
			}
		}
		b.now = l.now
		names[l.name]++
		write := writes(l.name) || l.name == "commit" || l.name == "rollback"
		_, _ = b.ask(t.Context(), l.name, l.text, l.args, write)
		if l.inTx && b.session.txn == nil {
			delete(open, l.session)
			idle = append(idle, b)
		}
		if write && b.session.txn == nil {
			compareCommitted(t, file, r)
		}
		if t.Failed() {
			t.Fatalf("statement %d: %+v", i, l)
		}
	}
	for _, b := range append(slices.Collect(maps.Values(open)), append(idle, single)...) {
		runs += b.runs
		if b.session.txn != nil {
			b.end(context.WithoutCancel(t.Context()), "rollback")
		}
		_ = b.real.Close()
	}
	return runs
}
