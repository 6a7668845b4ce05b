package sqlite

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// fence is a trigger for each event. SQLite has one writer, and refuses a write that follows an
// older snapshot, so a read is enough.
func fence(f dialect.FencedTable) []dialect.Trigger {
	return f.EachEvent(func(t dialect.Trigger, row string) string {
		token := ident(f.Token)
		live := `EXISTS (SELECT 1 FROM ` + f.Locks + ` l WHERE l.owner = CAST(` + text(f.Owner, row) + ` AS TEXT) AND l.name = CAST(` + text(f.LockName(), row) +
			` AS BLOB) AND l.token = ` + row + `.` + token + ` AND l.attempt IS NOT NULL)`
		condition := `NOT ` + live
		if t.Insert && f.UnfencedInserts {
			condition = `NEW.` + token + ` IS NOT 0 AND ` + condition
		}
		refuse := func(message, condition string) string {
			return ` SELECT RAISE(ABORT, '` + message + `') WHERE ` + condition + `;`
		}
		body := refuse(dialect.FenceNotLive, condition)
		if t.Update {
			body = refuse(dialect.FenceBelow, `NEW.`+token+` < OLD.`+token) + body
		}
		if t.Update && !f.Fixed() {
			body = refuse(dialect.FenceMoved, text(f.Owner, "NEW")+` IS NOT `+text(f.Owner, "OLD")+` OR `+text(f.LockName(), "NEW")+` IS NOT `+text(f.LockName(), "OLD")) + body
		}
		return create(t) + ` BEGIN` + body + ` END`
	})
}

// text is the value of parts. Bytes become text unchanged.
func text(parts []dialect.NamePart, row string) string {
	all := []string{`''`}
	for _, p := range parts {
		if p.Column == "" {
			all = append(all, literal(p.Text))
		} else {
			all = append(all, row+"."+ident(p.Column))
		}
	}
	return `(` + strings.Join(all, " || ") + `)`
}
