package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// The forms of an answer.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
)

// outputFlags say in which form to answer.
type outputFlags struct {
	form string
	json bool
	watch
}

func (o *outputFlags) add(root *cobra.Command) {
	forms := []string{asTable, asJSON + "\tfor scripts", asYAML, asWide + "\ttables with every column"}
	p := root.PersistentFlags()
	p.StringVarP(&o.form, "output", "o", asTable, "form of the answer: "+listed(forms))
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	p.BoolVar(&o.json, "json", false, "short for --output json")
	root.MarkFlagsMutuallyExclusive("output", "json")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return cmp.Or(checkEmpty(cmd), o.check()) }
}

func (o *outputFlags) check() error {
	switch o.form {
	case asTable, asWide, asJSON, asYAML:
		return nil
	}
	return usage("--output is %s, %s, %s or %s", asTable, asJSON, asYAML, asWide)
}

// as returns the form of the answer.
func (o *outputFlags) as() string {
	if o.json {
		return asJSON
	}
	return o.form
}

// forPeople reports whether the answer is text.
func (o *outputFlags) forPeople() bool { return o.as() == asTable || o.as() == asWide }

// answer writes value as --output says; text is the form for people.
func (o *outputFlags) answer(cmd *cobra.Command, value any, text string) error {
	w := cmd.OutOrStdout()
	err := o.frame(w, o.as())
	if err == nil {
		err = o.answerTo(w, value, text)
	}
	if err != nil {
		return outputError{err}
	}
	return nil
}

func (o *outputFlags) answerTo(w io.Writer, value any, text string) error {
	if o.forPeople() {
		_, err := io.WriteString(w, text)
		return err
	}
	b, err := marshal(value)
	if err == nil && o.as() == asYAML {
		b, err = yamlOf(b)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// marshal returns one line of JSON.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

// yamlOf returns JSON as YAML, with the same names in the same order.
func yamlOf(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	root, err := yamlNode(d)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2) //nolint:mnd // as kubectl's
	err = errors.Join(e.Encode(root), e.Close())
	return b.Bytes(), err
}

// yamlNode reads one value of JSON.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	node := new(yaml.Node)
	switch t := t.(type) {
	case json.Delim:
		node.Kind = map[json.Delim]yaml.Kind{'{': yaml.MappingNode, '[': yaml.SequenceNode}[t]
		for d.More() {
			below, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, below)
		}
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle // [] and {}
		}
		_, err = d.Token() // the closing bracket
	case json.Number:
		*node = yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}
	default:
		err = node.Encode(t) // quotes a text that would be read as another type
	}
	return node, err
}

// table formats rows under a header. Columns behind a | in the header are for --output wide. Without
// rows it returns none.
func (o *outputFlags) table(cmd *cobra.Command, none, header string, rows [][]string) string {
	if len(rows) == 0 {
		return none + "\n"
	}
	narrow, more, _ := strings.Cut(header, " | ")
	columns := strings.Fields(narrow)
	if o.as() == asWide {
		columns = append(columns, strings.Fields(more)...)
	}
	paint := painterFor(cmd.OutOrStdout())
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(cells []string, of func(column, cell string) string) {
		painted := make([]string, len(columns))
		for i, c := range columns {
			painted[i] = of(c, cells[i])
		}
		fmt.Fprintln(w, strings.Join(painted, "\t"))
	}
	line(columns, func(_, cell string) string { return paint.as(bold, cell) })
	for _, r := range rows {
		line(r, paint.cell)
	}
	_ = w.Flush() // writes to a strings.Builder
	return b.String()
}

// painter colours text; false leaves it as it is.
type painter bool

// painterFor returns the painter for w: colours are for terminals only, and not where NO_COLOR is set
// (https://no-color.org).
func painterFor(w io.Writer) painter {
	return painter(isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// The colours have codes of the same length, so that columns stay aligned.
const (
	bold   = "01"
	plain  = "39"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// stateColours are the colours of what stands in a column STATE, and of a doctor's severities.
var stateColours = map[string]string{
	"unknown": red, "dirty": red, "broken": red, "pending": yellow, "in progress": yellow, "waiting": yellow, "settling": yellow, "warning": yellow,
	"succeeded": green, "succeeded and expired": green, "applied": green, "rejected": plain, "notice": plain,
}

func (p painter) as(colour, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[00m"
}

// cell paints a cell of a row. All cells of a column get a colour, or none.
func (p painter) cell(column, text string) string {
	colour := plain
	if column == "STATE" {
		if c, ok := stateColours[text]; ok {
			colour = c
		}
	}
	return p.as(colour, text)
}

// rowsOf says how many rows.
func rowsOf(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return strconv.FormatInt(n, 10) + " rows"
}
