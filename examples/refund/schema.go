package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/migrations"
)

// The service's own tables. {key} is a column that compares byte for byte. A text column of MySQL
// folds case ("a" = "A"), so a unique key on it would treat two refunds as one: on MySQL {key} is
// VARBINARY. Every write to an order increases its version; the optimistic protection compares it.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS orders (
		order_no   {key}  NOT NULL PRIMARY KEY,
		merchant   {key}  NOT NULL,
		customer   {key}  NOT NULL,
		currency   {key}  NOT NULL,
		paid       BIGINT NOT NULL,
		refunded   BIGINT NOT NULL,
		created_at BIGINT NOT NULL,
		version    BIGINT NOT NULL DEFAULT 1,
		UNIQUE (merchant, order_no),
		CHECK (refunded >= 0 AND refunded <= paid)
	)`,
	// refund_no is the unique key that business-row claims. intent is the key of the client's
	// request. The second UNIQUE is an index on it that forbids nothing, in a form that every
	// engine accepts.
	`CREATE TABLE IF NOT EXISTS refunds (
		id         {key}  NOT NULL PRIMARY KEY,
		refund_no  {key}  NOT NULL UNIQUE,
		order_no   {key}  NOT NULL,
		intent     {key}  NOT NULL,
		amount     BIGINT NOT NULL,
		created_at BIGINT NOT NULL,
		UNIQUE (intent, id)
	)`,
	// Double entry: the amounts of one refund sum to zero.
	`CREATE TABLE IF NOT EXISTS ledger (
		refund_id  {key}  NOT NULL,
		account    {key}  NOT NULL,
		amount     BIGINT NOT NULL,
		PRIMARY KEY (refund_id, account)
	)`,
}

// migrate creates missing tables: Holdfast's tables, then the service's. It may run at every start
// of every process.
func migrate(ctx context.Context, pool *sqlx.DB) error {
	if err := migrations.Up(ctx, pool.DB); err != nil {
		return fmt.Errorf("migrate Holdfast's tables: %w", err)
	}
	keyType := "TEXT"
	if pool.DriverName() == "mysql" {
		keyType = "VARBINARY(512)"
	}
	for _, table := range tables {
		if err := create(ctx, pool, strings.ReplaceAll(table, "{key}", keyType)); err != nil {
			return err
		}
	}
	return nil
}

// create tries again, because PostgreSQL fails one of two CREATE TABLE IF NOT EXISTS that run at
// the same moment. A real service has a migration tool.
func create(ctx context.Context, pool *sqlx.DB, statement string) (err error) {
	for range 3 {
		if _, err = pool.ExecContext(ctx, statement); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("create the example's tables: %w", err)
}
