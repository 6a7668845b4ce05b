//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
)

// runMySQL runs MySQL or MariaDB from a binary of this machine.
func runMySQL(ctx context.Context, e engine, folder, binary string) (*server, error) {
	as, err := account("mysql")
	if err != nil {
		return nil, err
	}
	dir, err := ownFolder(folder, string(e)+"-", as)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := initMySQL(ctx, e, as, dir, data, binary); err != nil {
		return nil, err
	}
	password := newPassword()
	accounts, err := writeAccounts(dir, password, as)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--init-file=" + accounts,
		"--bind-address=127.0.0.1", "--socket=s", "--pid-file=pid", "--skip-name-resolve",
		"--max-connections=1000", "--character-set-server=utf8mb4",
	}
	if e == mysql {
		args = append(args, "--mysqlx=OFF")
	} else {
		args = append(args, rollbackOnTimeout)
	}
	return listen(ctx, e, syscall.SIGKILL,
		func(port string) string { return e.dsn("root", password, "127.0.0.1:"+port, "holdfast") },
		func(port string) (*process, error) { return start(as, dir, binary, append(args, "--port="+port)...) })
}

// mysqlBinary finds the server of e. Both servers may be installed under the name mysqld, so
// mysqlBinary asks the binary for its version.
func mysqlBinary(ctx context.Context, e engine, folder string) (string, error) {
	names := []string{"mysqld"}
	if e == mariadb {
		names = []string{"mariadbd", "mysqld"}
	}
	for _, name := range names {
		for _, binary := range findBinaries(name, "/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/mysql/bin") {
			version, err := output(ctx, nil, folder, binary, "--no-defaults", "--version")
			if err == nil && isMariaDB(version) == (e == mariadb) {
				return binary, nil
			}
		}
	}
	return "", fmt.Errorf("no %s on this machine", names[0])
}

// initMySQL makes the data folder.
func initMySQL(ctx context.Context, e engine, as *syscall.Credential, dir, data, binary string) error {
	if e == mysql {
		_, err := output(ctx, as, dir, binary, "--no-defaults", "--initialize-insecure", "--datadir="+data, "--tmpdir="+dir)
		return err
	}
	tools := append(
		findBinaries("mariadb-install-db", filepath.Dir(binary), filepath.Join(filepath.Dir(binary), "..", "bin")),
		findBinaries("mysql_install_db", filepath.Join(filepath.Dir(binary), "..", "scripts"))...)
	if len(tools) == 0 {
		return fmt.Errorf("no mariadb-install-db beside %s", binary)
	}
	// --force: a host name that cannot be resolved does not matter here.
	_, err := output(ctx, as, dir, tools[0], "--no-defaults", "--datadir="+data, "--tmpdir="+dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force")
	return err
}

// writeAccounts writes the SQL that the server runs at its start: it sets the accounts.
func writeAccounts(dir, password string, as *syscall.Credential) (string, error) {
	file := filepath.Join(dir, "accounts.sql")
	text := fmt.Sprintf("CREATE USER IF NOT EXISTS root@'%%' IDENTIFIED BY '%[1]s';\n"+
		"GRANT ALL ON *.* TO root@'%%' WITH GRANT OPTION;\n"+
		"ALTER USER IF EXISTS root@localhost IDENTIFIED BY '%[1]s';\n"+
		"ALTER USER IF EXISTS root@'127.0.0.1' IDENTIFIED BY '%[1]s';\n"+ // mariadb-install-db creates it
		"ALTER USER IF EXISTS root@'::1' IDENTIFIED BY '%[1]s';\n"+
		"CREATE DATABASE IF NOT EXISTS holdfast;\n", password)
	return file, writeFor(as, file, text)
}
