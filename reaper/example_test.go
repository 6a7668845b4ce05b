package reaper_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
)

// One refund whose result is kept for a time and its key for ever, and one refund whose key
// expires too.
func Example() {
	if err := sweepTwo(context.Background()); err != nil {
		log.Print(err)
	}
	// Output:
	// due: 1 results
	// due: 1 keys
	// cleared: 1 results in 1 batches
	// cleared: 1 keys in 1 batches
	// kept-key: idempotency: done, result gone
	// lost-key: executed
}

func sweepTwo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	const life = 50 * time.Millisecond
	keeps, err := idempotency.New(ctx, db, idempotency.Options{ResultTTL: life})
	if err != nil {
		return err
	}
	loses, err := idempotency.New(ctx, db, idempotency.Options{ResultTTL: life, KeyTTL: life})
	if err != nil {
		return err
	}
	refund := func(s *idempotency.Store[*sql.Tx], key string) (idempotency.Outcome, error) {
		op := idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}
		r, err := idempotency.Do(ctx, s, op, func(context.Context, *sql.Tx) (string, error) { return "done", nil })
		return r.Outcome, err
	}
	if _, err := refund(keeps, "kept-key"); err != nil {
		return err
	}
	if _, err := refund(loses, "lost-key"); err != nil {
		return err
	}
	time.Sleep(2 * life)

	r, err := reaper.New(ctx, db)
	if err != nil {
		return err
	}
	due, err := r.DryRun(ctx)
	if err != nil {
		return err
	}
	for _, t := range due.Tasks {
		if t.Rows > 0 {
			fmt.Printf("due: %d %s\n", t.Rows, t.Task)
		}
	}
	cleared, err := r.Sweep(ctx)
	if err != nil {
		return err
	}
	for _, t := range cleared.Tasks {
		if t.Rows > 0 {
			fmt.Printf("cleared: %d %s in %d batches\n", t.Rows, t.Task, t.Batches)
		}
	}
	_, err = refund(keeps, "kept-key")
	fmt.Println("kept-key:", err)
	outcome, err := refund(loses, "lost-key")
	fmt.Println("lost-key:", outcome)
	return err
}
