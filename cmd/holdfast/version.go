package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/migrations"
)

// release and revision are of a released build: its tag and its commit. The linker sets them.
var release, revision string

func newVersion(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is; needs no database", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Modified bool   `json:"modified,omitempty"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				Schema   int    `json:"schema"`
			}{"(unknown)", "", false, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, migrations.Version}
			if info, ok := debug.ReadBuildInfo(); ok {
				if info.Main.Version != "" {
					v.Version = info.Main.Version
				}
				for _, s := range info.Settings {
					switch s.Key {
					case "vcs.revision":
						v.Revision = s.Value
					case "vcs.modified":
						v.Modified = s.Value == "true"
					}
				}
			}
			if release != "" {
				v.Version, v.Revision, v.Modified = release, revision, false
			}
			said := fmt.Sprintf("holdfast %s, %s %s, tables of version %d\n", v.Version, v.Go, v.Platform, v.Schema)
			if v.Revision != "" {
				said += "revision " + v.Revision
				if v.Modified {
					said += ", with changes"
				}
				said += "\n"
			}
			return f.answer(cmd, v, said)
		},
	}
}
