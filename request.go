package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// WithRequestID returns a context whose operations are recorded with id: the id of the request, or
// of the trace, that they are executed for. Operators see it beside the operation, and it leads from
// a record to the logs; a replay names it as CallResult.Original. It is kept as long as the result.
// id is cut to 255 bytes; it must not be personal data. See also RequestID.
func WithRequestID(ctx context.Context, id string) context.Context {
	return core.WithRequestID(ctx, id)
}

// RequestID returns the id that WithRequestID has put into ctx; empty for none.
func RequestID(ctx context.Context) string { return core.RequestID(ctx) }
