package idemhttp

import (
	"crypto/sha256"
	"encoding/binary"
	"mime"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/internal/canonical"
)

// fingerprint is the default of Options.Fingerprint. The length precedes each part, so that no two
// different requests give the same bytes. The path is the path of the request, not the pattern of
// the route, because parameters distinguish requests. The body is included as a hash, because its
// canonical form may be six times as long as the body itself.
func fingerprint(r *http.Request, body []byte) ([]byte, error) {
	kind, sum := "bytes", sha256.New()
	if isJSON(r.Header.Get("Content-Type")) {
		kind = "json"
		if canonical.Write(sum, body) != nil { // not valid JSON after all
			kind = "bytes"
			sum.Reset()
		}
	}
	if kind == "bytes" {
		sum.Write(body)
	}
	var b []byte
	for _, part := range []string{"holdfast http 2", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, kind, string(sum.Sum(nil))} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

// mismatchHint says what makes the same form, sent again, another request to fingerprint.
func mismatchHint(h http.Header) string {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // empty if it is malformed
	again := " To send the first request again, send the bytes of its body again, or send JSON."
	switch {
	case strings.HasPrefix(media, "multipart/"):
		return " A body of type " + media + " is compared byte by byte, and a form that is made anew has a new boundary." + again
	case h.Get("Content-Encoding") != "":
		return " A compressed body is compared byte by byte, and its header may have the time of the compression." + again
	}
	return ""
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
