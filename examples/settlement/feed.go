package main

import (
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
)

// Settlement is a line of the file, and a row of settlements.
type Settlement struct {
	No       string `db:"settlement_no"`
	Day      string `db:"day"`
	Merchant string `db:"merchant"`
	Amount   int64  `db:"amount"` // in minor units
	State    string `db:"state"`  // "new", then "booked"
}

// feedBatch is the number of lines per transaction. A killed feed loses at most this many, and
// finds them again when the file is fed again.
const feedBatch = 1000

// fed counts the outcomes of a file's lines.
type fed struct{ new, known, refused int }

// feedCommand feeds a file, and prints the outcomes of its lines.
func feedCommand(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("feed", flag.ContinueOnError)
	day, file := flags.String("day", "", "the file's day"), flags.String("file", "", "the file")
	if err := parse(flags, args); err != nil {
		return err
	}
	d, err := open(ctx, os.Getenv(environmentURL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	in, err := os.Open(*file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	result, err := d.feed(ctx, *day, in, func(f fed) { fmt.Println("fed", f.new, f.known, f.refused) })
	if err != nil {
		return err
	}
	if result.refused > 0 {
		return fmt.Errorf("%d lines are other ones than those booked under their numbers", result.refused)
	}
	return nil
}

// feed claims the lines of a file. Each line gets one row, regardless of how many processes feed
// the file, and how often.
func (d *database) feed(ctx context.Context, day string, file io.Reader, progress func(fed)) (fed, error) {
	settlements, err := businessrow.New[Settlement](ctx, d.db, holdfast.TableSpec{Table: "settlements", Key: []string{"settlement_no"}}, businessrow.Options{
		// A line with a known number and another amount is not a duplicate: it is refused, and a
		// person must look at it.
		Compare: []string{"day", "merchant", "amount"},
	})
	if err != nil {
		return fed{}, err
	}
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = 3
	var all fed
	for count := 0; ; {
		batch, err := readBatch(lines, day)
		if err != nil {
			return all, err
		}
		if len(batch) == 0 {
			return all, d.fedAll(ctx, day, count)
		}
		count += len(batch)
		var part fed
		err = d.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			part = fed{} // the transaction may run again
			verdicts, err := settlements.ClaimAllTx(ctx, tx, batch)
			if err != nil {
				return err
			}
			for _, v := range verdicts {
				switch {
				case errors.Is(v.Err, idempotency.ErrMismatch):
					part.refused++
				case v.Outcome == idempotency.Executed:
					part.new++
				default:
					part.known++
				}
			}
			return nil
		})
		if err != nil {
			return all, err
		}
		all = fed{all.new + part.new, all.known + part.known, all.refused + part.refused}
		progress(all)
	}
}

func readBatch(lines *csv.Reader, day string) (batch []Settlement, err error) {
	for len(batch) < feedBatch {
		line, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return batch, nil
		case err != nil:
			return nil, fmt.Errorf("read the file: %w", err)
		}
		amount, err := strconv.ParseInt(line[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %.64q: the amount is no number of minor units", line[0])
		}
		batch = append(batch, Settlement{No: line[0], Day: day, Merchant: line[1], Amount: amount, State: "new"})
	}
	return batch, nil
}

// fedAll records that a day's file is complete, so that the day can be closed.
func (d *database) fedAll(ctx context.Context, day string, lines int) error {
	type dayRow struct {
		Day   string `db:"day"`
		State string `db:"state"`
		Lines int    `db:"line_count"`
	}
	days, err := businessrow.New[dayRow](ctx, d.db, holdfast.TableSpec{Table: "days", Key: []string{"day"}}, businessrow.Options{Compare: []string{"line_count"}})
	if err != nil {
		return err
	}
	_, err = days.Do(ctx, dayRow{day, "fed", lines}, func(context.Context, *sql.Tx) error { return nil })
	return err
}

// writeFile writes the file of a day, with merchants in mixed order.
func writeFile(w io.Writer, day string, rows int) error {
	out := csv.NewWriter(w)
	for i := range rows {
		line := []string{fmt.Sprintf("%s-%07d", day, i), "merchant-" + strconv.Itoa(i*7919%merchants), strconv.Itoa(100 + i%900)}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

const merchants = 40

// sum returns the total of the lines of such a file.
func sum(rows int) (total int64) {
	for i := range rows {
		total += int64(100 + i%900)
	}
	return total
}

// newDay returns a day that no other run uses.
func newDay() string { return time.Now().UTC().Format("2006-01-02T150405.000000") }
