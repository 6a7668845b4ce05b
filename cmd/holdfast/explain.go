package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/internal/errcode/catalog"
)

// explained is the entry of a code, in JSON.
type explained struct {
	Code  string   `json:"code"`
	Names []string `json:"names"`
	Means string   `json:"means"`
	Do    string   `json:"do"`
	Page  string   `json:"page"`
}

func newExplain(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "explain [CODE]", Short: "Say what an error's code, or its name in Go, means and what to do, or list the codes; needs no database", DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("say holdfast explain CODE: see %s --help", cmd.CommandPath())
			}
			return nil
		},
		ValidArgs: catalog.Codes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return f.listCodes(cmd)
			}
			e, known := catalog.Find(args[0])
			if !known {
				if meant := closest(args[0], catalog.Known()); len(meant) > 0 {
					return usage("there is no code %q; did you mean %s?", args[0], quoted(meant))
				}
				return usage("there is no such code: holdfast explain lists them")
			}
			return f.answer(cmd, explainedOf(e), fmt.Sprintf("%s: %s\n  do: %s\n  in Go: %s\n", e.Code, e.Means, e.Do, strings.Join(e.Names, ", ")))
		},
	}
}

func explainedOf(e catalog.Entry) explained {
	return explained{e.Code, e.Names, e.Means, e.Do, "docs/reference/errors.md#" + e.Code}
}

func (f *flags) listCodes(cmd *cobra.Command) error {
	list, rows := []explained{}, [][]string{}
	for _, e := range catalog.Entries {
		list = append(list, explainedOf(e))
		rows = append(rows, []string{e.Code, e.Means, e.Do})
	}
	return f.answer(cmd, list, f.table(cmd, "", "CODE MEANS | DO", rows))
}
