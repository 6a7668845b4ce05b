package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/similar"
)

// similarPairs is what ops similar has found, in JSON.
type similarPairs struct {
	Pairs    []similarPair `json:"pairs"`
	Found    int           `json:"found"`
	Rows     int           `json:"rows"`
	Complete bool          `json:"complete"`
}

type similarPair struct {
	Owner   string     `json:"owner,omitempty"`
	By      []string   `json:"by,omitempty"`
	First   occurrence `json:"first"`
	Second  occurrence `json:"second"`
	ApartMS int64      `json:"apart_ms"`
}

type occurrence struct {
	key

	At         time.Time `json:"at"`
	BusinessID string    `json:"business_id,omitempty"`
}

func occurrenceOf(o similar.Occurrence) occurrence {
	return occurrence{jsonKey(o.Key), o.At, o.BusinessID}
}

// integerUnits are what an integer column with a time may count.
var integerUnits = map[string]time.Duration{"": 0, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second}

func newOpsSimilar(o *opsFlags) *cobra.Command {
	var a similar.Filter
	var t similar.Table
	var unit, tableSchema string
	cmd := &cobra.Command{
		Use: "similar", Short: "Find pairs of similar operations under different keys", Args: noArgs,
		Long: "Find pairs of similar operations under different keys: alike, and close in time.\n\n" +
			"With --name, operations of Do that were executed for the same request under different\n" +
			"keys: what Op.Similar would have asked about, if it were made of the whole request.\n" +
			"With --table, rows of a table of yours with equal --columns:\n\n" +
			"  holdfast ops similar --table payments --key id --columns order_id,amount --time created_at\n\n" +
			"It reads in pages, without a lock, --rows at most.\n",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (a.Name == "") == (t.Table == "") {
				return usage("give --name for operations, or --table, --key, --columns and --time for rows of a table")
			}
			if a.Name != "" && len(t.Key)+len(t.Columns)+len(t.Time)+len(unit)+len(tableSchema) > 0 {
				return usage("--key, --columns, --time, --unit and --table-schema are for --table")
			}
			var known bool
			if t.Unit, known = integerUnits[unit]; !known {
				return usage("--unit must be us, ms or s")
			}
			t.Schema = tableSchema
			a.Namespace = o.namespace
			return o.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				if t.Table != "" {
					found, err := similar.Rows(ctx, db, t, a)
					return o.answerAlike(cmd, found, err)
				}
				found, err := similar.Records(ctx, db, a)
				return o.answerAlike(cmd, found, err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.Name, "name", "", "the operations' name")
	flags.StringVar(&a.Owner, "owner", "", "only the operations of this owner")
	flags.StringVar(&t.Table, "table", "", "a table of yours, instead of operations")
	flags.StringVar(&tableSchema, "table-schema", "", "its schema (MySQL, MariaDB: database; default: the connection's own)")
	flags.StringSliceVar(&t.Key, "key", nil, "the columns of its primary key, or of another unique key")
	flags.StringSliceVar(&t.Columns, "columns", nil, "the columns that make two rows alike, such as order_id,amount")
	flags.StringVar(&t.Time, "time", "", "the column with a row's time; without a zone it is taken for UTC")
	oneOf(cmd, &unit, "unit", "", "what --time counts since 1970, if it is an integer", "us\tmicroseconds", "ms\tmilliseconds", "s\tseconds")
	flags.DurationVar(&a.Window, "window", similar.DefaultWindow, "how close in time the two of a pair are")
	flags.DurationVar(&a.Since, "since", similar.DefaultSince, "how far to look back")
	flags.IntVar(&a.MaxRows, "rows", similar.DefaultMaxRows, "how many rows to read at most")
	flags.IntVar(&a.Limit, "limit", similar.DefaultLimit, "how many pairs to show at most, the latest first")
	return cmd
}

func (o *opsFlags) answerAlike(cmd *cobra.Command, found similar.Pairs, err error) error {
	if err != nil {
		return err
	}
	out, rows := similarPairs{Pairs: []similarPair{}, Found: found.Found, Rows: found.Rows, Complete: found.Complete}, [][]string{}
	for _, p := range found.Pairs {
		out.Pairs = append(out.Pairs, similarPair{p.Owner, p.By, occurrenceOf(p.First), occurrenceOf(p.Second), p.Apart.Milliseconds()})
		rows = append(rows, []string{
			text(p.Owner), text(strings.Join(p.By, ", ")), text(p.First.Key), text(p.Second.Key), moment(p.Second.At), duration(p.Apart), text(p.First.BusinessID), text(p.Second.BusinessID),
		})
	}
	end := fmt.Sprintf("%d pairs in %d rows\n", found.Found, found.Rows)
	if !found.Complete {
		end = fmt.Sprintf("%d pairs in the first %d rows: there are more rows (--rows)\n", found.Found, found.Rows)
	}
	return o.answer(cmd, out, o.table(cmd, "no such pairs", "OWNER ALIKE FIRST SECOND AT APART ID ID", rows)+end)
}
