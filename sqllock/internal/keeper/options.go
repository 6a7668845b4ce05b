package keeper

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults and bounds, as package sqllock documents them.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 50 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	MaxHolder  = 255
)

// Options are the options of a Locker.
type Options struct {
	TTL    time.Duration
	Margin time.Duration
	Holder string
	// ReleaseOnDisconnect: see sqllock.Options.
	ReleaseOnDisconnect bool
}

// WithDefaults checks the options and fills in the defaults.
func (o Options) WithDefaults() (Options, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Holder == "" {
		o.Holder = core.DefaultHolder()
	}
	if len(o.Holder) > MaxHolder || !utf8.ValidString(o.Holder) || strings.ContainsRune(o.Holder, 0) {
		return o, Invalid("Options.Holder", fmt.Sprintf("is not valid UTF-8 without NUL bytes, of at most %d bytes", MaxHolder))
	}
	if err := checkTTL("Options.TTL", o.TTL); err != nil {
		return o, err
	}
	return o, options.Wait.Or("the default").UpTo(o.TTL/2).Check("Options.Margin", o.Margin)
}

func checkTTL(field string, ttl time.Duration) error {
	return options.Span{Least: MinTTL, Most: MaxTTL}.Check(field, ttl)
}

// Settings are the settings of one lease.
type Settings struct {
	TTL, Margin time.Duration
	Once        bool            // is not renewed
	By          any             // who may acquire it again; nil if it is not re-entrant
	Values      context.Context // supplies the values of the lease's context
	// Within is a context of Do, with which the lease's context ends, too, unless By is set. If the lease is made under
	// Mu, it is one of package context: another one's Err may take Mu.
	Within context.Context
}

// Settings returns the settings of a lease with its own TTL. A ttl of 0 means the TTL of the
// options.
func (o Options) Settings(ttl time.Duration, once bool) (Settings, error) {
	s := Settings{TTL: o.TTL, Once: once}
	if ttl != 0 {
		if err := checkTTL("AcquireOptions.TTL", ttl); err != nil {
			return s, err
		}
		s.TTL = ttl
	}
	s.Margin = s.TTL / 10
	if o.Margin > 0 {
		s.Margin = min(o.Margin, s.TTL/2)
	}
	return s, nil
}

type valuesKey struct{}

// WithValues returns ctx for a call whose lease's context takes its values from values. So that
// context does not contain the spans that were started in between.
func WithValues(ctx, values context.Context) context.Context {
	return context.WithValue(ctx, valuesKey{}, values)
}

// ValuesOf returns the context that supplies the values of a lease's context.
func ValuesOf(ctx context.Context) context.Context {
	if values, ok := ctx.Value(valuesKey{}).(context.Context); ok {
		return values
	}
	return ctx
}
