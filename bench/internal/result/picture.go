package result

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture defines the drawing of a table.
type Picture struct {
	Key   string `json:"key"`
	Axis  string `json:"axis"`
	Curve bool   `json:"curve,omitempty"`
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
		drawn, err := t.write(filepath.Join(dir, name))
		if err != nil {
			return names, fmt.Errorf("%s: %w", name, err)
		}
		if drawn {
			t.File = name
			names = append(names, name)
		}
	}
	return names, nil
}

// width is the width of a picture: 800 px.
const width = 800 * vg.Inch / 96

// write draws the table into a file. It does nothing if no row has the figure.
func (t *Table) write(path string) (drawn bool, err error) {
	panels, height, err := t.draw()
	if err != nil || len(panels) == 0 {
		return false, err
	}
	c := &glyphCanvas{Canvas: vgsvg.New(width, height*vg.Length(len(panels))), title: t.Title}
	canvas := draw.New(c)
	canvas.SetColor(color.White) // dark pages show through otherwise
	canvas.Fill(canvas.Path())
	for i, p := range panels {
		above, below := height*vg.Length(i), height*vg.Length(len(panels)-1-i)
		p.Draw(draw.Crop(canvas, margin, -margin, below+margin, -above-margin))
	}
	f, err := os.Create(path) //nolint:gosec // the user names the folder
	if err != nil {
		return false, err
	}
	_, err = c.WriteTo(f)
	return true, errors.Join(err, f.Close())
}

// margin is the space around a picture.
const margin = 8 * vg.Length(1)

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

// draw returns the plots of the table, to be drawn one below the other, and the height of each.
func (t *Table) draw() ([]*plot.Plot, vg.Length, error) {
	var shown []Row
	for _, r := range t.Rows {
		if _, ok := r.Values[t.Picture.Key]; ok {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return nil, 0, nil
	}
	title := t.Title
	if t.Clients > 0 {
		title += ", " + clients(t.Clients)
	}
	if !t.Picture.Curve {
		p := newPlot(title)
		return []*plot.Plot{p}, vg.Length(14*len(shown) + 76), t.bars(p, shown)
	}
	var panels []*plot.Plot
	for _, panel := range panelsOf(shown) {
		p := newPlot(title)
		if len(panel) < len(shown) {
			p.Title.Text += "\n" + panel[0].Name
		}
		if err := t.curves(p, panel); err != nil {
			return nil, 0, err
		}
		panels = append(panels, p)
	}
	return panels, 300, nil
}

// panelsOf returns the rows of one plot, or, if these are more lines than there are colours, of
// one for each name.
func panelsOf(shown []Row) [][]Row {
	seen := map[string]bool{}
	byName := map[string]int{}
	var panels [][]Row
	for _, r := range shown {
		seen[r.Group+": "+r.Name] = true
		i, ok := byName[r.Name]
		if !ok {
			i = len(panels)
			byName[r.Name] = i
			panels = append(panels, nil)
		}
		panels[i] = append(panels[i], r)
	}
	if len(seen) <= len(lines) {
		return [][]Row{shown}
	}
	return panels
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.BackgroundColor = color.White
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant, style.Font.Size, style.Color = "Sans", font.Points(9), ink
	}
	p.Title.TextStyle.Font.Size = font.Points(11)
	return p
}

// bars draws a bar for each row, the first row on top, with its figure behind it.
func (t *Table) bars(p *plot.Plot, shown []Row) error {
	names := make([]string, len(shown))
	figures := plotter.XYLabels{XYs: make(plotter.XYs, len(shown)), Labels: make([]string, len(shown))}
	most := 0.0
	for i, r := range shown {
		at := len(shown) - 1 - i
		names[at] = proper(r.Group) + ": " + r.Name
		v := r.Values[t.Picture.Key].Median
		bar, err := plotter.NewBarChart(plotter.Values{v}, vg.Points(9))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(at), kinds[r.Kind], 0
		p.Add(bar)
		figures.XYs[at], figures.Labels[at], most = plotter.XY{X: v, Y: float64(at)}, Number(v), max(most, v)
	}
	labels, err := plotter.NewLabels(figures)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant, labels.TextStyle[i].Font.Size = "Sans", font.Points(8)
		labels.TextStyle[i].Color, labels.TextStyle[i].YAlign = ink, text.YCenter
	}
	labels.Offset = vg.Point{X: vg.Points(3), Y: vg.Points(0.7)}
	p.Add(labels)
	p.NominalY(names...)
	p.X.Label.Text = t.Picture.Axis
	p.X.Min, p.X.Max = 0, most*1.1 // the figure of the longest bar has space
	p.Y.Min, p.Y.Max = -0.6, float64(len(shown))-0.4
	p.Y.Tick.Label.Font.Size = font.Points(8)
	p.X.Tick.Marker = shortTicks{}
	return nil
}

// curves draws a line over Row.At for each group and name.
func (t *Table) curves(p *plot.Plot, shown []Row) error {
	alike := !slices.ContainsFunc(shown, func(r Row) bool { return r.Name != shown[0].Name })
	points := map[string]plotter.XYs{}
	var names []string
	most := 0.0
	for _, r := range shown {
		name := proper(r.Group)
		if !alike {
			name += ": " + r.Name
		}
		if points[name] == nil {
			names = append(names, name)
		}
		v := r.Values[t.Picture.Key].Median
		points[name] = append(points[name], plotter.XY{X: max(1, r.At), Y: v})
		most = max(most, v)
	}
	if len(names) > len(lines) {
		return fmt.Errorf("%d lines, and colours for %d", len(names), len(lines))
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil // it would cross the legend
	p.Add(grid)
	for i, name := range names {
		line, dots, err := plotter.NewLinePoints(points[name])
		if err != nil {
			return err
		}
		line.Color, dots.Color = lines[i], lines[i]
		line.Width = vg.Points(1.5)
		dots.Shape, dots.Radius = draw.CircleGlyph{}, vg.Points(2)
		p.Add(line, dots)
		p.Legend.Add(name, line)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(4), vg.Points(-4)
	if p.X.Max > p.X.Min {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticksAt(shown)
	}
	p.X.Label.Text, p.Y.Label.Text = t.Columns[0].Title, t.Picture.Axis
	// The legend is above the lines.
	const plotHeight, entry = 220, 15
	p.Y.Min, p.Y.Max = 0, most*plotHeight/max(plotHeight/3, plotHeight-entry*float64(len(names)))*1.02
	p.Y.Tick.Marker = shortTicks{most * 1.02}
	return nil
}

// ticksAt returns a tick for each size that was measured.
func ticksAt(shown []Row) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, r := range shown {
		v := max(1, r.At)
		if !slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Value == v }) {
			ticks = append(ticks, plot.Tick{Value: v, Label: Number(v)})
		}
	}
	return ticks
}

// ink is the colour of texts.
var ink = color.RGBA{0x22, 0x28, 0x30, 0xff}

// shortTicks are the default ticks, with thousands abbreviated, up to most, if that is not 0.
type shortTicks struct{ most float64 }

func (s shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	ticks = slices.DeleteFunc(ticks, func(t plot.Tick) bool { return s.most > 0 && t.Value > s.most })
	for i := range ticks {
		if v := ticks[i].Value; ticks[i].Label != "" && v >= 10_000 {
			ticks[i].Label = strings.TrimSuffix(strconv.FormatFloat(v/1000, 'f', 1, 64), ".0") + "k"
		}
	}
	return ticks
}
