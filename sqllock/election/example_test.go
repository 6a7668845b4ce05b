package election_test

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
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

// open returns a Locker on a new SQLite database, and a function that closes both.
func open(ctx context.Context) (locks *sqllock.Locker[*sql.Tx], end func()) {
	dir, err := os.MkdirTemp("", "election")
	if err != nil {
		log.Fatal(err)
	}
	pool, err := sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Fatal(err)
	}
	locks, err = sqllock.New(ctx, db, sqllock.Options{Holder: "worker 1"})
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close(ctx)
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// A leader publishes its address, and other processes read it.
func ExampleElection_Campaign() {
	ctx := context.Background()
	locks, end := open(ctx)
	defer end()

	settlement := election.New(locks, "settlement")
	leader, err := settlement.Campaign(ctx, []byte("10.0.0.7:80"))
	if err != nil {
		log.Print(err)
		return
	}
	info, leads, err := settlement.Leader(ctx)
	fmt.Println(leads, string(info.Value), err)
	fmt.Println("resigned:", leader.Resign(ctx))
	_, leads, err = settlement.Leader(ctx)
	fmt.Println(leads, err)
	// Output:
	// true 10.0.0.7:80 <nil>
	// resigned: <nil>
	// false <nil>
}
