package idemclient

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

// The header fields of the profile.
const (
	// HeaderKey carries the key in a request.
	HeaderKey = "Idempotency-Key"
	// HeaderReplayed is "true" in a response that was replayed from the record.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderOriginal is the id of the request that executed the operation, in a response that was
	// replayed: see idemhttp.Options.
	HeaderOriginal = "Idempotency-Original-Request"
	// HeaderConfirm has, in a response of ProblemSimilar, the token that confirms the request,
	// and in a request the token of the response that its user has answered with yes.
	HeaderConfirm = "Idempotency-Confirm"
)

var (
	// ErrKeyMissing means that a request has no Idempotency-Key.
	ErrKeyMissing = errcode.New("http-key-missing", "idemclient: Idempotency-Key is missing")

	// ErrKeyMalformed means that a request's Idempotency-Key is empty, given more than once, or
	// not a string.
	ErrKeyMalformed = errcode.New("http-key-malformed", "idemclient: Idempotency-Key is malformed")
)

// ParseKey reads the key of a request. It accepts a String of a structured field, in quotes, as
// section 2.1 of the draft defines it (the syntax is that of RFC 9651, section 3.3.3; parameters
// are ignored). It also accepts the same text without quotes, as most clients send it: visible
// ASCII without quote, comma and semicolon, because those could come from two fields that a proxy
// joined. The quoted and the bare form are the same key.
//
// Errors: [ErrKeyMissing], [ErrKeyMalformed].
func ParseKey(h http.Header) (string, error) {
	values := h.Values(HeaderKey)
	if len(values) == 0 {
		return "", ErrKeyMissing
	}
	if len(values) > 1 {
		return "", fmt.Errorf("%w: %d fields are given, one is allowed", ErrKeyMalformed, len(values))
	}
	value := strings.Trim(values[0], " \t")
	key := value
	if strings.HasPrefix(value, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{value})
		if err != nil {
			return "", fmt.Errorf(`%w: it begins with a quote and is not one quoted string such as "7f9c": %w`, ErrKeyMalformed, err)
		}
		key, _ = item.Value.(string) // an item that begins with a quote is a string
	} else if i := strings.IndexFunc(value, notBare); i >= 0 {
		return "", fmt.Errorf(`%w: byte %d of it has to be in a quoted string such as "7f9c"`, ErrKeyMalformed, i+1)
	}
	if key == "" {
		return "", fmt.Errorf("%w: it is empty", ErrKeyMalformed)
	}
	return key, nil
}

func notBare(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;`, r) }

// FormatKey quotes a key for the header, as section 2.1 of the draft defines it.
//
// Errors: [ErrKeyMalformed] for an empty key, and for a key with characters other than printable
// ASCII.
func FormatKey(key string) (string, error) {
	if key == "" {
		return "", fmt.Errorf("%w: it is empty", ErrKeyMalformed)
	}
	quoted, err := httpsfv.Marshal(httpsfv.NewItem(key))
	if err != nil {
		return "", fmt.Errorf("%w: %q is not printable ASCII", ErrKeyMalformed, key)
	}
	return quoted, nil
}
