package idemhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/canonical"
)

// pointer is a JSON pointer (RFC 6901): its text, and the names in it.
type pointer struct {
	text  string
	names []string
}

var unescaped = strings.NewReplacer("~1", "/", "~0", "~")

func parsePointers(field string, texts []string) ([]pointer, error) {
	var all []pointer
	for _, text := range texts {
		if !strings.HasPrefix(text, "/") || strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(text), "~") {
			return nil, invalid(field, fmt.Sprintf("%.100q is no JSON pointer to a field, such as /client/version", text))
		}
		p := pointer{text: text}
		for name := range strings.SplitSeq(text[1:], "/") {
			p.names = append(p.names, unescaped.Replace(name))
		}
		all = append(all, p)
	}
	return all, nil
}

// picker returns the function that leaves what counts of a JSON document; nil if all does.
func (o *Options) picker() (func(doc any) (any, bool), error) {
	only, err := parsePointers("Options.OnlyFields", o.OnlyFields)
	if err != nil {
		return nil, err
	}
	ignored, err := parsePointers("Options.IgnoreFields", o.IgnoreFields)
	switch {
	case err != nil:
		return nil, err
	case len(only) > 0 && len(ignored) > 0:
		return nil, invalid("Options.OnlyFields", "is given, and IgnoreFields too: leave one of them out")
	case len(only)+len(ignored) > 0 && o.Fingerprint != nil:
		return nil, invalid("Options.Fingerprint", "is given, and OnlyFields or IgnoreFields, which choose for the default one: leave one of them out")
	case len(only) > 0:
		return func(doc any) (any, bool) { return choose(doc, only) }, nil
	case len(ignored) > 0:
		return func(doc any) (any, bool) { return doc, ignore(doc, ignored) }, nil
	}
	return nil, nil
}

// fields returns the part of a JSON text that pick leaves. It returns false for a text that is not JSON with one
// meaning, such as text that is not UTF-8.
func fields(text []byte, pick func(doc any) (any, bool)) ([]byte, bool) {
	if canonical.Write(io.Discard, text) != nil {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) != nil {
		return nil, false
	}
	part, ok := pick(doc)
	if !ok {
		return nil, false
	}
	out, err := json.Marshal(part)
	return out, err == nil
}

// choose returns the fields of a document that are there, by their pointers. It returns false if none is, or if one may
// be there in other letters, as Go's encoding/json takes it: then all of the document counts, lest every such request be
// one.
func choose(doc any, only []pointer) (any, bool) {
	chosen := map[string]any{}
	for _, p := range only {
		if value, there := at(doc, p.names); there {
			chosen[p.text] = value
		}
		if folded(doc, p.names) {
			return nil, false
		}
	}
	return chosen, len(chosen) > 0
}

// folded reports whether a document has a name on the way to a field in other letters.
func folded(doc any, names []string) bool {
	for i, name := range names {
		in, is := doc.(map[string]any)
		for other := range in {
			if other != name && strings.EqualFold(other, name) {
				return true
			}
		}
		if !is {
			doc, _ = at(doc, names[i:i+1])
			continue
		}
		doc = in[name]
	}
	return false
}

// ignore takes fields out of a document. Of a list no element is taken out, but made null, so that the others keep their
// places.
func ignore(doc any, ignored []pointer) bool {
	for _, p := range ignored {
		last := len(p.names) - 1
		parent, _ := at(doc, p.names[:last])
		switch in := parent.(type) {
		case map[string]any:
			delete(in, p.names[last])
		case []any:
			if i, ok := element(in, p.names[last]); ok {
				in[i] = nil
			}
		}
	}
	return true
}

// at returns the value in a document that names lead to.
func at(doc any, names []string) (value any, there bool) {
	for _, name := range names {
		switch in := doc.(type) {
		case map[string]any:
			if doc, there = in[name]; !there {
				return nil, false
			}
		case []any:
			i, ok := element(in, name)
			if !ok {
				return nil, false
			}
			doc = in[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

func element(list []any, name string) (int, bool) {
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0 && i < len(list) && strconv.Itoa(i) == name
}
