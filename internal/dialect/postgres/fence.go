package postgres

import (
	"encoding/hex"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// fence is one function for all events. It runs with the rights of its owner, because FOR SHARE
// takes the privilege UPDATE on the locks, with which a program could end the terms of others.
//
// FOR KEY SHARE would not do: a hand-over and a release do not wait for it.
func fence(f dialect.FencedTable) []dialect.Trigger {
	t := f.Trigger
	t.Insert, t.Update, t.Delete, t.Definer = true, true, !f.UnfencedDeletes, true
	token := ident(f.Token)
	of := func(row string) string {
		return `whose := ` + owner(f, row) + `; lock_name := ` + lockName(f, row) + `; written := ` + row + `.` + token + `;`
	}
	moves := ``
	if !f.Fixed() {
		moves = `
  IF whose IS DISTINCT FROM (` + owner(f, "OLD") + `) OR lock_name IS DISTINCT FROM (` + lockName(f, "OLD") + `) THEN
   ` + raise(unfenced, dialect.FenceMoved) + `
  END IF;`
	}
	inserts := ``
	if f.UnfencedInserts {
		inserts = `
 IF TG_OP = 'INSERT' AND written = 0 THEN
  RETURN NULL;
 END IF;`
	}
	t.Body = `
DECLARE
 whose text COLLATE "C";
 lock_name bytea;
 written bigint;
 live bigint;
BEGIN
 IF TG_OP = 'DELETE' THEN
  ` + of("OLD") + `
 ELSE
  ` + of("NEW") + `
 END IF;` + inserts + `
 IF TG_OP = 'UPDATE' THEN` + moves + `
  IF written < OLD.` + token + ` THEN
   ` + raise(unfenced, dialect.FenceBelow) + `
  END IF;
 END IF;
 SELECT CASE WHEN l.attempt IS NOT NULL THEN l.token END INTO live
 FROM ` + f.Locks + ` l WHERE l.owner = whose AND l.name = lock_name FOR SHARE;
 IF live = written THEN
  RETURN NULL;
 END IF;
 IF live IS NULL AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
   AND written > (date_part('epoch', now()) * 1000000)::bigint THEN
  ` + raise("40001", dialect.FenceSnapshot) + `
 END IF;
 ` + raise(unfenced, dialect.FenceNotLive) + `
END`
	return []dialect.Trigger{t}
}

// owner is the owner of a row's lock, and lockName its name.
func owner(f dialect.FencedTable, row string) string {
	parts := []string{`''::text`}
	for _, p := range f.Owner {
		switch {
		case p.Column == "":
			parts = append(parts, quote(p.Text))
		case p.Bytes:
			parts = append(parts, "convert_from("+row+"."+ident(p.Column)+", 'UTF8')")
		default:
			parts = append(parts, row+"."+ident(p.Column)+"::text")
		}
	}
	return strings.Join(parts, " || ")
}

func lockName(f dialect.FencedTable, row string) string {
	var parts []string
	for _, p := range f.LockName() {
		switch {
		case p.Column == "":
			parts = append(parts, `decode('`+hex.EncodeToString([]byte(p.Text))+`', 'hex')`)
		case p.Bytes:
			parts = append(parts, row+"."+ident(p.Column))
		default:
			parts = append(parts, `convert_to(`+row+"."+ident(p.Column)+`::text, 'UTF8')`)
		}
	}
	return strings.Join(parts, " || ")
}
