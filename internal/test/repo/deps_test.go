package repo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const self = "github.com/holdfast-go/holdfast"

// links lists the modules that a program links with each public package, in addition to this
// module. A user of one engine links neither the drivers of the other engines nor what only
// tests and tools need.
func links() map[string][]string {
	const (
		backoff = "github.com/cenkalti/backoff/v5"
		headers = "github.com/dunglas/httpsfv"
		mapper  = "github.com/jmoiron/sqlx" // only its package that maps struct fields
		migrate = "github.com/golang-migrate/migrate/v4"
		pgx     = "github.com/jackc/pgx/v5"
		uuid    = "github.com/google/uuid"
	)
	return map[string][]string{
		"":                        {backoff},
		"adapters/holdfastpgx":    {backoff, "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", pgx, "github.com/jackc/puddle/v2", "golang.org/x/sync", "golang.org/x/text"},
		"adapters/holdfastsql":    {backoff},
		"adapters/holdfastsqlx":   {backoff, mapper},
		"audit":                   {backoff},
		"console":                 {backoff, uuid, mapper},
		"doctor":                  {backoff, uuid, mapper},
		"holdfastslog":            {backoff},
		"idempotency":             {backoff},
		"idempotency/businessrow": {backoff, mapper},
		"idempotency/cron":        {backoff},
		"idempotency/inbox":       {backoff},
		"idempotency/operators":   {backoff},
		"idempotency/outbox":      {backoff, uuid},
		"idempotency/staged":      {backoff},
		"idempotency/idemclient":  {backoff, headers, uuid},
		"idempotency/idemhttp":    {backoff, headers, uuid},
		"limits":                  {backoff, mapper},
		"migrations":              {backoff, migrate},
		"optimistic":              {backoff, uuid, mapper},
		"optimistic/register":     {backoff},
		"reaper":                  {backoff, uuid, mapper},
		"sqllock":                 {backoff},
		"sqllock/election":        {backoff},
		"sqllock/fairlock":        {backoff},
		"sqllock/fence":           {backoff, mapper},
		"sqllock/rowlock":         {backoff, mapper},
	}
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath string
	Name       string
	Deps       []string
	Module     *struct{ Path, Dir string }
}

// packages returns the packages of this module and of the command's, and all packages that they link, by import path.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Name,Deps,Module", "./...", "./cmd/holdfast/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func TestProgramsLinkOnlyTheirOwnDriver(t *testing.T) {
	t.Parallel()
	all, allowed := packages(t), links()
	for path, p := range all {
		name := strings.TrimPrefix(strings.TrimPrefix(path, self), "/")
		if strings.Contains(name, "/internal/") {
			continue
		}
		if p.Module == nil || p.Module.Path != self || p.Name == "main" || slices.ContainsFunc([]string{"internal", "examples", "holdfasttest"}, func(dir string) bool {
			return name == dir || strings.HasPrefix(name, dir+"/") || strings.Contains(name, "/"+dir+"/")
		}) {
			continue // not for a user's program; holdfasttest is for tests and links SQLite
		}
		linked := map[string]bool{}
		for _, dep := range p.Deps {
			if m := all[dep].Module; m != nil && m.Path != self {
				linked[m.Path] = true
			}
		}
		want, known := allowed[name]
		if !known {
			t.Errorf("package %q is not in the list", name)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(linked)); !slices.Equal(got, want) {
			t.Errorf("package %q links %v, the list allows %v", name, got, want)
		}
		delete(allowed, name)
	}
	for name := range allowed {
		t.Errorf("package %q is in the list and is none", name)
	}
}

// TestPlainEndpointLinksNoStagedOperations checks that an endpoint which starts none does not link them.
func TestPlainEndpointLinksNoStagedOperations(t *testing.T) {
	t.Parallel()
	if slices.Contains(packages(t)[self+"/idempotency/idemhttp"].Deps, self+"/idempotency/staged") {
		t.Error("idemhttp links package staged")
	}
}

// TestClientLinksNoDatabase checks that a client of an endpoint links neither the server's side nor a database.
func TestClientLinksNoDatabase(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t)[self+"/idempotency/idemclient"].Deps {
		if p == "database/sql" || p == self || p == self+"/idempotency" {
			t.Errorf("idemclient links %s", p)
		}
	}
}

// TestKitsLinkOnlyTheirOwnDriver checks that the tests of a program link only the drivers of the kits
// that they import.
func TestKitsLinkOnlyTheirOwnDriver(t *testing.T) {
	t.Parallel()
	all := packages(t)
	drivers := []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5"}
	for name, own := range map[string]string{"holdfasttest": "", "holdfasttest/mysqltest": drivers[0], "holdfasttest/pgxtest": drivers[1]} {
		p, found := all[self+"/"+name]
		if !found {
			t.Errorf("no package %s", name)
		}
		for _, driver := range drivers {
			if linked := slices.Contains(p.Deps, driver); linked != (driver == own) {
				t.Errorf("package %q links %s: %v", name, driver, linked)
			}
		}
	}
}

// TestLicences checks that the licence of everything that this module and the command link allows linking into a
// proprietary program.
func TestLicences(t *testing.T) {
	t.Parallel()
	texts := []string{
		"Permission is hereby granted, free of charge, to any person obtaining a copy", // MIT
		"Redistribution and use in source and binary forms",                            // BSD
		"Apache License",
		"Permission to use, copy, modify, and/or distribute this software for any purpose", // ISC
		"Mozilla Public License", // applies to single files, which are not changed here
	}
	dirs := map[string]string{}
	for _, p := range packages(t) {
		if p.Module != nil && !strings.HasPrefix(p.Module.Path, self) {
			dirs[p.Module.Path] = p.Module.Dir
		}
	}
	if len(dirs) < 5 {
		t.Fatalf("only %v", dirs)
	}
	for module, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "[LC][IO][CP][EY]*"))
		if err != nil {
			t.Fatal(err)
		}
		known := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			flat := strings.Join(strings.Fields(string(text)), " ")
			if strings.Contains(flat, "GNU GENERAL PUBLIC LICENSE") || strings.Contains(flat, "GNU AFFERO") {
				t.Errorf("%s: %s is the GPL", module, file)
			}
			known = known || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(flat, s) })
		}
		if !known {
			t.Errorf("%s: no licence that is known: %v", module, files)
		}
	}
}
