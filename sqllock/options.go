package sqllock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Defaults and bounds of Options.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 50 * time.Millisecond
	MaxTTL     = 24 * time.Hour

	// MaxHolder is the longest name of a holder, in bytes.
	MaxHolder = 255
)

// Options configure a Locker; the zero value of each field is its default.
type Options struct {
	// TTL is how long a lease lasts from its grant or its last renewal, by
	// the database's clock, exact to the microsecond: MinTTL to MaxTTL.
	// Renewal begins after a third of it. Default: 30 s.
	TTL time.Duration
	// Margin is how much earlier than its expiry a lease's context ends: what
	// the database's clock may gain on this process's within a TTL. At most
	// half of the TTL. Default: a tenth of the TTL.
	Margin time.Duration
	// Holder names this process to others, at most 255 bytes of UTF-8. It is
	// for people to look at: ownership never rests on it. Default: host
	// name and process id.
	Holder string
}

func (o *Options) withDefaults() error {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Holder == "" {
		host, _ := os.Hostname() // a name for people; it may be missing
		o.Holder = host + ":" + strconv.Itoa(os.Getpid())
	}
	if len(o.Holder) > MaxHolder || !utf8.ValidString(o.Holder) || strings.ContainsRune(o.Holder, 0) {
		return invalid("Options.Holder", fmt.Sprintf("is not valid UTF-8 without NUL bytes, of at most %d bytes", MaxHolder))
	}
	if err := checkTTL("Options.TTL", o.TTL); err != nil {
		return err
	}
	if o.Margin < 0 || o.Margin > o.TTL/2 {
		return invalid("Options.Margin", fmt.Sprintf("%v is not between 0 (default) and half of the TTL, %v", o.Margin, o.TTL/2))
	}
	return nil
}

func checkTTL(field string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid(field, fmt.Sprintf("%v is not between %v and %v", ttl, MinTTL, MaxTTL))
	}
	return nil
}

// Option changes how one lease is acquired.
type Option func(*settings)

// settings are those of one lease.
type settings struct {
	ttl, margin time.Duration
	once        bool // is not renewed
	by          *Owner
	values      context.Context // of the call
	err         error
}

// WithTTL is Options.TTL for one lease. Its margin is Options.Margin, where
// that was given, but at most half of ttl; else a tenth of ttl.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl, s.err = ttl, checkTTL("WithTTL", ttl) }
}

// WithoutRenewal lets the lease end with its TTL, at most.
func WithoutRenewal() Option { return func(s *settings) { s.once = true } }

func (o *Options) settings(opts []Option) (settings, error) {
	s := settings{ttl: o.TTL}
	for _, f := range opts {
		if f(&s); s.err != nil {
			return s, s.err
		}
	}
	s.margin = s.ttl / 10
	if o.Margin > 0 {
		s.margin = min(o.Margin, s.ttl/2)
	}
	return s, nil
}
