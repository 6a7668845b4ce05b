//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// onText calls f once, when what was written contains a text.
type onText struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	f    func()
}

func (o *onText) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if o.f != nil && strings.Contains(o.text.String(), o.want) {
		f := o.f
		o.f = nil
		f()
	}
	return len(b), nil
}

// then sets the next call, for what is written from now on.
func (o *onText) then(want string, f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Reset()
	o.want, o.f = want, f
}

// TestWatchGoesOn cuts the network after the first list, lets it come back after the first error, and wants
// another list.
func TestWatchGoesOn(t *testing.T) {
	onNetworks(t, func(_, far shop, proxy *faultproxy.Proxy) {
		ctx, cancel := context.WithTimeout(far.Context(), dbtest.Hang)
		defer cancel()
		var out, said onText
		said.then("holdfast: ", func() {
			out.then("[]\n", cancel)
			proxy.Refuse(false)
		})
		out.then("[]\n", proxy.Down)
		code := run(ctx, []string{"locks", "list", "-json", "--watch=100ms", "-dsn", far.url}, &out, &said)
		if code != exitOK || !errors.Is(context.Cause(ctx), context.Canceled) {
			far.Errorf("status %d, %q, %q", code, out.text.String(), said.text.String())
		}
		if text := said.text.String(); !strings.Contains(text, "; trying again in 100ms\n") || strings.Contains(text, "pw@") {
			far.Errorf("it says %q", text)
		}
	})
}

// TestWatchEnds checks what ends --watch: an error of the first list, and an output without a reader.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	url := existingDSN(t, dbtest.SQLite)
	if code, out, said := command(t, "locks", "list", "--watch=100ms", "-dsn", url); code == exitOK || out != "" || strings.Contains(said, "trying again") {
		t.Errorf("without tables: status %d, %q, %q", code, out, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), dbtest.Hang)
	defer cancel()
	var said strings.Builder
	if code := run(ctx, []string{"locks", "list", "--watch=100ms", "-dsn", migrated1(t)}, &closes{after: 2}, &said); code != exitFailed || ctx.Err() != nil || strings.Contains(said.String(), "trying again") {
		t.Errorf("a closed output: status %d, %q", code, said.String())
	}
}

// closes fails after some writes.
type closes struct{ after int }

func (c *closes) Write(b []byte) (int, error) {
	if c.after--; c.after < 0 {
		return 0, errors.New("closed")
	}
	return len(b), nil
}
