package reaper_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
)

// Run sweeps until its context ends, here after the first pass. The table sessions belongs to
// the program. History shows the pass.
func ExampleReaper_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Panic(err)
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		log.Panic(err)
	}
	for _, statement := range []string{
		`CREATE TABLE sessions (id INTEGER PRIMARY KEY, expires_at INTEGER NOT NULL)`,
		`INSERT INTO sessions VALUES (1, 1700000000), (2, 1700000000), (3, 99999999999)`,
	} {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			log.Panic(err)
		}
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Panic(err)
	}

	r, err := reaper.New(ctx, db, reaper.Options{
		Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: "sessions", Key: []string{"id"}}, Expires: "expires_at", Unit: reaper.Seconds, Scan: true}},
	})
	if err != nil {
		log.Panic(err)
	}
	err = r.Run(ctx, reaper.RunOptions{Every: 20 * time.Millisecond, OnPass: func(reaper.Report, error) { cancel() }})
	fmt.Println(errors.Is(err, context.Canceled))

	for p, err := range reaper.History(context.Background(), db) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(p.Rows, "rows cleared")
	}
	// Output:
	// true
	// 2 rows cleared
}
