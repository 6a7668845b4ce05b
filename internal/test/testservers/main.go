//go:build unix

// Command testservers makes PostgreSQL, MySQL and MariaDB available, runs a command against them
// and tears them down again:
//
//	testservers [-dir DIR] [-engines LIST] [-local] [-disk] -- COMMAND ARGS...
//	testservers [-dir DIR] -cluster -- COMMAND ARGS...
//
// The second form starts no server: it makes sure that the programs for the clusters of package
// internal/test/cluster are installed, and enables the tests of that package.
//
// For each engine it uses the first available of these:
//
//  1. the server that HOLDFAST_TEST_POSTGRES_DSN, HOLDFAST_TEST_MYSQL_DSN or
//     HOLDFAST_TEST_MARIADB_DSN names;
//  2. a Docker container (HOLDFAST_TEST_DOCKER=0 forbids it);
//  3. a server binary of this machine, run in a temporary folder (with -local
//     before Docker);
//  4. as root on Debian or Ubuntu, the distribution's package
//     (HOLDFAST_TEST_INSTALL=0 forbids it).
//
// The command finds the servers in the three DSN variables, as URLs of the form that
// golang-migrate accepts, and -engines in HOLDFAST_TEST_ENGINES. Inside the command, testservers
// uses the same servers again. At the end it lists the engines that ran, which it knows from the
// marker files that package dbtest writes into the folder HOLDFAST_TEST_RAN_DIR. If
// HOLDFAST_TEST_REQUIRE lists an engine that did not run, testservers fails.
//
// It is a separate module so that its dependencies, dockertest above all, stay out of the main
// go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// options are the settings from the command line and the environment.
type options struct {
	dir      string   // where the command runs
	chosen   []engine // the engines to run on
	engines  []engine // the chosen engines that need a server
	required []engine
	docker   bool
	install  bool
	cluster  bool
	local    bool // a binary of this machine before Docker
	disk     bool // a container's files on a disk
	command  []string
}

// parseOptions reads the command line and, through getenv, the environment.
func parseOptions(args []string, getenv func(string) string) (options, error) {
	flags := flag.NewFlagSet("testservers", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "usage: testservers [-dir DIR] [-engines LIST] [-local] [-disk] -- COMMAND ARGS...")
		flags.PrintDefaults()
	}
	dir := flags.String("dir", "", "run the command in this `folder`")
	local := flags.Bool("local", false, "prefer a server binary of this machine to Docker, which has a proxy between")
	disk := flags.Bool("disk", false, "keep the files of servers in Docker on a disk, and not in memory, so that a commit waits for it")
	list := flags.String("engines", getenv("HOLDFAST_TEST_ENGINES"), "run on these engines only: a comma-separated `list` of postgres, mysql, mariadb, sqlite")
	cluster := flags.Bool("cluster", false, "start no server, but provide the programs of clusters")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return options{}, errors.New("there is no command to run")
	}
	opts := options{
		dir:     *dir,
		docker:  getenv("HOLDFAST_TEST_DOCKER") != "0",
		install: getenv("HOLDFAST_TEST_INSTALL") != "0",
		cluster: *cluster,
		local:   *local,
		disk:    *disk,
		command: flags.Args(),
	}
	var err error
	if opts.required, err = parseEngines(getenv("HOLDFAST_TEST_REQUIRE"), allEngines); err != nil {
		return options{}, fmt.Errorf("HOLDFAST_TEST_REQUIRE: %w", err)
	}
	if opts.chosen, err = parseEngines(*list, allEngines); err != nil {
		return options{}, fmt.Errorf("-engines: %w", err)
	}
	if len(opts.chosen) == 0 {
		opts.chosen = allEngines
	}
	isChosen := func(e engine) bool { return slices.Contains(opts.chosen, e) }
	opts.engines = slices.Collect(filter(serverEngines, isChosen))
	opts.required = slices.Collect(filter(opts.required, isChosen))
	return opts, nil
}

// run executes testservers and returns the exit status.
func run(args []string) int {
	opts, err := parseOptions(args, os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		logf("%v", err)
		return 2
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		if sig, ok := (<-signals).(syscall.Signal); ok {
			cancel(signalError{sig})
		}
	}()

	if opts.cluster {
		if err := provideCluster(opts.install); err != nil {
			logf("%v", err)
			return 1
		}
		return runChild(ctx, opts.command, opts.dir, append(os.Environ(), "HOLDFAST_TEST_CLUSTER=1", "HOLDFAST_TEST_REQUIRE_CLUSTER=1"))
	}

	folder, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		logf("no temporary folder: %v", err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			logf("left behind: %v", err)
		}
	}()
	// Servers that run as another user need to pass through it to their own folder.
	if err := os.Chmod(folder, 0o711); err != nil { //nolint:gosec // deliberate, see above
		logf("%v", err)
		return 1
	}
	ranDir := filepath.Join(folder, "ran")
	if err := os.Mkdir(ranDir, 0o700); err != nil {
		logf("%v", err)
		return 1
	}

	found := provideAll(ctx, opts, folder)
	defer found.stop()
	return opts.runWith(ctx, found, ranDir)
}

// runWith runs the command against the available servers, and reports.
func (o options) runWith(ctx context.Context, found *results, ranDir string) int {
	var interrupted signalError
	if errors.As(context.Cause(ctx), &interrupted) {
		return interrupted.status()
	}
	for _, err := range found.fatal {
		logf("%v", err)
	}
	if len(found.fatal) > 0 {
		return 1
	}
	// If these are missing, the result is known without running the command.
	if missing := found.unavailable(o.required); len(missing) > 0 {
		for _, e := range missing {
			logf("HOLDFAST_TEST_REQUIRE lists %s, which could not be made available: %s", e, found.why(e))
		}
		return 1
	}

	env := append(os.Environ(), "HOLDFAST_TEST_RAN_DIR="+ranDir, "HOLDFAST_TEST_ENGINES="+joinEngines(o.chosen))
	for _, s := range found.servers {
		env = append(env, s.engine.variable()+"="+s.dsn, "HOLDFAST_TEST_"+strings.ToUpper(string(s.engine))+"_FROM="+s.how)
	}
	status := runChild(ctx, o.command, o.dir, env)
	if errors.As(context.Cause(ctx), &interrupted) {
		return interrupted.status()
	}

	ran, err := readMarkers(ranDir)
	if err != nil {
		logf("%v", err)
		return 1
	}
	if outer := os.Getenv("HOLDFAST_TEST_RAN_DIR"); outer != "" { // of a testservers that runs this one
		for e, version := range ran {
			_ = os.WriteFile(filepath.Join(outer, string(e)), []byte(version+"\n"), 0o600)
		}
	}
	for _, line := range found.summary(ran) {
		fmt.Println(line)
	}
	for _, e := range o.required {
		if _, ok := ran[e]; !ok {
			logf("HOLDFAST_TEST_REQUIRE lists %s, which did not run", e)
			if status == 0 {
				status = 1
			}
		}
	}
	return status
}

// logf reports progress to the user, apart from the command's own output.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testservers: "+format+"\n", args...)
}
