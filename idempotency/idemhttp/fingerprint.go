package idemhttp

import (
	"encoding/binary"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
)

// fingerprint is the default of Options.Fingerprint. Each part stands behind
// its length, so that no two different requests are the same bytes. The path
// is that of the request and not of the route, whose parameters tell requests
// apart.
func fingerprint(r *http.Request, body []byte) ([]byte, error) {
	kind := "bytes"
	if isJSON(r.Header.Get("Content-Type")) {
		// What is no JSON in truth is told apart by its bytes.
		if c, err := idempotency.Canonical(json.RawMessage(body)); err == nil {
			kind, body = "json", c
		}
	}
	b := make([]byte, 0, len(body)+256)
	for _, part := range []string{"holdfast http 1", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, kind, string(body)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
