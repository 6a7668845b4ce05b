package doctor_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
)

// The migrations have not been applied.
func ExampleCheck() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Panic(err)
	}
	defer pool.Close()
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Panic(err)
	}

	findings, err := doctor.Check(ctx, db)
	if err != nil {
		log.Panic(err)
	}
	for _, f := range findings {
		fmt.Printf("%s: %s: %s\n", f.Severity, f.Check, f.Advice)
	}
	// Output: broken: schema: holdfast migrate up
}
