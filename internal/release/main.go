// Command release writes a version of the modules of this repository as a module proxy serves them:
//
//	release VERSION REPOSITORY PROXY MODULE-DIRECTORY...
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION REPOSITORY PROXY MODULE-DIRECTORY...")
		os.Exit(2)
	}
	for _, dir := range os.Args[4:] {
		if err := publish(os.Args[1], os.Args[2], os.Args[3], dir); err != nil {
			fmt.Fprintf(os.Stderr, "release: %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

// publish writes one module: see https://go.dev/ref/mod#goproxy-protocol.
func publish(version, repository, proxy, dir string) error {
	text, err := os.ReadFile(filepath.Join(repository, dir, "go.mod")) //nolint:gosec // the caller's own repository
	if err != nil {
		return err
	}
	file, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		return err
	}
	m := module.Version{Path: file.Module.Mod.Path, Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(proxy, filepath.FromSlash(path.Join(escaped, "@v")))
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // other programs read it
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{version + ".info": info, version + ".mod": text, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil { //nolint:gosec // other programs read it
			return err
		}
	}
	out, err := os.Create(filepath.Join(to, version+".zip")) //nolint:gosec // the caller's own folder
	if err != nil {
		return err
	}
	below := filepath.ToSlash(dir)
	if below == "." { // the module at the root: those nested in it are left out
		below = ""
	}
	if err := zip.CreateFromVCS(out, m, repository, "HEAD", below); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
