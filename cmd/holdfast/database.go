package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/display"
	"github.com/holdfast-go/holdfast/migrations"
)

// with runs f on the database.
func (f *flags) with(cmd *cobra.Command, run func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error, observers ...holdfast.Observer) error {
	pool, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	opts := f.options()
	opts.Observers = observers
	ctx := cmd.Context()
	if roleOf(cmd) == migrations.Reader && cmd.Name() != "doctor" && cmd.Name() != "console" {
		ctx = dialect.Without(ctx, dialect.RuleReadOnly)
	}
	db, err := holdfastsql.Open(ctx, pool, opts)
	if err == nil {
		db = access.WithOwners(db, core.AnyOwner)
		err = f.repeat(cmd.Context(), func() error { return run(cmd.Context(), db) }, func(err error) error { return f.failed(cmd, f.denied(cmd, db, err)) })
	}
	return f.denied(cmd, db, err)
}

// namespaceVariable is the default of --namespace.
const namespaceVariable = "HOLDFAST_NAMESPACE"

func addNamespace(to *pflag.FlagSet, into *string) {
	to.Var((*namespace)(into), "namespace", "the program's (default: $"+namespaceVariable+", or else default)")
	*into = os.Getenv(namespaceVariable)
}

// namespace is a flag whose default is in the environment, and therefore not in the help.
type namespace string

func (n *namespace) String() string { return "" } // no default is shown
func (n *namespace) Type() string   { return "string" }

func (n *namespace) Set(s string) error {
	if s == "" {
		return errEmpty
	}
	*n = namespace(s)
	return nil
}

func text(s string) string { return display.Text(s) }

// key is a key in JSON. Bytes that are not UTF-8 are hexadecimal.
type key struct {
	Key string `json:"key,omitempty"`
	Hex string `json:"key_hex,omitempty"`
}

func jsonKey(s string) key {
	if utf8.ValidString(s) {
		return key{Key: s}
	}
	return key{Hex: fmt.Sprintf("%x", s)}
}

// keyFlags name a key on the command line.
type keyFlags struct{ text, hex string }

func (k *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.text, "key", "", "the key")
	cmd.Flags().StringVar(&k.hex, "key-hex", "", "the key, in hexadecimal digits")
	cmd.MarkFlagsMutuallyExclusive("key", "key-hex")
	cmd.MarkFlagsOneRequired("key", "key-hex")
}

func (k *keyFlags) key() (string, error) {
	if k.hex == "" {
		return k.text, nil
	}
	var b []byte
	if _, err := fmt.Sscanf(k.hex, "%x", &b); err != nil || len(b)*2 != len(k.hex) {
		return "", usage("--key-hex is not an even number of hexadecimal digits")
	}
	return string(b), nil
}

// whoFlags say who intervenes, and why.
type whoFlags struct{ holdfast.Actor }

func (w *whoFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.By, "by", "", "who does it (required; recorded)")
	cmd.Flags().StringVar(&w.Reason, "reason", "", "why (required; recorded)")
	_ = cmd.MarkFlagRequired("by") // the flag exists
	_ = cmd.MarkFlagRequired("reason")
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func duration(d time.Duration) string { return d.Round(time.Millisecond).String() }
