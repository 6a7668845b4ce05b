package admission_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	mariadbdialect "github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	mysqldialect "github.com/holdfast-go/holdfast/internal/dialect/mysql"
	postgresdialect "github.com/holdfast-go/holdfast/internal/dialect/postgres"
	sqlitedialect "github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	tidbdialect "github.com/holdfast-go/holdfast/internal/dialect/tidb"
	vitessdialect "github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/environments.md")

var dialects = []struct {
	name string
	of   *dialect.Dialect
}{{"PostgreSQL", &postgresdialect.Dialect}, {"MySQL", &mysqldialect.Dialect}, {"MariaDB", &mariadbdialect.Dialect}, {"TiDB", &tidbdialect.Dialect}, {"Vitess", &vitessdialect.Dialect}, {"SQLite", &sqlitedialect.Dialect}}

// TestDocs checks that the tables of docs/reference/environments.md match the rules. `go test
// ./internal/test/admission -run TestDocs -update` writes them.
func TestDocs(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/reference/environments.md"
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(was)
	for name, text := range map[string]string{"engines": engineTable(), "look-alikes": lookAlikes(), "rules": ruleTable()} {
		before, rest, ok := strings.Cut(page, "<!-- begin "+name+" -->\n")
		_, after, ended := strings.Cut(rest, "<!-- end "+name+" -->")
		if !ok || !ended {
			t.Fatalf("the page has no place for %s", name)
		}
		page = before + "<!-- begin " + name + " -->\n" + text + "<!-- end " + name + " -->" + after
	}
	if page == string(was) {
		return
	}
	if !*update {
		t.Fatal("docs/reference/environments.md is not what the rules say: go test ./internal/test/admission -run TestDocs -update")
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

func engineTable() string {
	var b strings.Builder
	b.WriteString("| engine | tested | untested, may be declared | refused as too old |\n|---|---|---|---|\n")
	for _, d := range dialects {
		v := d.of.Admission.Versions
		fmt.Fprintf(&b, "| %s | %s | %s | before %s |\n", d.name, strings.Join(v.Tested, ", "), v.Untested, v.Floor)
	}
	return b.String()
}

func lookAlikes() string {
	var b strings.Builder
	b.WriteString("| product | why |\n|---|---|\n")
	for _, l := range dialect.LookAlikes {
		fmt.Fprintf(&b, "| %s | %s |\n", l.Name, l.Why)
	}
	return b.String()
}

func ruleTable() string {
	type row struct{ setting, verdict, why, remedy string }
	var rows []row
	engines := map[row][]string{}
	for _, d := range dialects {
		for _, r := range d.of.Admission.Rules {
			line := row{r.Setting, "refused: " + r.Refused, r.Breaks, r.Remedy}
			if r.Refused == "" {
				line.verdict, line.remedy = "neutralised", r.Neutral
			}
			if _, there := engines[line]; !there {
				rows = append(rows, line)
			}
			engines[line] = append(engines[line], d.name)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(strings.Join(engines[a], ""), strings.Join(engines[b], "")) })
	var b strings.Builder
	b.WriteString("| engine | setting | verdict | what would happen | remedy, or how |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", strings.Join(engines[r], ", "), r.setting, r.verdict, r.why, r.remedy)
	}
	return b.String()
}
