package idemhttp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/canonical"
)

// content is the default of Options.Fingerprint: what a client makes anew when it sends the same thing again does not
// count.
type content struct {
	max  int64                     // bound of a body without its compression
	pick func(doc any) (any, bool) // chooses the part of a JSON body that counts; nil for all
}

// fingerprint writes a length before each part, so that no two different requests give the same bytes. The path is the
// path of the request, not the pattern of the route, because parameters distinguish requests. The body is included as a
// hash, because its canonical form may be six times as long as the body itself.
func (c content) fingerprint() func(r *http.Request, body []byte) ([]byte, error) {
	return func(r *http.Request, body []byte) ([]byte, error) {
		sum := sha256.New()
		kind := c.write(sum, r.Header, body)
		if kind == "" {
			kind = "bytes"
			sum.Reset()
			sum.Write(body)
		}
		query := r.URL.RawQuery
		if strings.Contains(query, "&") {
			query = byName(query)
		}
		var b []byte
		for _, part := range []string{"holdfast http 3", r.Method, r.URL.EscapedPath(), query, kind, string(sum.Sum(nil))} {
			b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
			b = append(b, part...)
		}
		return b, nil
	}
}

// write writes what counts of a body, and returns its kind, or "" if its bytes count.
func (c content) write(to hash.Hash, h http.Header, body []byte) string {
	if strings.EqualFold(h.Get("Content-Encoding"), "gzip") {
		if c.unzip(to, body) {
			return "gzip"
		}
		to.Reset()
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil:
	case media == "application/json", strings.HasSuffix(media, "+json"):
		if c.pick != nil && c.writeFields(to, body) {
			return "fields"
		}
		if canonical.Write(to, body) == nil { // else it is not valid JSON after all
			return "json"
		}
	case media == "application/x-www-form-urlencoded":
		to.Write([]byte(byName(string(body))))
		return "form"
	case strings.HasPrefix(media, "multipart/") && writeParts(to, body, params["boundary"]):
		return media
	}
	return ""
}

// unzip writes the content of a body, but not the time in its header. It returns false if the content is too large.
func (c content) unzip(to io.Writer, body []byte) bool {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return false
	}
	n, err := io.Copy(to, io.LimitReader(z, c.max+1))
	return err == nil && n <= c.max
}

// writeParts writes the parts of a form, each as two hashes, without the boundary between them.
func writeParts(to io.Writer, body []byte, boundary string) bool {
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	sum := sha256.New()
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			return boundary != "" && errors.Is(err, io.EOF)
		}
		sum.Reset()
		_ = http.Header(part.Header).Write(sum) // in the order of its names
		_, _ = to.Write(sum.Sum(nil))
		sum.Reset()
		if _, err := io.Copy(sum, part); err != nil {
			return false
		}
		_, _ = to.Write(sum.Sum(nil))
	}
}

// byName sorts the parameters of a query by name. Those of one name keep their order, which a list has.
func byName(query string) string {
	parameters := strings.Split(query, "&")
	slices.SortStableFunc(parameters, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return cmp.Compare(a, b)
	})
	return strings.Join(parameters, "&")
}

// writeFields writes the fields of a JSON body that count.
func (c content) writeFields(to hash.Hash, body []byte) bool {
	part, ok := fields(body, c.pick)
	if ok && canonical.Write(to, part) == nil {
		return true
	}
	to.Reset()
	return false
}

// mismatchHint says what makes the same body, sent again, another request to fingerprint.
func mismatchHint(h http.Header) string {
	if coding := h.Get("Content-Encoding"); coding == "" || strings.EqualFold(coding, "gzip") {
		return ""
	}
	return " A body that is compressed otherwise than by gzip is compared byte by byte. To send the first request again, send the bytes of its body again, or do not compress it."
}
