package dsn_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

func TestUnchecked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://u:p@db.example/shop":                        true, // prefer is the driver's default
		"postgres://u:p@db.example/shop?sslmode=require":        true,
		"postgres://u:p@db.example/shop?sslmode=verify-full":    false,
		"postgres://u:p@db.example/shop?sslmode=verify-ca":      false,
		"postgres://u:p@db.example/shop?sslmode=disable":        false, // the server knows that nothing is encrypted
		"mysql://u:p@tcp(db.example:3306)/shop":                 false,
		"mysql://u:p@tcp(db.example:3306)/shop?tls=true":        false,
		"mysql://u:p@tcp(db.example:3306)/shop?tls=skip-verify": true,
		"mysql://u:p@tcp(db.example:3306)/shop?tls=preferred":   true,
		"sqlite://shop.db": false,
		"nothing":          false,
	} {
		if setting, better := dsn.Unchecked(url); (setting != "") != want || (better != "") != want {
			t.Errorf("%s: %q, %q", url, setting, better)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://u:p@127.0.0.1:5433/shop":       true,
		"postgres://u:p@[::1]/shop":                true,
		"postgres://u:p@localhost/shop":            true,
		"postgres:///shop?host=/var/run/postgres":  true,
		"postgres://u:p@db.example/shop":           false,
		"mysql://u:p@tcp(10.0.0.7:3306)/shop":      false,
		"mysql://u:p@unix(/run/mysqld.sock)/shop":  true,
		"mysql://u:p@tcp(localhost:3306)/shop":     true,
		"sqlite://shop.db":                         true,
		"postgres://u:p@localhost.evil.example/db": false,
	} {
		if dsn.Local(url) != want {
			t.Errorf("%s", url)
		}
	}
}
