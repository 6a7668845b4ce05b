package mysql

import (
	"encoding/hex"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// fence is a trigger for each event. A trigger runs with the rights of the user who made it.
func fence(f dialect.FencedTable) []dialect.Trigger {
	return f.EachEvent(func(t dialect.Trigger, row string) string {
		token := ident(f.Token)
		live := `COALESCE((SELECT l.attempt IS NOT NULL AND l.token = ` + row + `.` + token + ` FROM ` + f.Locks +
			` l WHERE l.owner = ` + bytes(f.Owner, row) + ` AND l.name = ` + bytes(f.LockName(), row) + ` LOCK IN SHARE MODE), 0)`
		condition := `NOT ` + live
		if t.Insert && f.UnfencedInserts {
			condition = `NOT (NEW.` + token + ` <=> 0) AND ` + condition
		}
		refuse := ` THEN ` + signal(unfenced, dialect.FenceNotLive) + `; END IF`
		if !t.Update {
			return `IF ` + condition + refuse
		}
		body := `IF NEW.` + token + ` < OLD.` + token + ` THEN ` + signal(unfenced, dialect.FenceBelow) + `; ELSEIF ` + condition + refuse
		if f.Fixed() {
			return body
		}
		same := bytes(f.Owner, "NEW") + ` <=> ` + bytes(f.Owner, "OLD") + ` AND ` + bytes(f.LockName(), "NEW") + ` <=> ` + bytes(f.LockName(), "OLD")
		return `IF NOT (` + same + `) THEN ` + signal(unfenced, dialect.FenceMoved) + `; ELSE` + body
	})
}

// bytes is the value of parts as bytes. Literals are in hexadecimal, so that no sql_mode and no
// character set of a session changes them.
func bytes(parts []dialect.NamePart, row string) string {
	all := []string{`X''`}
	for _, p := range parts {
		switch {
		case p.Column == "":
			all = append(all, `X'`+hex.EncodeToString([]byte(p.Text))+`'`)
		case p.Bytes:
			all = append(all, row+"."+ident(p.Column))
		default:
			all = append(all, `CONVERT(`+row+"."+ident(p.Column)+` USING utf8mb4)`)
		}
	}
	return `CAST(CONCAT(` + strings.Join(all, ", ") + `) AS BINARY)`
}
