package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

// Each process applies the migrations at its start.
func ExampleUp() {
	ctx := context.Background()
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

	for range 2 { // the second call has nothing to do
		if err := migrations.Up(ctx, pool); err != nil {
			log.Panic(err)
		}
	}
	version, dirty, err := migrations.Applied(ctx, pool)
	fmt.Println(version == migrations.Version, dirty, err)
	// Output: true false <nil>
}

// A program with its own migration tool copies the SQL.
func ExamplePrint() {
	var sql strings.Builder
	if err := migrations.Print(&sql, holdfast.PostgreSQL, holdfast.Options{Schema: "app"}); err != nil {
		log.Panic(err)
	}
	for line := range strings.Lines(sql.String()) {
		if strings.HasPrefix(line, "CREATE TABLE") {
			fmt.Print(line)
			break
		}
	}
	// Output: CREATE TABLE IF NOT EXISTS "app"."holdfast_schema" (
}

// A client in another language calls the functions, and needs no right to the tables.
func ExamplePrintFunctionGrants() {
	var grants strings.Builder
	if err := migrations.PrintFunctionGrants(&grants, holdfast.MariaDB, "payments@%", holdfast.Options{Schema: "shop"}); err != nil {
		log.Panic(err)
	}
	first, _, _ := strings.Cut(grants.String(), "\n")
	fmt.Println(first)
	// Output: GRANT EXECUTE ON PROCEDURE `shop`.`holdfast_claim` TO `payments`@`%`;
}
