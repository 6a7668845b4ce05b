package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/shape"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const defaultUpdateGrace = 14 * 24 * time.Hour

// line is a version line of the server on which the tables have been, such as "MySQL 8.4".
type line struct {
	product string
	proven  bool          // holdfast prove has passed there
	age     time.Duration // since it was first seen, by the database's clock
}

// cutLines takes the version lines out of what shape has read.
func cutLines(found []string) (shapes []string, lines []line) {
	for _, l := range found {
		text, is := strings.CutPrefix(l, shape.Line)
		if !is {
			shapes = append(shapes, l)
			continue
		}
		product, detail, _ := strings.Cut(text, "\t")
		lines = append(lines, lineOf(product, detail))
	}
	return shapes, lines
}

// lineOf reads the last two columns of Admission.Lines.
func lineOf(product, detail string) line {
	age, _ := strconv.ParseInt(detail, 10, 64) // 0 if it is proven
	return line{product, detail == dialect.LineProven, time.Duration(age) * time.Microsecond}
}

// admitLine decides about a server of a version line that no test run names. It may be used if holdfast prove
// has passed there; and for Options.UpdateGrace after it was first seen, if the tables were on an earlier
// line of the same product that may be used: the server was updated below programs that must go on.
func (d *DB[Tx]) admitLine(ctx context.Context, q core.Querier, product string, lines []line) error {
	left, known, updated := d.options.UpdateGrace, false, false
	for _, l := range lines {
		switch {
		case l.product == product && l.proven:
			return nil
		case l.product == product:
			known = true
			left -= l.age
		case follows(product, l.product) && (l.proven || d.dialect.Admission.Versions.Names(l.product)):
			updated = true
		}
	}
	untested := d.untested(product)
	switch {
	case !updated || left <= 0:
		return untested
	case !known:
		_, err := d.dialect.SeenLine(d.table("servers")).Exec(ctx, q, product)
		if err != nil {
			return errors.Join(untested, fmt.Errorf("holdfast: beginning its grace: %w", err))
		}
	}
	if !d.trace.On() { // no tracer takes it
		slog.WarnContext(ctx, "holdfast: the server was updated to a version on which nothing was shown: run holdfast prove --record before programs refuse it", "server", product, "in", left.Round(time.Minute))
	}
	d.trace.Emit(ctx, trace.Event{Name: trace.ServerUnproven, Duration: left, Err: untested})
	return nil
}

// updated decides about a later connection, to another version line than Open saw: the server may have been
// updated while the program runs.
func (d *DB[Tx]) updated(ctx context.Context, q core.Querier, is dialect.Identity) error {
	switch {
	case is.Standing == dialect.Unfit || !follows(is.Product, d.product):
	case is.Standing == dialect.Tested || is.Product == d.options.Untested:
		return nil
	case d.dialect.Admission.Lines != "":
		rows, err := core.Stmt{Name: "lines", Text: d.lines()}.Query(ctx, q)
		if err != nil {
			return err
		}
		lines, err := core.Collect(rows, func(row core.Row) (l line, err error) {
			var of, kind, detail string
			err = row.Scan(&of, &kind, &l.product, &detail)
			return lineOf(l.product, detail), err
		})
		if err != nil {
			return err
		}
		return d.admitLine(ctx, q, is.Product, lines)
	}
	return &UnsupportedError{Engine: d.product, Check: "engine", What: "a later connection", Value: is.Product, Problem: "another server answers at this address", Remedy: "open Holdfast anew, on one server"}
}

// lines is the query for the version lines.
func (d *DB[Tx]) lines() string {
	return strings.NewReplacer("{servers}", d.table("servers"), "{now}", d.dialect.Now).Replace(d.dialect.Admission.Lines)
}

func (d *DB[Tx]) untested(product string) error {
	remedy := fmt.Sprintf("open with holdfast.Options{Untested: %q}, if `holdfast prove` passes there", product)
	if d.dialect.Admission.Lines != "" {
		remedy = fmt.Sprintf("run `holdfast prove --record` there, which takes about a minute: when it passes, programs and commands open it; or declare it: holdfast.Options{Untested: %q}", product)
	}
	return &UnsupportedError{
		Engine: product, Check: "engine", What: "engine", Remedy: remedy,
		Problem: "no test run names it, so no promise was shown on it (tested: " + strings.Join(d.dialect.Admission.Versions.Tested, ", ") + ")",
	}
}

// follows reports whether a product's version line is a later one of the other's.
func follows(product, other string) bool {
	name, version := cutVersion(product)
	otherName, otherVersion := cutVersion(other)
	return name == otherName && slices.Compare(version, otherVersion) > 0
}

// cutVersion returns the name of a product and the numbers of its version.
func cutVersion(product string) (name string, version []int) {
	i := strings.LastIndexByte(product, ' ')
	if i < 0 {
		return product, nil
	}
	for text := range strings.SplitSeq(product[i+1:], ".") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return product, nil
		}
		version = append(version, n)
	}
	return product[:i], version
}
