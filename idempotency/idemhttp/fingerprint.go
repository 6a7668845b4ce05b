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
		if _, err := canonical.Write(sum, body); err != nil { // not valid JSON after all
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

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
