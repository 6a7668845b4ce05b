package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"time"
)

// session makes and checks the cookie of a signed-in browser: a time and a nonce under a MAC whose
// key derives from the token, so that the cookie does not contain the token.
type session struct {
	token  [sha256.Size]byte
	key    []byte
	cookie string
	secure bool
}

func newSession(token string, secure bool) session {
	derive := func(what string) []byte {
		mac := hmac.New(sha256.New, []byte(token))
		mac.Write([]byte("holdfast console " + what))
		return mac.Sum(nil)
	}
	// Cookies ignore the port, so two consoles on a host need two names.
	name := "holdfast_console_" + hex.EncodeToString(derive("cookie")[:4])
	return session{token: sha256.Sum256([]byte(token)), key: derive("session"), cookie: name, secure: secure}
}

// is reports whether this is the token, in constant time.
func (s *session) is(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

const stampSize = 8 + 16 // the end in seconds, a nonce

func (s *session) mac(stamp []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(stamp)
	return mac.Sum(nil)
}

// begin signs the browser in. The cookie's path is the one below which the console is mounted. The
// browser knows that path and this handler does not.
func (s *session) begin(w http.ResponseWriter, r *http.Request) {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(SessionLife).Unix())) //nolint:gosec // after 1970
	stamp = append(stamp, make([]byte, stampSize-len(stamp))...)
	_, _ = rand.Read(stamp[8:]) // never fails
	s.set(w, r, base64.RawURLEncoding.EncodeToString(append(stamp, s.mac(stamp)...)), int(SessionLife.Seconds()))
}

func (s *session) end(w http.ResponseWriter, r *http.Request) { s.set(w, r, "", -1) }

func (s *session) set(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where there is TLS: on the loopback address there is none
		Name: s.cookie, Value: value, MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.secure || r.TLS != nil,
	})
}

// has reports whether the request comes from a browser that is signed in.
func (s *session) has(r *http.Request, now time.Time) bool {
	for _, cookie := range r.CookiesNamed(s.cookie) {
		b, err := base64.RawURLEncoding.DecodeString(cookie.Value)
		if err != nil || len(b) != stampSize+sha256.Size || !hmac.Equal(b[stampSize:], s.mac(b[:stampSize])) {
			continue
		}
		if end := binary.BigEndian.Uint64(b); uint64(now.Unix()) < end { //nolint:gosec // after 1970
			return true
		}
	}
	return false
}
