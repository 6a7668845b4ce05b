package core

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"sync"
)

// maxText bounds the texts that say who executed an operation, in bytes.
const maxText = 255

// Program returns the version of this program for people: the main module's path and version, with
// the first characters of its revision. It is empty if the program was built without modules.
var Program = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	text := cmp.Or(info.Main.Path, info.Path)
	if v := info.Main.Version; v != "" {
		text += "@" + v
	}
	if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }); i >= 0 {
		revision := info.Settings[i].Value
		text += " " + revision[:min(len(revision), 12)]
	}
	return text[:min(len(text), maxText)]
})

type requestIDKey struct{}

// WithRequestID returns a context of the work for one request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx works for; empty for none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
