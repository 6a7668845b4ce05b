package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// The environment variables that name the database. They keep secrets off the command line, which
// every user of the machine may read.
const (
	dsnVariable          = "HOLDFAST_DSN"
	dsnFileVariable      = "HOLDFAST_DSN_FILE"
	passwordFileVariable = "HOLDFAST_PASSWORD_FILE"
)

// maxSecret bounds the size of a file that contains a secret.
const maxSecret = 64 << 10

// source says where the database's URL comes from.
type source struct {
	dsn, dsnFile, passwordFile string

	read string // the URL, once it was read: standard input and a pipe have it once
}

func (s *source) add(root *cobra.Command) {
	p := root.PersistentFlags()
	p.StringVar(&s.dsn, "dsn", "", "database URL: postgres://…, mysql://user:pw@tcp(host:port)/db, sqlite://path (default: $"+dsnVariable+")")
	p.StringVar(&s.dsnFile, "dsn-file", "", "file that holds the database URL, - for standard input (default: $"+dsnFileVariable+")")
	p.StringVar(&s.passwordFile, "password-file", "", "file that holds the password of a URL without one, - for standard input (default: $"+passwordFileVariable+")")
	root.MarkFlagsMutuallyExclusive("dsn", "dsn-file")
	for _, flag := range []string{"dsn-file", "password-file"} {
		_ = root.MarkPersistentFlagFilename(flag) // the flag exists
	}
}

// url returns the database's URL.
func (s *source) url() (_ string, err error) {
	if s.read == "" {
		s.read, err = s.find()
	}
	return s.read, err
}

func (s *source) find() (string, error) {
	raw, err := s.given()
	if err != nil {
		return "", err
	}
	file := s.passwordFile
	if file == "" {
		file = os.Getenv(passwordFileVariable)
	}
	if file == "" {
		return raw, nil
	}
	password, err := secret("the password", file)
	if err != nil {
		return "", err
	}
	return withPassword(raw, password)
}

func (s *source) given() (string, error) {
	url, file := s.dsn, s.dsnFile
	if url == "" && file == "" {
		url, file = os.Getenv(dsnVariable), os.Getenv(dsnFileVariable)
	}
	switch {
	case url != "" && file != "":
		return "", usage("%s and %s are both set: which one is meant?", dsnVariable, dsnFileVariable)
	case url != "":
		return url, nil
	case file != "":
		return secret("the database URL", file)
	}
	return "", usage("no database is named: set %s or %s, or give --dsn-file or --dsn", dsnVariable, dsnFileVariable)
}

// secret reads a file, without the trailing line break.
func secret(what, file string) (string, error) {
	in := os.Stdin
	if file != "-" {
		var err error
		if in, err = os.Open(file); err != nil { //nolint:gosec // the user's own choice
			return "", usageError{fmt.Errorf("read %s: %w", what, err)}
		}
		defer func() { _ = in.Close() }()
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	switch {
	case err != nil:
		return "", usageError{fmt.Errorf("read %s: %w", what, err)}
	case len(text) > maxSecret:
		return "", usage("the file for %s is longer than %d bytes", what, maxSecret)
	}
	value := strings.TrimRight(string(text), "\r\n")
	if value == "" || strings.ContainsAny(value, "\r\n") {
		return "", usage("the file for %s is not one line", what)
	}
	return value, nil
}

// withPassword puts a password into a URL that has a user and no password.
func withPassword(raw, password string) (string, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	end := strings.Index(rest, "@") // an @ within a name is percent-encoded
	switch {
	case !ok || scheme == "sqlite":
		return "", usage("a password goes with postgres://user@… and mysql://user@… only")
	case end < 0 || strings.Contains(rest[:end], "/"):
		return "", usage("the database URL names no user whose password it would be")
	case strings.Contains(rest[:end], ":"):
		return "", usage("the database URL has a password already: leave one out")
	}
	// Only MySQL's form reads + as a blank; both read %20 as one.
	return scheme + "://" + rest[:end] + ":" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20") + rest[end:], nil
}
