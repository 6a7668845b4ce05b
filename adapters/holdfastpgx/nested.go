package holdfastpgx

import (
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
)

// errPseudoNested: a Rollback of such a transaction only rolls back to a savepoint. After a lost
// guard, or with a claim that another call holds, the outer transaction could still be committed.
var errPseudoNested = &holdfast.InputError{Field: "tx", Problem: "is a pseudo-nested transaction of pgx (Begin of a pgx.Tx), " +
	"which is a savepoint: Holdfast's rollback would leave the outer transaction to be committed. Pass the outer transaction"}

// wrappers bounds how many levels of wrapped transactions are searched.
const wrappers = 8

var (
	txType     = reflect.TypeFor[pgx.Tx]()
	pgxPackage = txType.PkgPath()
)

// pseudoNested finds pgx's own type, which is not exported, alone or wrapped. It is the type in
// pgx's package that contains another transaction.
func pseudoNested(v reflect.Value, deep int) bool {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || deep == 0 {
		return false
	}
	for i := range v.NumField() {
		if !v.Type().Field(i).Type.Implements(txType) {
			continue
		}
		if v.Type().PkgPath() == pgxPackage || pseudoNested(v.Field(i), deep-1) {
			return true
		}
	}
	return false
}
