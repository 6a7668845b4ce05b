package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/display"
)

//go:embed templates static
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"shown": show, "when": momentOf, "left": left, "list": func(v ...any) []any { return v },
	// The bars of a chart of 240 by 52.
	"bar": func(i int) int { return 10*i + 1 }, "half": func(percent int64) int64 { return percent / 2 }, "top": func(percent int64) int64 { return 52 - percent/2 },
}).ParseFS(files, "templates/*.html"))

// page holds the values that every page has.
type page struct {
	Title   string
	Section string // the active entry of the navigation
	// Problem and Notice are shown at the top.
	Problem, Notice string
	// Live: the parts marked with data-live are kept up to date.
	Live      bool
	SignedOut bool
	// Error: the page shows only its Problem.
	Error bool
	Body  any

	// render fills these fields.
	Engine    string
	Write     bool
	CanLeave  bool // there is a session to end
	AsksActor bool
	FourEyes  bool
	Generated time.Time
}

func (c *console[Tx]) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Engine, p.Write, p.Generated = string(c.db.Engine()), c.mayWrite(r), time.Now()
	p.CanLeave = !c.options.BehindOwnAuthentication && !p.SignedOut
	p.AsksActor, p.FourEyes = c.options.Actor == nil, c.options.FourEyes
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name+".html", p); err != nil {
		c.options.Log.ErrorContext(r.Context(), "holdfast console: a template", "name", name, "error", err)
		http.Error(w, "The page could not be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser may have disconnected
}

// fail answers with a page that describes the problem.
func (c *console[Tx]) fail(w http.ResponseWriter, r *http.Request, status int, problem string) {
	out := !c.options.BehindOwnAuthentication && !c.sessions.has(r)
	c.render(w, r, status, "error", page{Title: http.StatusText(status), Problem: problem, SignedOut: out, Error: true})
}

func asset(name, contentType string) http.HandlerFunc {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(text)
	}
}

// shown is a key or a name, shortened if it is long; the full text is shown on demand.
type shown struct{ Short, Full string }

const shownRunes = 72

func show(s string) shown {
	full := display.Text(s)
	if utf8.RuneCountInString(full) <= shownRunes+8 {
		return shown{Full: full}
	}
	return shown{Short: string([]rune(full)[:shownRunes]) + "…", Full: full}
}

// typed parses text that a person typed or copied: the bytes of a key as the console shows it,
// quoted or not.
func typed(s string) string {
	if strings.HasPrefix(s, `"`) {
		if bare, err := strconv.Unquote(s); err == nil {
			return bare
		}
	}
	return s
}

// moment is a time in relative and absolute form.
type moment struct{ ISO, Relative, Absolute string }

func momentOf(t, now time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	u := t.UTC()
	m := moment{ISO: u.Format(time.RFC3339Nano), Absolute: u.Format("2006-01-02 15:04:05") + " UTC"}
	// The clocks of the database and of this process may differ a little.
	switch d := now.Sub(t); {
	case d < -time.Minute:
		m.Relative = "in " + left(-d)
	case d < time.Second:
		m.Relative = "just now"
	default:
		m.Relative = left(d) + " ago"
	}
	return m
}

// left formats a duration with its two largest units.
func left(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}
