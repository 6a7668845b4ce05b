//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// clusterParts are the files that a cluster of servers needs, each with the package that
// contains it. A package with a server may start that server; testservers leaves it alone.
var clusterParts = []struct{ name, pkg string }{
	{"/usr/sbin/mariadbd", "mariadb-server"},
	{"/usr/bin/wsrep_sst_rsync", "mariadb-server"},
	{"/usr/lib/galera/libgalera_smm.so", "galera-4"},
	{"/usr/bin/rsync", "rsync"},
	{"/usr/lib/postgresql/*/bin/pg_rewind", "postgresql"},
	{"/usr/bin/faketime", "faketime"},
	{"/usr/*bin/ip", "iproute2"},
}

// provideCluster installs the missing parts if that is allowed.
func provideCluster(install bool) error {
	var missing, list []string
	seen := map[string]bool{}
	for _, part := range clusterParts {
		if found, _ := filepath.Glob(part.name); len(found) > 0 {
			continue
		}
		missing = append(missing, part.name)
		if !seen[part.pkg] {
			seen[part.pkg] = true
			list = append(list, part.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := fmt.Errorf("clusters need %s: apt-get install %s", strings.Join(missing, ", "), strings.Join(list, " "))
	release, opened := os.Open("/etc/os-release")
	if opened != nil {
		return errors.Join(err, opened)
	}
	defer func() { _ = release.Close() }()
	if !install || os.Geteuid() != 0 || !isDebian(bufio.NewScanner(release)) {
		return err
	}
	logf("clusters: installing %s with apt-get (HOLDFAST_TEST_INSTALL=0 forbids it)", strings.Join(list, " "))
	if err := apt("update"); err != nil {
		logf("%v", err) // the known packages may suffice
	}
	return apt(append([]string{"install", "--no-install-recommends"}, list...)...)
}
