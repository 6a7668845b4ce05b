//go:build unix

package main

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
)

// postgresBinary finds a server with initdb in the same folder.
func postgresBinary(context.Context, engine, string) (string, error) {
	for _, binary := range findBinaries("postgres", "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin") {
		if len(appendExecutable(nil, filepath.Join(filepath.Dir(binary), "initdb"))) > 0 {
			return binary, nil
		}
	}
	return "", errors.New("no initdb and postgres on this machine")
}

// runPostgres runs PostgreSQL from a binary of this machine.
func runPostgres(ctx context.Context, _ engine, folder, binary string) (*server, error) {
	as, err := account("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := ownFolder(folder, "postgres-", as)
	if err != nil {
		return nil, err
	}
	password := newPassword()
	data, err := initPostgres(ctx, as, dir, filepath.Join(filepath.Dir(binary), "initdb"), password)
	if err != nil {
		return nil, err
	}
	return listen(ctx, postgres, syscall.SIGQUIT,
		func(port string) string {
			return postgres.dsn("postgres", password, "127.0.0.1:"+port, "postgres")
		},
		func(port string) (*process, error) {
			return start(as, dir, binary, "-D", data,
				"-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
				"-c", "unix_socket_directories=", "-c", "max_connections=1000", "-c", "max_prepared_transactions=100")
		})
}

// initPostgres makes a database cluster. This one step does not wait for the disk; the server's
// fsync stays on. Tests connect very often, and most of that cost would be SCRAM's default of
// 4096 rounds.
func initPostgres(ctx context.Context, as *syscall.Credential, dir, initdb, password string) (string, error) {
	passwordFile := filepath.Join(dir, "password")
	if err := writeFor(as, passwordFile, password+"\n"); err != nil {
		return "", err
	}
	var failure error
	for _, locale := range []string{"C.UTF-8", "C"} { // the first is not available everywhere
		data := filepath.Join(dir, "data-"+locale)
		_, failure = output(ctx, as, dir, initdb, "-D", data,
			"--username=postgres", "--pwfile="+passwordFile, "--auth=md5",
			"--encoding=UTF8", "--locale="+locale, "--no-sync")
		if failure == nil || ctx.Err() != nil {
			return data, failure
		}
	}
	return "", failure
}
