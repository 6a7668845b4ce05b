package pgxtest

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestSaid checks what is a point, on what pgx encodes.
func TestSaid(t *testing.T) {
	prepared := func(name string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{&pgproto3.Bind{PreparedStatement: name}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}}
	}
	var all []pgproto3.FrontendMessage
	for name, text := range map[string]string{"begin": "begin", "claim": "INSERT INTO records", "finish": "UPDATE records", "commit": "commit"} {
		all = append(all, &pgproto3.Parse{Name: name, Query: text}, &pgproto3.Describe{ObjectType: 'S', Name: name})
	}
	session := texts{}
	of := func(messages ...pgproto3.FrontendMessage) said {
		var sent bytes.Buffer
		f := pgproto3.NewFrontend(nil, &sent)
		for _, m := range messages {
			f.Send(m)
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		for n := range sent.Len() { // the network cuts where it wants
			if round, rest := cut(sent.Bytes()[:n]); round != nil || len(rest) != n {
				t.Errorf("%d bytes of %d are a round trip", n, sent.Len())
			}
		}
		round, rest := cut(sent.Bytes())
		if round == nil || len(rest) > 0 {
			t.Fatalf("%d bytes are left", len(rest))
		}
		return session.of(round)
	}
	sync := &pgproto3.Sync{}
	join := func(parts ...[]pgproto3.FrontendMessage) (all []pgproto3.FrontendMessage) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return append(all, sync)
	}
	for name, c := range map[string]struct {
		sent []pgproto3.FrontendMessage
		want said
	}{
		"to prepare":         {join(all), said{answered: true}},
		"a statement":        {join(prepared("claim")), said{true, true, "INSERT INTO records", false, false, 0}},
		"BEGIN and it":       {join(prepared("begin"), prepared("claim")), said{true, true, "INSERT INTO records", false, false, 3}},
		"it and COMMIT":      {join(prepared("finish"), prepared("commit")), said{true, true, "COMMIT with UPDATE records", true, false, 0}},
		"COMMIT":             {join(prepared("commit")), said{true, true, "COMMIT", true, true, 0}},
		"a simple COMMIT":    {[]pgproto3.FrontendMessage{&pgproto3.Query{String: "commit;"}}, said{true, true, "COMMIT", true, true, 0}},
		"a simple statement": {[]pgproto3.FrontendMessage{&pgproto3.Query{String: "SELECT 1"}}, said{true, true, "SELECT 1", false, false, 0}},
		"ROLLBACK":           {[]pgproto3.FrontendMessage{&pgproto3.Query{String: "rollback"}}, said{answered: true}},
		"a ping":             {[]pgproto3.FrontendMessage{&pgproto3.Query{String: "-- ping"}}, said{answered: true}},
		"LISTEN":             {[]pgproto3.FrontendMessage{&pgproto3.Query{String: `LISTEN "x"`}}, said{answered: true}},
		"the end":            {[]pgproto3.FrontendMessage{&pgproto3.Terminate{}}, said{}},
	} {
		of(join(all)...)
		got := of(c.sent...)
		if !got.point {
			got.alone = false
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
