package result

import (
	"bytes"
	"fmt"
	"html"
	"io"
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
		scale := strconv.FormatFloat(c.texts[n].face.Font.Size.Points()/em, 'g', 4, 64)
		return fmt.Sprintf(`<g transform="scale(1,-1)translate(%s,%s)scale(%s)"%s>%s</g>`, found[1], found[2], scale, fill, uses)
	})
	if err != nil {
		return 0, err
	}
	body = header.ReplaceAllString(body, `<svg xmlns="http://www.w3.org/2000/svg" width="$1" height="$2" viewBox="$3" role="img">`+
		"\n<title>"+html.EscapeString(strings.ReplaceAll(c.title, "$", "$$"))+"</title>\n<defs>\n"+shapes.defs.String()+"</defs>")
	n, err := io.WriteString(w, body)
	return int64(n), err
}

// em is the size at which letters are defined, so that their points are whole numbers.
const em = 200

// shapes are the letters and words that a picture uses.
type shapes struct {
	known map[string]string // the id of a letter or a word in a font
	defs  strings.Builder
	buf   sfnt.Buffer
}

// text returns the elements that show a text from the origin on. A word is a shape too.
func (s *shapes) text(p placed) (string, error) {
	var uses strings.Builder
	space, err := s.advance(p.face, ' ')
	if err != nil {
		return "", err
	}
	var x fixed.Int26_6
	for word := range strings.SplitSeq(p.text, " ") {
		id, wide, err := s.word(p.face, word)
		if err != nil {
			return "", err
		}
		if id != "" {
			fmt.Fprintf(&uses, `<use href="#%s" x="%s"/>`, id, short(x))
		}
		x += wide + space
	}
	return uses.String(), nil
}

// word defines a word, if it is new, and returns its id and width.
func (s *shapes) word(face plotfont.Face, word string) (id string, wide fixed.Int26_6, err error) {
	var uses strings.Builder
	before := sfnt.GlyphIndex(0)
	for _, r := range word {
		glyph, err := face.Face.GlyphIndex(&s.buf, r)
		if err != nil {
			return "", 0, err
		}
		if before != 0 {
			if kern, err := face.Face.Kern(&s.buf, before, glyph, em*64, font.HintingNone); err == nil {
				wide += kern
			}
		}
		before = glyph
		letter, err := s.glyph(face, glyph)
		if err != nil {
			return "", 0, err
		}
		fmt.Fprintf(&uses, `<use href="#%s" x="%s"/>`, letter, short(wide))
		advance, err := s.advance(face, r)
		if err != nil {
			return "", 0, err
		}
		wide += advance
	}
	key := face.Name() + " " + word
	if word != "" && s.known[key] == "" {
		s.known[key] = s.next()
		fmt.Fprintf(&s.defs, "<g id=\"%s\">%s</g>\n", s.known[key], uses.String())
	}
	return s.known[key], wide, nil
}

// advance returns the width of a letter.
func (s *shapes) advance(face plotfont.Face, r rune) (fixed.Int26_6, error) {
	glyph, err := face.Face.GlyphIndex(&s.buf, r)
	if err != nil {
		return 0, err
	}
	return face.Face.GlyphAdvance(&s.buf, glyph, em*64, font.HintingNone)
}

// next returns a new id.
func (s *shapes) next() string { return "g" + strconv.FormatInt(int64(len(s.known)), 36) }

// glyph defines a letter, if it is new, and returns its id.
func (s *shapes) glyph(face plotfont.Face, glyph sfnt.GlyphIndex) (string, error) {
	key := fmt.Sprint(face.Name(), glyph)
	if id, ok := s.known[key]; ok {
		return id, nil
	}
	segments, err := face.Face.LoadGlyph(&s.buf, glyph, em*64, nil)
	if err != nil {
		return "", err
	}
	id := s.next()
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

// short formats a length in the units of a letter.
func short(v fixed.Int26_6) string { return strconv.Itoa(v.Round()) }
