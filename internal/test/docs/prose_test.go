package docs_test

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// foreign are the names in prose that are not this repository's, and whose they are.
var foreign = map[string]string{
	"mutex.IsOwner": "etcd", "Txn": "etcd", "Proclaim": "etcd", "IsOwner": "etcd", "ObtainMulti": "redislock", "RMultiLock": "Redisson",
	"InterProcessMutex": "Curator", "InterProcessReadWriteLock": "Curator", "InterProcessSemaphoreV2": "Curator", "LeaderLatch": "Curator", "LeaderSelector": "Curator",
	"RetryInfo": "gRPC", "BadRequest": "gRPC", "PreconditionFailure": "gRPC", "protobuf.Any": "gRPC", "v1.Refunds": "gRPC",
	"Link": "HTTP", "Location": "HTTP", "Allow": "HTTP", "Origin": "HTTP", "MaxHeaderBytes": "net/http",
	"queries.WithTx": "sqlc", "RowsAffected": "database/sql", "ConnPool": "GORM", "CreateInBatches": "GORM", "entsql.Conn{ExecQuerier}": "ent",
	"information_schema.PROCESSLIST": "MySQL", "Context.Next": "gin", "Galera": "a check of the doctor",
}

// TestPagesNameWhatExists checks every Go name in the inline code of the pages: `x.Y`, `Type.Method`, `Name`.
// Each is a name of this repository, or of a package that it imports, or a test, or foreign.
func TestPagesNameWhatExists(t *testing.T) {
	t.Parallel()
	all, used := names(t), map[string]bool{}
	for _, page := range prose(t) {
		text := read(t, page)
		own := declaredBy(page, text)
		for _, m := range blockOrInline.FindAllStringSubmatchIndex(text, -1) {
			if m[2] < 0 {
				continue // TestCode checks blocks
			}
			for _, name := range all.missing(text[m[2]:m[3]]) {
				used[name] = true
				if foreign[name] == "" && !own[name] {
					t.Errorf("%s:%d: there is no %s", page, 1+strings.Count(text[:m[2]], "\n"), name)
				}
			}
		}
	}
	for _, c := range comments(t, all.im) {
		for _, name := range all.stale(c) {
			used[name] = true
		}
	}
	for name, whose := range foreign {
		if !used[name] {
			t.Errorf("nothing names %s of %s any more", name, whose)
		}
	}
}

// prose returns the pages that describe the code as it is: all but the changelog.
func prose(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case strings.HasSuffix(file, ".md") && d.Name() != "CHANGELOG.md":
			found = append(found, strings.TrimPrefix(filepath.ToSlash(file), root+"/"))
		}
		return nil
	})
	if err != nil || len(found) < 60 {
		t.Fatal(len(found), err)
	}
	return found
}

var (
	blockOrInline = regexp.MustCompile("(?ms)^ *```.*?^ *```$|`([^`\n]+)`") //nolint:gocritic // with (?m) it is the beginning of a line
	declaration   = regexp.MustCompile(`(?m)\b(?:type|func(?: \(\w+ \*?\w+\))?) (\w+)|^\s*(?:var )?(\w+)\s+= `)
)

// declaredBy returns the names that the code of a page declares, or that of an example beside its README.
func declaredBy(page, text string) map[string]bool {
	files, _ := filepath.Glob(filepath.Join(root, filepath.Dir(page), "*.go")) // the pattern is good
	for _, file := range files {
		code, _ := os.ReadFile(file)
		text += string(code)
	}
	own := map[string]bool{}
	for _, m := range declaration.FindAllStringSubmatch(text, -1) {
		own[m[1]+m[2]] = true
	}
	return own
}

// givenToComments are the given variables but for the pool, of which there are three kinds.
var givenToComments = strings.Replace(given, "pool  *sql.DB\n", "", 1)

// TestCommentsNameWhatExists checks the comments of every package: the names in their prose, what they link to, and
// their code, with Go's type checker.
func TestCommentsNameWhatExists(t *testing.T) {
	t.Parallel()
	all := names(t)
	blocks := 0
	for _, c := range comments(t, all.im) {
		for _, name := range all.stale(c) {
			if foreign[name] == "" {
				t.Errorf("%s:%d: there is no %s", c.page, c.line, name)
			}
		}
		var parts []block
		for _, code := range c.code() {
			parts = append(parts, block{page: c.page, line: c.line, text: code})
		}
		if len(parts) > 0 {
			blocks += len(parts)
			report(t, all.im.check(c.page, join(parts, givenToComments), tolerated))
		}
	}
	if blocks < 40 {
		t.Errorf("only %d blocks of code in comments", blocks)
	}
}

// remark is a comment of a package: its own, a declaration's, or another one.
type remark struct {
	pkg, page string
	line      int
	text      string
}

func comments(t *testing.T, im *imports) []remark {
	t.Helper()
	var all []remark
	for pkg, dir := range im.dirs {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			found, err := commentsOf(pkg, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found...)
		}
	}
	return all
}

func commentsOf(pkg, file string) ([]remark, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	page, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if page, err = filepath.Rel(page, file); err != nil {
		return nil, err
	}
	var all []remark
	for _, group := range parsed.Comments {
		all = append(all, remark{pkg, page, fset.Position(group.Pos()).Line, group.Text()})
	}
	return all, nil
}

var (
	docLink  = regexp.MustCompile(`\[\*?([A-Za-z]\w*(?:\.[A-Z]\w*)*)\]`)
	goCode   = regexp.MustCompile(`:=|(?m)^\s*(?:func|type|var|const|import) |^\w+(?:\.\w+)+\(`)
	omission = regexp.MustCompile(`(^|[\s,({])\.\.\.`)
)

// stale returns the names in a comment's prose that do not exist.
func (k *known) stale(c remark) []string {
	var lost []string
	for _, b := range new(comment.Parser).Parse(c.text).Content {
		if _, ok := b.(*comment.Code); ok {
			continue
		}
		text := string(new(comment.Printer).Comment(&comment.Doc{Content: []comment.Block{b}}))
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			if k.dangling(c.pkg, m[1]) {
				lost = append(lost, m[1])
			}
		}
		for _, name := range selector.FindAllString(docLink.ReplaceAllString(text, ""), -1) {
			lost = append(lost, k.missing(name)...)
		}
	}
	return lost
}

// dangling reports whether a link in a comment of a package leads nowhere.
func (k *known) dangling(pkg, name string) bool {
	first, rest, dotted := strings.Cut(name, ".")
	if !ast.IsExported(first) {
		return dotted && len(k.missing(name)) > 0
	}
	p, err := k.im.types.Import(pkg)
	if err != nil {
		return true
	}
	o := p.Scope().Lookup(first)
	return o == nil || dotted && member(o, rest) == nil
}

// code returns the blocks of a comment that are Go.
func (c remark) code() []string {
	var found []string
	for _, b := range new(comment.Parser).Parse(c.text).Content {
		if b, ok := b.(*comment.Code); ok && goCode.MatchString(b.Text) {
			found = append(found, omission.ReplaceAllString(b.Text, "$1…"))
		}
	}
	return found
}

// TestNamesFindFaults plants names that do not exist.
func TestNamesFindFaults(t *testing.T) {
	t.Parallel()
	all := names(t)
	for code, want := range map[string]string{
		"staged.Runner.ProviderKey":             "",
		"Runner.ProviderKey":                    "",
		"Staged.ProviderKey":                    "Staged.ProviderKey",
		"operators.New(store).List":             "",
		"Operators().List":                      "Operators().List",
		"Operators.Lost":                        "Operators.Lost",
		"db.Capabilities().Triggers":            "",
		"db.Capabilities().Wings":               "db.Capabilities().Wings",
		"locks.InTx(ctx, lease, fn)":            "",
		"locks.Retract(ctx)":                    "locks.Retract",
		"*sqllock.HeldError":                    "",
		"sqllock.ErrHeldUp":                     "sqllock.ErrHeldUp",
		"idempotency.Op{Owner: 1, Names: 2}":    "idempotency.Op{Names}",
		"idempotency.Reject(errors.Newer(…))":   "errors.Newer",
		"return staged.Refused(reference)":      "staged.Refused",
		"ErrUnknown":                            "",
		"ErrUnheard":                            "ErrUnheard",
		"a sentence with sqllock.Obtain(there)": "sqllock.Obtain",
		"holdfast locks queues":                 "",
		"TestCode":                              "",
	} {
		if got := strings.Join(all.missing(code), " "); got != want {
			t.Errorf("in %s is missing: %q, want %q", code, got, want)
		}
	}
	c := remark{pkg: "github.com/holdfast-go/holdfast/sqllock", text: "See [Locker.Acquire], [Locker.Obtain], [Lock] and holdfast.Nothing.\n\n\tlease, err := locks.Obtain(ctx, ...)\n"}
	if got := fmt.Sprint(all.stale(c)); got != "[Locker.Obtain Lock holdfast.Nothing]" {
		t.Error(got)
	}
	if found := all.im.check("c", join([]block{{page: "c", line: 1, text: c.code()[0]}}, given), tolerated); len(found) != 1 {
		t.Error(found)
	}
}
