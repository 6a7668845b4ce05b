package property_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/property"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// TestVersionsRise reads, writes, deletes and inserts rows with versions that are now and then old: a row's version goes up by one with each write,
// and only a writer that has read the last version writes.
func TestVersionsRise(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	table := d.Accounts()
	property.Check(t, func(t *rapid.T) {
		d.exec(t, `DELETE FROM accounts`)
		keys, rows := names(t, 2), map[string]conformance.Account{}
		var read []conformance.Account // what writers have read, at some time
		account := func(t *rapid.T) conformance.Account {
			if len(read) == 0 {
				t.Skip("nothing was read")
			}
			return read[len(read)-1-rapid.IntRange(0, len(read)-1).Draw(t, "read")]
		}
		judge := func(t *rapid.T, given conformance.Account, err error) (written bool) {
			t.Helper()
			is, there := rows[given.No]
			switch {
			case !there:
				want(t, given, err, optimistic.ErrNotFound)
			case is.Version != given.Version:
				var conflict *optimistic.ConflictError
				if want(t, given, err, optimistic.ErrConflict); !errors.As(err, &conflict) || conflict.Found != fmt.Sprint(is.Version) {
					t.Fatalf("%v: %+v", err, conflict)
				}
			default:
				property.Must(t, err)
				return true
			}
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if n := d.int(t, `SELECT COUNT(*) FROM accounts`); n != int64(len(rows)) {
					t.Fatalf("%d rows, want %d", n, len(rows))
				}
				for no, is := range rows {
					got, err := table.Get(d.Ctx, conformance.Account{No: no})
					if err != nil || got != is {
						t.Fatalf("%+v, %v, want %+v", got, err, is)
					}
				}
			},
			"insert": func(t *rapid.T) {
				a := conformance.Account{No: rapid.SampledFrom(keys).Draw(t, "key"), Cents: rapid.Int64().Draw(t, "cents")}
				got, err := table.Insert(d.Ctx, a)
				if _, there := rows[a.No]; there {
					want(t, a, err, optimistic.ErrDuplicate)
					return
				}
				if property.Must(t, err); got.Version != 1 {
					t.Fatalf("a new row has version %d", got.Version)
				}
				rows[a.No] = got
			},
			"read": func(t *rapid.T) {
				no := rapid.SampledFrom(keys).Draw(t, "key")
				got, err := table.Get(d.Ctx, conformance.Account{No: no})
				if _, there := rows[no]; !there {
					want(t, no, err, optimistic.ErrNotFound)
					return
				}
				property.Must(t, err)
				read = append(read, got)
			},
			"update": func(t *rapid.T) {
				a := account(t)
				a.Cents = rapid.SampledFrom([]int64{a.Cents, a.Cents + 1, -a.Cents}).Draw(t, "cents")
				got, err := table.Update(d.Ctx, a)
				if !judge(t, a, err) {
					return
				}
				if was := rows[a.No]; got.Version != was.Version+1 || got.Cents != a.Cents {
					t.Fatalf("%+v became %+v", was, got)
				}
				rows[a.No] = got
				if rapid.Bool().Draw(t, "goes on") {
					read = append(read, got)
				}
			},
			"delete": func(t *rapid.T) {
				a := account(t)
				if judge(t, a, table.Delete(d.Ctx, a)) {
					delete(rows, a.No)
				}
				// A new row begins at version 1 again, so what was read of the old one is forgotten here: the documentation says what comes of it.
				if _, there := rows[a.No]; !there {
					kept := read[:0:0]
					for _, r := range read {
						if r.No != a.No {
							kept = append(kept, r)
						}
					}
					read = kept
				}
			},
		})
	})
}

// TestRevisionsRise changes named values with revisions that are now and then old: a revision goes up by one with each change, also across a deletion.
func TestRevisionsRise(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	values, err := register.New(d.Ctx, d.DB)
	if err != nil {
		t.Fatal(err)
	}
	property.Check(t, func(t *rapid.T) {
		d.exec(t, `DELETE FROM holdfast_registers`)
		keys, rows := confused(t, 3, register.MaxName), map[string]register.Entry{}
		name := func(t *rapid.T) string { return rapid.SampledFrom(keys).Draw(t, "name") }
		value := rapid.Map(property.Text(20), func(s string) []byte { return []byte(s) })
		judge := func(t *rapid.T, key string, given int64, got register.Entry, value []byte, err error) {
			t.Helper()
			is := rows[key]
			switch {
			case is.Value == nil && given > 0:
				if want(t, key, err, register.ErrNotFound); errors.Is(err, register.ErrConflict) != (is.Revision > given) {
					t.Fatalf("deleted in revision %d, and read in %d: %v", is.Revision, given, err)
				}
			case is.Value != nil && is.Revision != given:
				want(t, key, err, register.ErrConflict)
			default:
				if property.Must(t, err); got.Revision != is.Revision+1 || !bytes.Equal(got.Value, value) || (got.Value == nil) != (value == nil) {
					t.Fatalf("%+v became %+v, want the value %q", is, got, value)
				}
				rows[key] = register.Entry{Name: key, Value: value, Revision: got.Revision}
			}
		}
		revision := func(t *rapid.T, key string) int64 {
			return max(rows[key].Revision-max(rapid.Int64Range(-3, 3).Draw(t, "old"), -1), 1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, key := range keys {
					got, err := values.Get(d.Ctx, key)
					if is := rows[key]; is.Value == nil {
						want(t, key, err, register.ErrNotFound)
					} else if err != nil || got.Revision != is.Revision || !bytes.Equal(got.Value, is.Value) {
						t.Fatalf("%+v, %v, want %+v", got, err, is)
					}
				}
			},
			"create": func(t *rapid.T) {
				key, v := name(t), value.Draw(t, "value")
				got, err := values.Create(d.Ctx, key, v)
				judge(t, key, 0, got, v, err)
			},
			"swap": func(t *rapid.T) {
				key, v := name(t), value.Draw(t, "value")
				given := revision(t, key)
				got, err := values.CompareAndSwap(d.Ctx, key, given, v)
				judge(t, key, given, got, v, err)
			},
			"delete": func(t *rapid.T) {
				key := name(t)
				given := revision(t, key)
				got, err := values.Delete(d.Ctx, key, given)
				judge(t, key, given, got, nil, err)
			},
		})
	})
}
