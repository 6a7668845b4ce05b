// Package holdfastgorm joins Holdfast and GORM: one transaction for both, and GORM's models as rows.
//
//	db, err := holdfastgorm.Open(ctx, gormDB) // Holdfast on GORM's pool
//	store, err := idempotency.New(ctx, db)
//	refund, err := holdfastgorm.Do(ctx, gormDB, store, op, func(tx *gorm.DB) (string, error) {
//		return "done", tx.Create(&Refund{...}).Error
//	})
//
// # Transactions
//
// [Do] and [InTx] let Holdfast begin the transaction and give the function a *gorm.DB that is bound to
// it. Holdfast runs it again after a deadlock, resolves a commit whose answer was lost, and commits
// nothing that follows a swallowed error. [Transaction] does the same around one or several [DoTx]. DoTx
// also joins a transaction that GORM began, for code that has one already. [Tx] and [On] do the same for every other function of Holdfast: locks, guards, an outbox.
//
// Return the .Error of each statement, and use no other *gorm.DB in the function: what is written
// through the outer one is not part of the transaction.
//
// # Models
//
// A DB that Open returned reads GORM's models where Holdfast takes rows as structs (businessrow,
// optimistic, rowlock): the gorm tags, the naming strategy and embedded structs, so that gorm.Model
// works. [Spec] names a model's table and its primary key. db tags are not read.
//
// Holdfast fills defaults and the times of creation and update as GORM does, and leaves an auto-increment key to the
// database: businessrow reads it back. An update of named columns fills only those. It runs no hooks, and reads soft-deleted rows. Fields that GORM
// may neither read nor write, and associations, are no columns of it. A model is refused if Holdfast would store another value than GORM: with a
// serializer, with a default that is an expression of the database, or with a field that may be read or written in part.
//
// # Keys
//
// AutoMigrate gives a string the database's default collation. On MySQL and MariaDB that takes "A" for
// "a", so businessrow refuses it as a key. [Key] is a string whose column compares byte for byte on
// every engine. SQLite lets a primary key be NULL unless it is declared otherwise:
//
//	RefundNo holdfastgorm.Key `gorm:"primaryKey;not null;size:64"`
package holdfastgorm
