//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/examples/internal/process"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

var allLanguages = []string{"go", "python", "php", "java"}

// worker is a process of a client.
type worker struct {
	language string

	mu      sync.Mutex // of process: it is not started again while it is struck
	process *process.Process
}

// start compiles what has to be, and starts all clients.
func (s *storm) start(ctx context.Context) error {
	for _, language := range s.languages {
		if language == "java" {
			if err := s.compile(ctx, "Refund.java"); err != nil {
				return err
			}
		}
		for range s.each {
			c := &worker{language: language}
			if err := c.restart(ctx, s); err != nil {
				return err
			}
			s.clients = append(s.clients, c)
		}
	}
	return nil
}

// jars is where Debian has the drivers. They need no version.
const jars = "/usr/share/java/postgresql.jar:/usr/share/java/mariadb-java-client.jar"

// compile compiles a Java program into a folder of this run.
func (s *storm) compile(ctx context.Context, file string) (err error) {
	if s.classes == "" {
		if s.classes, err = os.MkdirTemp("", "polyglot"); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-d", s.classes, filepath.Join(s.folder, file)).CombinedOutput() //nolint:gosec // a flag names the folder
	if err != nil {
		return fmt.Errorf("javac: %w: %s", err, out)
	}
	return nil
}

// commandOf returns the command line of a language's program.
func (s *storm) commandOf(language, program string) ([]string, error) {
	switch language {
	case "go":
		self, err := os.Executable()
		return []string{self, "client"}, err
	case "python":
		return []string{"/usr/bin/python3", filepath.Join(s.folder, strings.ToLower(program)+".py")}, nil
	case "php":
		return []string{"php", filepath.Join(s.folder, strings.ToLower(program)+".php")}, nil
	case "java":
		return []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", s.classes + ":" + jars, program}, nil
	}
	return nil, fmt.Errorf("no client speaks %q", language)
}

// environment names the database as the drivers of the other languages want it.
func (s *storm) environment() ([]string, error) {
	env := append(os.Environ(), "HOLDFAST_DSN="+s.url, "PROTECT="+s.protect)
	add := func(engine, host, port, user, password, name, schema string) []string {
		return append(env, "DB_ENGINE="+engine, "DB_HOST="+host, "DB_PORT="+port, "DB_USER="+user, "DB_PASSWORD="+password, "DB_NAME="+name, "DB_SCHEMA="+schema)
	}
	config, err := dsn.Parse(s.url)
	if err != nil {
		return nil, err
	}
	if config.Engine == dsn.Postgres {
		u, err := url.Parse(config.DSN)
		if err != nil {
			return nil, errors.New("-dsn is not a URL")
		}
		password, _ := u.User.Password()
		schema := u.Query().Get("search_path")
		if schema == "" {
			schema = "public"
		}
		return add("postgres", u.Hostname(), u.Port(), u.User.Username(), password, strings.TrimPrefix(u.Path, "/"), schema), nil
	}
	c, err := mysql.ParseDSN(config.DSN)
	if err != nil {
		return nil, errors.New("-dsn is not a URL")
	}
	host, port, err := net.SplitHostPort(c.Addr)
	return add("mysql", host, port, c.User, c.Passwd, c.DBName, ""), err
}

// restart starts the client, for the first time or after its end.
func (c *worker) restart(ctx context.Context, s *storm) error {
	line, err := s.commandOf(c.language, "Refund")
	if err != nil {
		return err
	}
	env, err := s.environment()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // this program, or a client of this folder
	cmd.Env, cmd.Stderr = env, s.log
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		c.process.Stop()
	}
	c.process, err = process.Start(cmd)
	return err
}

// ask sends a line and waits for the answer. alive is false if the client has ended.
func (c *worker) ask(line string) (answer string, alive bool) {
	c.process.Tell(line)
	answer, alive = <-c.process.Lines
	return answer, alive
}

func (c *worker) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.Kill()
}

// pause stops the process for a while.
func (c *worker) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.Pause()
	time.Sleep(d)
	c.process.Resume()
}

// end ends all clients.
func (s *storm) end() {
	for _, c := range s.clients {
		c.process.Stop()
	}
	if s.classes != "" {
		_ = os.RemoveAll(s.classes)
	}
}
