package start_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	image := os.Getenv("HOLDFAST_TEST_FIRST_HOUR")
	if image == "" {
		t.Skip("make first-hour runs it")
	}
	files := publish(t)
	for _, name := range []string{"sqlite", "pgx", "postgres", "mysql", "gorm", "sqlx"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			page := elsewhere(t, text)
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "main.go"), blocks(page, "go")[0], 0o600); err != nil {
				t.Fatal(err)
			}
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
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "docker", append(newcomer(t, home, files), image, "bash", "-c", script)...)
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			if want := string(blocks(page, "")[0]); string(out) != want {
				t.Errorf("printed %q, and the page says %q", out, want)
			}
			t.Logf("from nothing to its output in %.0f s, with the database's start and the building of everything", time.Since(begun).Seconds())
		})
	}
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
	run(t, filepath.Join(clone, "internal", "release"), "go", "run", ".", version, clone, proxy, ".", "holdfastgorm")
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
