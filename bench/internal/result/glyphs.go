package result

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// glyphCanvas draws an SVG whose texts are shapes, so that it looks the same with any fonts. A
// shape is written once and used again.
type glyphCanvas struct {
	*vgsvg.Canvas
	title string
	texts []placed
}

// placed is a text with its font.
type placed struct {
	face plotfont.Face
	text string
}

// FillString leaves the number of the text, which WriteTo replaces.
func (c *glyphCanvas) FillString(face plotfont.Face, at vg.Point, text string) {
	c.Canvas.FillString(face, at, strconv.Itoa(len(c.texts)))
	c.texts = append(c.texts, placed{face, text})
}

// What vgsvg writes for a text: its place, its colour and the text.
var (
	textElement = regexp.MustCompile(`(?s)<text x="([^"]*)" y="([^"]*)" transform="scale\(1, -1\)"(.*?)>(\d+)</text>`)
	fillOf      = regexp.MustCompile(`fill:(#[0-9A-Fa-f]+)`)
	header      = regexp.MustCompile(`(?s)^<\?xml.*?<svg width="([^"]*)" height="([^"]*)" viewBox="([^"]*)".*?>`)
)

// WriteTo writes the SVG.
func (c *glyphCanvas) WriteTo(w io.Writer) (int64, error) {
	var drawn bytes.Buffer
	if _, err := c.Canvas.WriteTo(&drawn); err != nil {
		return 0, err
	}
	shapes := &shapes{known: map[string]string{}}
	var err error
	body := textElement.ReplaceAllStringFunc(drawn.String(), func(element string) string {
		found := textElement.FindStringSubmatch(element)
		n, _ := strconv.Atoi(found[4])
		uses, e := shapes.text(c.texts[n])
		if e != nil {
			err = e
		}
		fill := ""
		if colour := fillOf.FindStringSubmatch(found[3]); colour != nil {
			fill = ` fill="` + colour[1] + `"`
		}
		return fmt.Sprintf(`<g transform="scale(1,-1) translate(%s,%s)"%s>%s</g>`, found[1], found[2], fill, uses)
	})
	if err != nil {
		return 0, err
	}
	body = header.ReplaceAllString(body, `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="$1" height="$2" viewBox="$3" role="img">`+
		"\n<title>"+html.EscapeString(strings.ReplaceAll(c.title, "$", "$$"))+"</title>\n<defs>\n"+shapes.defs.String()+"</defs>")
	n, err := io.WriteString(w, body)
	return int64(n), err
}

// shapes are the letters that a picture uses.
type shapes struct {
	known map[string]string // the id of a letter in a font of a size
	defs  strings.Builder
	buf   sfnt.Buffer
}

// text returns the elements that show a text from the origin on.
func (s *shapes) text(p placed) (string, error) {
	const fine = 64 // glyphs are placed in 64ths of a point
	size := fixed.Int26_6(p.face.Font.Size.Points() * fine)
	var uses strings.Builder
	var x fixed.Int26_6
	before := sfnt.GlyphIndex(0)
	for _, r := range p.text {
		glyph, err := p.face.Face.GlyphIndex(&s.buf, r)
		if err != nil {
			return "", err
		}
		if before != 0 {
			if kern, err := p.face.Face.Kern(&s.buf, before, glyph, size, font.HintingNone); err == nil {
				x += kern
			}
		}
		before = glyph
		id, err := s.glyph(p.face, glyph, size)
		if err != nil {
			return "", err
		}
		if id != "" {
			fmt.Fprintf(&uses, `<use xlink:href="#%s" x="%s"/>`, id, short(x))
		}
		advance, err := p.face.Face.GlyphAdvance(&s.buf, glyph, size, font.HintingNone)
		if err != nil {
			return "", err
		}
		x += advance
	}
	return uses.String(), nil
}

// glyph defines a letter, if it is new, and returns its id; "" for a space.
func (s *shapes) glyph(face plotfont.Face, glyph sfnt.GlyphIndex, size fixed.Int26_6) (string, error) {
	key := fmt.Sprint(face.Name(), size, glyph)
	if id, ok := s.known[key]; ok {
		return id, nil
	}
	segments, err := face.Face.LoadGlyph(&s.buf, glyph, size, nil)
	if err != nil {
		return "", err
	}
	if len(segments) == 0 {
		s.known[key] = ""
		return "", nil
	}
	id := "g" + strconv.FormatInt(int64(len(s.known)), 36)
	s.known[key] = id
	fmt.Fprintf(&s.defs, `<path id="%s" d="`, id)
	for _, segment := range segments {
		points := 1
		switch segment.Op {
		case sfnt.SegmentOpMoveTo:
			s.defs.WriteString("M")
		case sfnt.SegmentOpLineTo:
			s.defs.WriteString("L")
		case sfnt.SegmentOpQuadTo:
			s.defs.WriteString("Q")
			points = 2
		case sfnt.SegmentOpCubeTo:
			s.defs.WriteString("C")
			points = 3
		}
		for i, at := range segment.Args[:points] {
			if i > 0 {
				s.defs.WriteString(" ")
			}
			s.defs.WriteString(short(at.X) + " " + short(at.Y))
		}
	}
	s.defs.WriteString("Z\"/>\n")
	return id, nil
}

// short formats a length in points with two decimals at most.
func short(v fixed.Int26_6) string {
	return strconv.FormatFloat(math.Round(float64(v)/64*100)/100, 'f', -1, 64)
}
