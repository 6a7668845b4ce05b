package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

var prove = dialect.Prove{
	Slow: `INSERT INTO {effects} (id, k) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT -x, 0 FROM c`,
}
