package result

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture defines the drawing of a table.
type Picture struct {
	Key, Axis string
	curve     bool
}

// Bars draws a figure of each row as a bar.
func Bars(key, axis string) Picture { return Picture{Key: key, Axis: axis} }

// Curve draws a figure over Row.At, with a line for each group and name.
func Curve(key, axis string) Picture { return Picture{key, axis, true} }

// Pictures draws every table into the folder as SVG and returns the file names.
func (r *Report) Pictures(dir string) (names []string, err error) {
	for i := range r.Tables {
		t := &r.Tables[i]
		name := fmt.Sprintf("%s-%d.svg", t.Workload, i+1)
		p, height, err := t.draw()
		if err != nil {
			return names, fmt.Errorf("%s: %w", name, err)
		}
		if p == nil {
			continue
		}
		c := vgsvg.New(22*vg.Centimeter, height)
		p.Draw(draw.New(c))
		f, err := os.Create(filepath.Join(dir, name)) //nolint:gosec // the user names the folder
		if err != nil {
			return names, err
		}
		_, err = c.WriteTo(f)
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return names, err
		}
		t.File = name
		names = append(names, name)
	}
	return names, nil
}

// colours depend on the kind of a row, or on the number of the line.
var (
	kinds = map[string]color.RGBA{
		"holdfast": {0x1b, 0x7f, 0x5c, 0xff},
		"floor":    {0x8a, 0x93, 0xa0, 0xff},
		"peer":     {0xc2, 0x6a, 0x1a, 0xff},
		"raw":      {0x4a, 0x6f, 0xa5, 0xff},
		"stand-in": {0xb0, 0x8a, 0x5a, 0xff},
		"control":  {0xc9, 0xce, 0xd6, 0xff},
		"canary":   {0xc9, 0xce, 0xd6, 0xff},
	}
	lines = []color.RGBA{
		{0x1b, 0x7f, 0x5c, 0xff},
		{0x4a, 0x6f, 0xa5, 0xff},
		{0xc2, 0x6a, 0x1a, 0xff},
		{0x8a, 0x4f, 0x9e, 0xff},
		{0xa0, 0x2c, 0x3c, 0xff},
		{0x3c, 0x8f, 0xa0, 0xff},
		{0x6b, 0x6b, 0x2c, 0xff},
		{0x55, 0x55, 0x55, 0xff},
	}
)

func (t *Table) draw() (*plot.Plot, vg.Length, error) {
	var shown []Row
	for _, r := range t.Rows {
		if _, ok := r.Values[t.Picture.Key]; ok {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return nil, 0, nil
	}
	p := plot.New()
	p.Title.Text = t.Title
	if t.Clients > 0 {
		p.Title.Text += ", " + clients(t.Clients)
	}
	p.Title.TextStyle.Font.Size = font.Points(11)
	p.BackgroundColor = color.White
	if t.Picture.curve {
		return p, 13 * vg.Centimeter, t.curves(p, shown)
	}
	return p, vg.Length(float64(len(shown))*0.55+3) * vg.Centimeter, t.bars(p, shown)
}

// bars draws a bar for each row, the first row on top.
func (t *Table) bars(p *plot.Plot, shown []Row) error {
	names := make([]string, len(shown))
	for i, r := range shown {
		at := len(shown) - 1 - i
		names[at] = r.Group + ": " + r.Name
		bar, err := plotter.NewBarChart(plotter.Values{r.Values[t.Picture.Key].Median}, vg.Points(9))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(at), kinds[r.Kind], 0
		p.Add(bar)
	}
	p.NominalY(names...)
	p.X.Label.Text = t.Picture.Axis
	p.X.Min = 0
	p.Y.Tick.Label.Font.Size = font.Points(8)
	p.X.Tick.Marker = shortTicks{}
	return nil
}

// curves draws a line over Row.At for each group and name.
func (t *Table) curves(p *plot.Plot, shown []Row) error {
	points := map[string]plotter.XYs{}
	var names []string
	for _, r := range shown {
		name := r.Group + ": " + r.Name
		if points[name] == nil {
			names = append(names, name)
		}
		points[name] = append(points[name], plotter.XY{X: max(1, r.At), Y: r.Values[t.Picture.Key].Median})
	}
	for i, name := range names {
		line, dots, err := plotter.NewLinePoints(points[name])
		if err != nil {
			return err
		}
		line.Color, dots.Color = lines[i%len(lines)], lines[i%len(lines)]
		line.Width = vg.Points(1.2)
		if i >= len(lines) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		dots.Shape, dots.Radius = draw.CircleGlyph{}, vg.Points(2)
		p.Add(line, dots)
		p.Legend.Add(name, line)
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = font.Points(7)
	if p.X.Max > p.X.Min {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.X.Label.Text, p.Y.Label.Text = t.Columns[0].Title, t.Picture.Axis
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.6 // the legend is above the lines
	p.Y.Tick.Marker = shortTicks{}
	return nil
}

// shortTicks are the default ticks, with thousands abbreviated.
type shortTicks struct{}

func (shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if v := ticks[i].Value; ticks[i].Label != "" && v >= 10_000 {
			ticks[i].Label = strings.TrimSuffix(strconv.FormatFloat(v/1000, 'f', 1, 64), ".0") + "k"
		}
	}
	return ticks
}
