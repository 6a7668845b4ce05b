package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// processorSlice is the least length of a slice: Linux counts processor time in ticks.
const processorSlice = time.Second

// Processor measures the processor time of a refund and of a lease, of this program and of its server together,
// against the bare forms.
func Processor(ctx context.Context, p *Plan) ([]result.Table, error) {
	if _, err := busy(); err != nil {
		p.Missing = append(p.Missing, "processor time: "+err.Error())
		return nil, nil //nolint:nilerr // another system
	}
	columns := []result.Column{
		{Key: "x", Title: "ratio", Spread: true},
		{Key: "processor", Title: "µs"},
		{Key: "floor_processor", Title: "its floor's"},
	}
	table := func(title string) result.Table {
		return result.Table{
			Workload: "processor", Title: title, Clients: 1, Columns: columns, Picture: result.Bars("x", "times its floor"),
			Notes: []string{"It is the whole machine's, so nothing else may run."},
		}
	}
	refund := table("Processor time of a refund, program and server together, against the same transaction bare")
	lease := table("Processor time of an acquire and a release, program and server together, against the two bare statements")
	for _, e := range p.Engines {
		list, err := p.enginePairs(ctx, e, 1, false, processors)
		refund.Rows = append(refund.Rows, list...)
		if err == nil {
			list, err = p.lockPairs(ctx, e, again, processors)
			lease.Rows = append(lease.Rows, list...)
		}
		if err != nil {
			return []result.Table{refund, lease}, err
		}
	}
	return []result.Table{refund, lease}, nil
}

// processors compares the processor time of two operations, one after the other.
func processors(ctx context.Context, clients int, length time.Duration, ops []measure.Op) (figures, error) {
	var took [2]float64
	for i, op := range ops {
		before, err := busy()
		if err != nil {
			return nil, err
		}
		t, err := measure.Slice(ctx, clients, max(length, processorSlice), op)
		if err != nil {
			return nil, err
		}
		after, err := busy()
		if err != nil {
			return nil, err
		}
		took[i] = us(after-before) / float64(len(t.Took))
	}
	return figures{"processor": took[0], "floor_processor": took[1], "x": took[0] / took[1]}, nil
}

// busy returns the time for which the machine's processors have worked. Linux counts it in hundredths of a second.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// cpu, user, nice, system, idle, iowait, irq, softirq
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return 0, errors.New("/proc/stat has another form")
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil
}
