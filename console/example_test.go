package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/migrations"
)

// The console is mounted below a path of the program's own server.
func Example() {
	ctx := context.Background()
	db, done := exampleDB(ctx)
	defer done()

	page, err := console.New(ctx, db, console.Options{
		Token: "from a secret, 16 bytes at least", // for example from the environment
		Hosts: []string{"example.com"},            // by which browsers reach it
	})
	if err != nil {
		log.Panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", page))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/ops/console/", http.NoBody))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "<h1>Sign in</h1>"))
	// Output: 401 true
}

// The console runs behind the program's own authentication, which also names the actor.
func Example_ownAuthentication() {
	ctx := context.Background()
	db, done := exampleDB(ctx)
	defer done()

	page, err := console.New(ctx, db, console.Options{
		BehindOwnAuthentication: true,
		Write:                   true,
		Hosts:                   []string{"example.com"},
		Actor:                   func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
	})
	if err != nil {
		log.Panic(err)
	}
	onlyAda := func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ada" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	}
	for _, password := range []string{"", "secret"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		r.SetBasicAuth("ada", password)
		answer := httptest.NewRecorder()
		onlyAda(answer, r)
		fmt.Println(answer.Code)
	}
	// Output:
	// 401
	// 200
}

// exampleDB opens a new database with Holdfast's tables.
func exampleDB(ctx context.Context) (db *holdfast.DB[*sql.Tx], done func()) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	pool, err := sql.Open("sqlite", filepath.Join(dir, "a.db"))
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if db, err = holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true}); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}
