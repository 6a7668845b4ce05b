package main

import (
	"html/template"
	"net/http"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
)

// page shows the last payments: the service's rows, and what the operation says.
var page = template.Must(template.New("page").Parse(`<!doctype html><meta charset="utf-8"><title>Payments</title>
<style>body{font:16px system-ui;max-width:50rem;margin:2rem auto}td,th{text-align:left;padding:.2rem 1rem .2rem 0}</style>
<h1>Payments</h1>
<form method="post" action="/pay"><input name="order" value="42" aria-label="order" required maxlength="64">
{{range .Kinds}}<button name="kind" value="{{.}}">{{.}}</button> {{end}}</form>
<p>Press a button as often as you like: the money moves once. The bank fails in many ways; reload to see what becomes of it.</p>
<table><tr><th>order</th><th>kind</th><th>state</th><th>reference</th><th>reversed</th><th>operation</th></tr>
{{range .Rows}}<tr><td>{{.Order}}</td><td>{{.Kind}}</td><td>{{.State}}</td><td>{{.Reference}}</td><td>{{if .Reversed}}yes{{end}}</td><td>{{.Operation}}</td></tr>
{{end}}</table>`))

// row is one line of the page.
type row struct {
	request
	State, Reference, Operation string
	Reversed                    bool
}

func (s *shop[Tx]) page(w http.ResponseWriter, r *http.Request) {
	rows, err := readRows(r.Context(), s.reads, "")
	if err != nil {
		http.Error(w, "not available", http.StatusServiceUnavailable)
		return
	}
	states := map[string]string{}
	for op, err := range operators.New(s.store).List(r.Context(), operators.Filter{
		Name: "payment", States: []idempotency.State{
			idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateSettling, idempotency.StateUnknown,
			idempotency.StateSucceeded, idempotency.StateRejected,
		},
	}) {
		if err != nil {
			http.Error(w, "not available", http.StatusServiceUnavailable)
			return
		}
		states[op.Key] = op.State.String()
	}
	for i := range rows {
		rows[i].Operation = states[key(rows[i].request)]
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
	_ = page.Execute(w, struct {
		Kinds []string
		Rows  []row
	}{kinds, rows})
}
