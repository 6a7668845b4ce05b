package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

// otherNames are the flags for options whose flag has another name.
var otherNames = map[string]string{
	"Lease": "ttl", "StepResult": "result", "ResultTTL": "key-ttl", "KeyTTL": "key-ttl", "RejectionTTL": "key-ttl", "MaxRows": "rows", "interval": "every",
	"Columns": "by", "Table": "table", "OwnerSetting": "setting", "Margin": "margin",
}

// inFlags returns err with the names of the command's flags instead of those of options in Go.
func inFlags(cmd *cobra.Command, err error) error {
	var invalid *holdfast.InputError
	if cmd == nil || !errors.As(err, &invalid) {
		return err
	}
	flag := flagOf(cmd, invalid.Field)
	if flag == "" {
		return err
	}
	return flagError{err, strings.Replace(err.Error(), invalid.Field, "--"+flag, 1)}
}

// flagError is an error with another text.
type flagError struct {
	error

	text string
}

func (e flagError) Error() string { return e.text }
func (e flagError) Unwrap() error { return e.error }

var humps = regexp.MustCompile(`([a-z])([A-Z])`)

// flagOf returns the flag of cmd that an option such as Filter.Since is set by, or "".
func flagOf(cmd *cobra.Command, field string) string {
	name := field[strings.LastIndex(field, ".")+1:]
	for _, flag := range []string{otherNames[name], strings.ToLower(humps.ReplaceAllString(name, "$1-$2"))} {
		if flag != "" && cmd.Flags().Lookup(flag) != nil {
			return flag
		}
	}
	return ""
}
