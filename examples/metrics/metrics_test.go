package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served returns the page /metrics after the service has worked and every kind of Holdfast
// event has occurred.
func served(t *testing.T) string {
	t.Helper()
	tele, err := newTelemetry()
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), tele)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t.Context())
	for _, want := range []string{"executed: refund of 1250 cents\n", "replayed: refund of 1250 cents\n"} {
		w := httptest.NewRecorder()
		s.refund(w, httptest.NewRequest(http.MethodPost, "/refund?order=42&cents=1250", nil))
		if w.Body.String() != want {
			t.Fatalf("got %d %q, want %q", w.Code, w.Body.String(), want)
		}
	}
	if n := count(t, s); n != 1 {
		t.Fatalf("%d refunds are booked", n)
	}
	tracetest.Everything(t, holdfast.Options{Tracers: []holdfast.Tracer{tele.tracer}})
	tele.tracer.Event(t.Context(), holdfast.Event{Name: "reaper.refused", Engine: "sqlite"}) // in production this needs a clock that jumps
	w := httptest.NewRecorder()
	tele.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `holdfast_operation="refund"`) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func count(t *testing.T, s *service) (n int) {
	t.Helper()
	if err := s.pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM refunds`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// panel holds the fields of a dashboard panel that the test needs.
type panel struct {
	Type, Title string
	Datasource  struct{ UID string }
	Targets     []struct{ Expr string }
}

type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

var (
	metric = regexp.MustCompile(`\bholdfast_[a-z_]+`)
	label  = regexp.MustCompile(`\b(le|job|(?:holdfast|db|error)_[a-z_]+)(?:=|!=|=~)"`)
	by     = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	legend = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// named returns the metrics and the labels that an expression names.
func named(expr string) (metrics, labels []string) {
	for _, m := range by.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, strings.Split(strings.ReplaceAll(m[1], " ", ""), ",")...)
	}
	for _, m := range label.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, m[1])
	}
	return slices.DeleteFunc(metric.FindAllString(expr, -1), func(m string) bool { return slices.Contains(labels, m) }), labels
}

// TestServed checks that the service exports every metric and label that the dashboard and the
// rules use.
func TestServed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variable := func(name, kind string) bool {
		return slices.ContainsFunc(d.Templating.List, func(v struct{ Name, Type string }) bool { return v.Name == name && v.Type == kind })
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 39 || !variable("datasource", "datasource") {
		t.Errorf("%+v", d)
	}
	var exprs []string
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%+v", p)
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	exprs = append(exprs, string(rules))
	page := served(t)
	has := func(sample *regexp.Regexp) bool { return sample.MatchString(page) }
	found := map[string]bool{}
	for _, expr := range exprs {
		metrics, labels := named(expr)
		for _, m := range metrics {
			found[m] = true
			if !has(regexp.MustCompile(`(?m)^` + m + `(\{| )`)) {
				t.Errorf("%s is not served: %s", m, expr)
			}
		}
		for _, l := range labels {
			if l != "job" && !has(regexp.MustCompile(`[{,]`+l+`="`)) { // Prometheus adds job
				t.Errorf("no metric has the label %s: %s", l, expr)
			}
		}
	}
	for _, m := range legend.FindAllStringSubmatch(string(text), -1) {
		if !has(regexp.MustCompile(`[{,]` + m[1] + `="`)) {
			t.Errorf("no metric has the label %s of a legend", m[1])
		}
	}
	// Each exported metric must be used. For a histogram, one of its buckets, sum and count is
	// enough.
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (holdfast_\w+)`).FindAllStringSubmatch(page, -1) {
		if !found[m[1]] && !found[m[1]+"_bucket"] && !found[m[1]+"_count"] {
			t.Errorf("%s is on no panel and in no rule", m[1])
		}
	}
	if len(found) < 12 {
		t.Errorf("only %d metrics are named", len(found))
	}
	if strings.Contains(page, tracetest.Secret) {
		t.Error("/metrics has a secret")
	}
}

// TestRun checks that the program starts and stops.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := run(ctx, "127.0.0.1:0", cancel); err != nil {
		t.Error(err)
	}
}

// TestRules runs alerts_test.yml: an alert lasts for as long as an operation is parked, and no reaper at all is found.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("HOLDFAST_TEST_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no promtool: apt-get install prometheus")
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts_test.yml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
