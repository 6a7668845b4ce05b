package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
)

// ledgerTables are the tables in which a call may write.
var ledgerTables = []rowdiff.Table{
	{Name: "holdfast_staged", Key: []string{"owner", "key_hash"}},
	{Name: "holdfast_steps", Key: []string{"owner", "key_hash", "name"}},
	{Name: "holdfast_provider_events", Key: []string{"owner", "key_hash", "event_id"}},
	{Name: "holdfast_records", Key: []string{"owner", "key_hash"}},
	{Name: "holdfast_interventions", Key: []string{"owner", "id"}},
}

func (e *env[Tx]) rows(tables ...rowdiff.Table) rowdiff.Rows {
	e.Helper()
	return rowdiff.Read(e.Ctx, e, access.Of(e.DB).Pool, func(name string) string { return name }, tables...)
}

// twins gives each row of the owner shop a twin of two other owners, with the same hash: what is compared
// by its hash alone takes one for the other. change changes them.
func (e *env[Tx]) twins(change string) {
	e.Helper()
	for _, t := range ledgerTables {
		columns := "owner, id, key_hash, namespace, action, by_whom, reason, happened_at"
		if !strings.HasSuffix(t.Name, "interventions") {
			var names []string
			for _, row := range e.rows(t) {
				for c := range row {
					names = append(names, c)
				}
				break
			}
			if slices.Sort(names); len(names) == 0 {
				continue
			}
			names = slices.DeleteFunc(names, func(c string) bool { return c == "due_at" && strings.HasSuffix(t.Name, "records") }) // it is computed
			columns = strings.Join(names, ", ")
		}
		for _, twin := range [][2]string{{"aaa", "shop"}, {"zzz", "shop"}, {"shop", "zzz"}} { // shop's are the last ones written
			e.Must(`DELETE FROM `+t.Name+` WHERE owner = $1`, twin[0])
			e.Must(`INSERT INTO `+t.Name+` (`+columns+`) SELECT `+strings.Replace(columns, "owner", "'"+twin[0]+"'", 1)+` FROM `+t.Name+` WHERE owner = $1`, twin[1])
		}
	}
	if change != "" {
		e.Must(change+` WHERE owner <> 'shop' OR op_key = $1`, []byte("b"))
	}
}

// stagedOwners makes every call for one of several operations, which differ in the owner or in the key, and
// are in the same state. The rows of the others stay as they are.
func stagedOwners[Tx any](e *env[Tx]) {
	e.ManyOwners()
	store, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{})
	e.Check(err)
	ops := operators.New(store)
	var answer error
	s, err := staged.New(store, staged.Workflow[string, string, Tx]{Name: "refund", Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", Provider: "bank"}, func(context.Context, string) (string, error) { return "paid", answer })
	}})
	e.Check(err)
	at := func(key string) staged.Ref { return staged.Ref{Owner: "shop", Name: "refund", Key: key} }
	do := func(key string) error {
		_, err := s.Do(e.Ctx, idempotency.Op{Owner: "shop", Key: key}, "r")
		return err
	}
	event := func(ev staged.ProviderEvent) error {
		ev.ID += "!"
		_, err := staged.HandleEvent(e.Ctx, store, ev, nil)
		return err
	}
	var hash string // of the operation of key a
	each := func(what string, call func(key string) error, want func(error) bool) {
		e.Helper()
		e.twins("")
		mine := func(r rowdiff.Row) bool { return r["owner"] == "shop" && (hash == "" || r["key_hash"] == hash) }
		before := e.rows(ledgerTables...).Except(mine)
		if err := call("a"); !want(err) {
			e.Errorf("%s: %v", what, err)
		}
		if hash == "" {
			for _, r := range e.rows(ledgerTables[0]) {
				hash = r["key_hash"]
			}
		}
		rowdiff.Check(e, what, before, e.rows(ledgerTables...).Except(mine), nil, rowdiff.Clock{})
		if err := call("b"); !want(err) {
			e.Errorf("%s: %v", what, err)
		}
	}
	ok := func(err error) bool { return err == nil }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	answer = errTimeout
	each("parked", do, is(idempotency.ErrUnknown))
	each("an event", func(key string) error { return event(staged.ProviderEvent{ID: "1", Ref: at(key), Body: []byte("b")}) }, ok)
	each("not done", func(key string) error {
		return ops.Resolve(e.Ctx, at(key), operators.Resolution{Step: staged.StepNotDone}, who())
	}, ok)
	each("accepted", func(key string) error { answer = staged.Accepted("re_"+key, time.Hour); return do(key) }, is(idempotency.ErrInProgress))
	each("settled", func(key string) error {
		return event(staged.ProviderEvent{ID: "2", Ref: at(key), Provider: "bank", Reference: "re_" + key, Outcome: staged.StepDone, Result: "by webhook of " + key})
	}, ok)
	each("done", do, ok)
	for _, key := range []string{"a", "b"} {
		if r, err := s.Do(e.Ctx, idempotency.Op{Owner: "shop", Key: key}, "r"); err != nil || r.Value != "by webhook of "+key {
			e.Errorf("%s: %+v, %v", key, r, err)
		}
	}
	each("taken back", func(key string) error {
		return event(staged.ProviderEvent{ID: "3", Ref: at(key), Provider: "bank", Reference: "re_" + key, Outcome: staged.StepReversed})
	}, ok)
	each("shown", func(key string) error {
		op, err := ops.Show(e.Ctx, at(key))
		if err == nil && (op.Owner != "shop" || op.Key != key || len(op.Steps) != 1 || len(op.Events) != 3 || len(op.Interventions) != 1) {
			err = fmt.Errorf("%+v", op)
		}
		return err
	}, ok)
	each("erased", func(key string) error { return ops.Erase(e.Ctx, at(key), who()) }, ok)
}

// operatorsOwners does the same with records of Do whose outcome is unknown.
func operatorsOwners[Tx any](e *env[Tx]) {
	e.ManyOwners()
	store, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{ResultTTL: time.Hour})
	e.Check(err)
	ops := operators.New(store)
	rejection := &idempotency.Rejection{Code: "lost"}
	ctx := holdfast.WithRequestID(e.Ctx, "request 1")
	const records = "holdfast_records"
	for name, c := range map[string]struct {
		r    operators.Resolution
		twin string // the state of the others
	}{
		"succeed": {operators.Resolution{Succeed: true, Result: "by hand"}, "1"}, "reject": {operators.Resolution{Reject: true, Rejection: rejection}, "1"},
		"free": {operators.Resolution{Free: true}, "1"}, "succeed beside one that has ended": {operators.Resolution{Succeed: true, Result: "by hand"}, "2"},
		"erase": {twin: "2"}, "erase beside one that has not ended": {twin: "1"},
	} {
		for _, t := range ledgerTables {
			e.Must(`DELETE FROM ` + t.Name)
		}
		do := func(key string) (idempotency.Result[string], error) {
			return idempotency.Do(ctx, store, idempotency.Op{Owner: "shop", Name: "refund", Key: key, Request: "r"}, func(context.Context, Tx) (string, error) { return "done", nil })
		}
		for _, key := range []string{"b", "a"} {
			_, err := do(key)
			e.Check(err)
		}
		var hash string
		for _, r := range e.rows(ledgerTables[3]) {
			if r["op_key"] == "a" {
				hash = r["key_hash"]
			}
		}
		erases := c.r == operators.Resolution{}
		if !erases {
			e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, codec = NULL, finished_at = NULL`)
		}
		e.twins(`UPDATE ` + records + ` SET state = ` + c.twin)
		mine := func(r rowdiff.Row) bool { return r["owner"] == "shop" && r["key_hash"] == hash }
		before := e.rows(ledgerTables...).Except(mine)
		ref := staged.Ref{Owner: "shop", Name: "refund", Key: "a"}
		start := time.Now()
		if erases {
			err = ops.Erase(e.Ctx, ref, who())
		} else {
			err = ops.Resolve(e.Ctx, ref, c.r, who())
		}
		if err != nil {
			e.Errorf("%s: %v", name, err)
		}
		rowdiff.Check(e, name, before, e.rows(ledgerTables...).Except(mine), nil, rowdiff.Clock{})
		if op, err := ops.Show(e.Ctx, ref); !c.r.Free && (err != nil || op.Owner != "shop" || op.Key != "a" || op.Moved.Before(start.Add(-time.Hour))) {
			e.Errorf("%s: %+v, %v", name, op, err)
		}
		got, err := do("a")
		switch {
		case erases:
			if !errors.Is(err, idempotency.ErrExpired) {
				e.Errorf("%s: %v", name, err)
			}
			if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE owner = 'shop' AND op_key = $1 AND state = 4 AND result IS NULL AND codec IS NULL AND request_id IS NULL AND result_expires_at IS NULL`, []byte("a")); n != 1 {
				e.Errorf("%s: it has left something", name)
			}
		case c.r.Free:
			if err != nil || got.Outcome != idempotency.Executed {
				e.Errorf("%s: %+v, %v", name, got, err)
			}
		case c.r.Succeed:
			if err != nil || got.Value != "by hand" {
				e.Errorf("%s: %+v, %v", name, got, err)
			}
		default:
			var rej *idempotency.Rejection
			if !errors.As(err, &rej) || rej.Code != "lost" {
				e.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if !c.r.Free && !erases && e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE owner = 'shop' AND op_key = $1 AND state IN (2, 3) AND finished_at IS NOT NULL AND codec IS NOT NULL`, []byte("a")) != 1 {
			e.Errorf("%s: not ended with the form of its result", name)
		}
	}
}

// operatorsBoth has two people decide on one record at once, and not alike. One of them does, and the other
// is told: nothing is written down that was not done.
func operatorsBoth[Tx any](e *env[Tx]) {
	const first, second = "first", "second"
	s := e.Store(idempotency.Options{})
	if _, err := e.Do(s, conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, finished_at = NULL`)
	began, seen, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	resolve := func(who string, touched func(), r operators.Resolution) error {
		var once sync.Once
		db := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
			if st.Name == "operators.touch" {
				once.Do(touched)
			}
		}}}).DB
		return operators.New(e.StoreOn(db, idempotency.Options{})).Resolve(e.Ctx, ref("a"), r, holdfast.Actor{By: who, Reason: "ticket"})
	}
	go func() {
		<-began
		ended <- resolve(second, func() { close(seen) }, operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: "lost"}})
	}()
	errs := map[string]error{first: resolve(first, func() {
		close(began)
		select {
		case <-seen:
		case <-time.After(200 * time.Millisecond): // the second one waits for the row
		}
	}, operators.Resolution{Succeed: true, Result: "by hand"})}
	errs[second] = <-ended
	op := e.show("a")
	if len(op.Interventions) != 1 {
		e.Fatalf("%v, %+v", errs, op)
	}
	decided := op.Interventions[0].By
	for by, err := range errs {
		if by == decided && err != nil || by != decided && !errors.Is(err, staged.ErrState) {
			e.Errorf("%s, of whom %s decided: %v", by, decided, err)
		}
	}
	if want := map[string]idempotency.State{first: idempotency.StateSucceeded, second: idempotency.StateRejected}[decided]; op.State != want {
		e.Errorf("%s decided: %v", decided, op.State)
	}
}

// operatorsFilter lists by each field of a filter, beside operations that differ in it alone.
func operatorsFilter[Tx any](e *env[Tx]) {
	e.ManyOwners()
	all := map[string]*operators.Operators[Tx]{}
	for _, namespace := range []string{"", "another"} {
		store, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{Namespace: namespace})
		e.Check(err)
		all[namespace] = operators.New(store)
		for _, owner := range []string{"shop", "other"} {
			for _, name := range []string{"refund", "payout"} {
				s, err := staged.New(store, staged.Workflow[string, string, Tx]{Name: name, Run: func(_ context.Context, _ *staged.Run[Tx], request string) (string, error) {
					return map[string]string{"rejected": ""}[request], map[string]error{"rejected": idempotency.Reject("no", "")}[request]
				}})
				e.Check(err)
				for _, key := range []string{"succeeded", "rejected", "erased", "unknown"} {
					_, _ = s.Do(e.Ctx, idempotency.Op{Owner: owner, Key: key}, key)
					_, err := idempotency.Do(e.Ctx, store, idempotency.Op{Owner: owner, Name: name, Key: key, Request: key}, func(context.Context, Tx) (string, error) {
						return "", map[string]error{"rejected": idempotency.Reject("no", "")}[key]
					})
					if (err == nil) != (key != "rejected") {
						e.Fatal(err)
					}
				}
			}
		}
	}
	for _, table := range []string{"staged", "records"} {
		e.Must(`UPDATE holdfast_`+table+` SET state = 4 WHERE op_key = $1`, []byte("erased"))
		e.Must(`UPDATE holdfast_`+table+` SET state = $1 WHERE op_key = $2`, map[string]int{"staged": 6, "records": 1}[table], []byte("unknown"))
	}
	ended := []idempotency.State{idempotency.StateSucceeded, idempotency.StateRejected, idempotency.StateSucceededExpired, idempotency.StateRejectedExpired}
	for _, records := range []bool{false, true} {
		for what, c := range map[string]struct {
			f    operators.Filter
			want []string
		}{
			"all":                 {operators.Filter{States: []idempotency.State{idempotency.StateSucceeded}}, []string{"other payout succeeded", "other refund succeeded", "shop payout succeeded", "shop refund succeeded"}},
			"an owner's":          {operators.Filter{Owner: "shop", States: []idempotency.State{idempotency.StateSucceeded}}, []string{"shop payout succeeded", "shop refund succeeded"}},
			"of a name":           {operators.Filter{Name: "refund", States: []idempotency.State{idempotency.StateSucceeded}}, []string{"other refund succeeded", "shop refund succeeded"}},
			"in states":           {operators.Filter{Owner: "shop", Name: "refund", States: []idempotency.State{idempotency.StateSucceeded, idempotency.StateRejected}}, []string{"shop refund rejected", "shop refund succeeded"}},
			"in another state":    {operators.Filter{Owner: "shop", Name: "refund", States: []idempotency.State{idempotency.StateRejected}}, []string{"shop refund rejected"}},
			"of an hour ago":      {operators.Filter{States: []idempotency.State{idempotency.StateSucceeded}, Overdue: time.Hour}, nil},
			"what is unknown":     {operators.Filter{Owner: "shop"}, []string{"shop payout unknown", "shop refund unknown"}},
			"what has ended":      {operators.Filter{Owner: "shop", Name: "refund", States: ended}, []string{"shop refund erased", "shop refund rejected", "shop refund succeeded"}},
			"with a part of keys": {operators.Filter{Owner: "shop", Key: "eject", States: []idempotency.State{idempotency.StateSucceeded, idempotency.StateRejected}}, []string{"shop payout rejected", "shop refund rejected"}},
		} {
			c.f.Records = records
			for namespace, ops := range all {
				found, err := core.First(99, ops.List(e.Ctx, c.f))
				e.Check(err)
				var got []string
				for _, op := range found {
					got = append(got, op.Owner+" "+op.Name+" "+op.Key)
				}
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					e.Errorf("%s, records %v, namespace %q: %v, want %v", what, records, namespace, got, c.want)
				}
			}
		}
	}
}
