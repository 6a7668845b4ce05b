//go:build unix

package servers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time that a server gets to stop before it is killed.
const stopTimeout = 10 * time.Second

// process is a running server.
type process struct {
	cmd     *exec.Cmd
	died    chan struct{}
	logFile string
}

// run starts a server with a separate folder as its working directory.
func (s *Set) run(name string, command ...string) (*process, error) {
	logFile, err := os.Create(filepath.Join(s.dir, name+".log")) //nolint:gosec // a name of ours
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // a server's binary; stop ends it
	cmd.Dir = filepath.Join(s.dir, name)
	if err := os.Mkdir(cmd.Dir, 0o700); err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only this process
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, died: make(chan struct{}), logFile: logFile.Name()}
	go func() {
		defer close(p.died)
		_ = cmd.Wait()
	}()
	s.procs = append(s.procs, p)
	return p, nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.died:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.died
	}
}

// ready waits until ask returns an answer.
func (p *process) ready(ctx context.Context, ask func(ctx context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		answer, err := ask(ctx)
		if err == nil {
			return answer, nil
		}
		select {
		case <-p.died:
			return "", fmt.Errorf("it stopped while it started: %s", p.tail())
		case <-ctx.Done():
			return "", fmt.Errorf("no answer in time: %w: %s", err, p.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail returns the end of the server's log.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.logFile)
	text = bytes.TrimSpace(text)
	if len(text) > 400 {
		text = text[len(text)-400:]
	}
	return strings.ReplaceAll(string(text), "\n", " | ")
}

// address returns a free address on the loopback interface.
func address(ctx context.Context) (host string, port string, err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = l.Close() }()
	return net.SplitHostPort(l.Addr().String())
}
