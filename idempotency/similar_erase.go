package idempotency

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// eraseSimilar deletes an owner's rows of Similar: both their keys and what they hash may be personal.
func (s *Store[Tx]) eraseSimilar(ctx context.Context, e erasing) error {
	for after := []byte{}; after != nil; {
		rows, err := s.sql.similar.find.Query(ctx, s.access.Pool, e.Owner, s.options.Namespace, e.Name, after, erasePage)
		if err != nil {
			return s.explain(err)
		}
		hashes, err := core.Collect(rows, core.Value[[]byte])
		if err != nil {
			return err
		}
		if after = nil; len(hashes) == erasePage {
			after = hashes[len(hashes)-1]
		}
		for batch := range slices.Chunk(hashes, eraseBatch) {
			text := strings.ReplaceAll(s.sql.similar.erase, "{hashes}", dialect.Params(len(batch)))
			args := []any{e.Owner}
			for _, h := range batch {
				args = append(args, h)
			}
			if _, err := s.erase(ctx, e, "similar", s.dialect().Compile("erase.write", text), args); err != nil {
				return s.explain(err)
			}
		}
	}
	return nil
}
