package start_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// version is what the nested modules require.
const version = "v0.1.0"

// TestFirstHour follows each page of docs/start as a newcomer does, in a container that has Go and nothing
// else: the page's own commands and code, the database that its docker line starts, an empty module cache,
// and Holdfast as a module proxy serves the last commit. It is run by make first-hour, and prints how long
// each page took.
func TestFirstHour(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_FIRST_HOUR") == "" {
		t.Skip("make first-hour runs it")
	}
	files := publish(t)
	for _, name := range []string{"sqlite", "pgx", "postgres", "mysql", "gorm", "sqlx"} {
		t.Run(name, func(t *testing.T) {
			page, home := read(t, name)
			script := "set -e\n"
			begun := time.Now()
			for _, b := range blocks(page, "sh") {
				for line := range strings.Lines(string(b)) {
					if strings.HasPrefix(line, "docker run ") { // there is no Docker inside
						startDatabase(t, line)
						continue
					}
					script += line
				}
				script += "[ -e main.go ] || cp /root/main.go .\n" // as the page says: the program
			}
			if out, want := inside(t, home, files, script), string(blocks(page, "")[0]); out != want {
				t.Errorf("printed %q, and the page says %q", out, want)
			}
			t.Logf("from nothing to its output in %.0f s, with the database's start and the building of everything", time.Since(begun).Seconds())
		})
	}
	t.Run("prove", func(t *testing.T) { prove(t, files) })
}

// prove follows the page for MySQL on a server that no test run names, until it refunds. The server is a
// stand-in: the MySQL of the page, which calls itself 8.4 to its clients.
func prove(t *testing.T, files []string) {
	t.Helper()
	page, home := read(t, "mysql")
	begun := time.Now()
	var settings string
	for line := range strings.Lines(string(blocks(page, "sh")[0])) {
		if strings.HasPrefix(line, "docker run ") {
			startDatabase(t, line)
		} else {
			settings += line
		}
	}
	at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(settings)
	settings = strings.ReplaceAll(settings, at, standIn(t, at, "8.4"))
	out := inside(t, home, files, settings+`
set -e
export HOLDFAST_DSN="mysql://$DATABASE_URL" PATH=$PATH:/root/go/bin
walk() { local from=$EPOCHREALTIME code=0; echo "\$ $*"; "$@" 2>&1 || code=$?; echo "# exit status $code, $(( (${EPOCHREALTIME/./} - ${from/./}) / 1000 )) ms"; }
mkdir shop && cd shop && go mod init shop && cp /root/main.go .
go get github.com/holdfast-go/holdfast && go mod tidy
go install github.com/holdfast-go/holdfast/cmd/holdfast@latest
go build -o shop .
walk ./shop
walk holdfast prove --record
walk ./shop
walk ./shop
`)
	t.Logf("on a MySQL 9.7 that calls itself 8.4, a stand-in for a server that no test run names:\n%s", out)
	said := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(out, "")
	refused, proven, _ := strings.Cut(said, "$ holdfast prove --record\n")
	report, refunds, _ := strings.Cut(proven, "$ ./shop\n")
	if !strings.Contains(refused, "MySQL 8.4") || !strings.Contains(refused, "holdfast prove --record") {
		t.Errorf("the refusal names not the command: %s", refused)
	}
	if !strings.Contains(report, "recorded: programs and commands open MySQL 8.4") {
		t.Errorf("prove: %s", report)
	}
	if want := string(blocks(page, "")[0]); strings.ReplaceAll(refunds, "$ ./shop\n", "") != want {
		t.Errorf("then printed %q, and the page says %q", refunds, want)
	}
	t.Logf("from nothing to a refund on a server to be proven in %.0f s, with the database's start and the building of everything", time.Since(begun).Seconds())
}

// standIn returns an address at which the MySQL at another address calls itself a version.
func standIn(t *testing.T, address, version string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go func() {
				rename(client, server, version)
				_ = client.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// rename copies the packets of a MySQL server to a client. The greeting has the server's version; there and
// later it is replaced by one of the same length, which begins with version.
func rename(client io.Writer, server io.Reader, version string) {
	var own, other []byte
	for {
		head := make([]byte, 4) // three bytes of length, a number
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if own == nil && len(body) > 1 {
			own, _, _ = bytes.Cut(body[1:], []byte{0})
			other = append([]byte(version), own[len(version):]...)
		}
		if _, err := client.Write(slices.Concat(head, bytes.ReplaceAll(body, own, other))); err != nil {
			return
		}
	}
}

// read returns a page with its own database, and the home of a newcomer, with the page's program.
func read(t *testing.T, name string) (page []byte, home string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	page, home = elsewhere(t, text), t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "main.go"), blocks(page, "go")[0], 0o600); err != nil {
		t.Fatal(err)
	}
	return page, home
}

// inside returns what a script prints in the newcomer's container.
func inside(t *testing.T, home string, files []string, script string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "docker", append(newcomer(t, home, files), os.Getenv("HOLDFAST_TEST_FIRST_HOUR"), "bash", "-c", script)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	return string(out)
}

// newcomer returns what docker needs for a machine with an empty home, Go, and a proxy of the folders files.
func newcomer(t *testing.T, home string, files []string) []string {
	t.Helper()
	args := []string{"run", "--rm", "--network", "host", "--workdir", "/root", "--volume", home + ":/root", "--volume", goEnv(t, "GOROOT") + ":/usr/local/go:ro"}
	args = append(args, "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro") // as the network wants them
	proxy := ""
	for i, dir := range files {
		in := fmt.Sprintf("/proxy/%d", i)
		args = append(args, "--volume", dir+":"+in+":ro")
		proxy += "file://" + in + ","
	}
	for _, set := range []string{
		"PATH=/usr/bin:/bin:/usr/local/go/bin", "HOME=/root", "GOPROXY=" + proxy + goEnv(t, "GOPROXY"), "GOSUMDB=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local",
	} {
		args = append(args, "--env", set)
	}
	return args
}

// elsewhere returns a page whose database has another name and port than one that runs already.
func elsewhere(t *testing.T, page []byte) []byte {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	page = regexp.MustCompile(`127\.0\.0\.1:(5432|3306)\b`).ReplaceAll(page, []byte("127.0.0.1:"+port))
	return bytes.ReplaceAll(page, []byte("docker run --name shop "), []byte("docker run --name holdfast-first-hour-"+port+" "))
}

// startDatabase runs a page's docker line, and removes the container at the end of the test.
func startDatabase(t *testing.T, line string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v: %s", line, err, out)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rm", "--force", "--volumes", id).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// publish returns the folders of a module proxy that serves the last commit, and what it requires.
func publish(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	clone, proxy := filepath.Join(dir, "clone"), filepath.Join(dir, "proxy")
	run(t, ".", "git", "clone", "-q", "../..", clone)
	run(t, filepath.Join(clone, "internal", "release"), "go", "run", ".", version, clone, proxy, ".", "holdfastgorm", "cmd/holdfast")
	return []string{proxy, filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return run(t, ".", "go", "env", name)
}

// run returns what a command prints in a folder.
func run(t *testing.T, in, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = in
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// blocks returns the blocks of code in a language.
func blocks(page []byte, language string) (all [][]byte) {
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllSubmatch(page, -1) { //nolint:gocritic // with (?m) it is the beginning of a line
		if string(m[1]) == language {
			all = append(all, m[2])
		}
	}
	return all
}
