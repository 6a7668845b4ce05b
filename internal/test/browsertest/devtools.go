package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// devtools speaks the DevTools protocol with one page of one browser, through pipes: messages of JSON
// that end with a zero byte. See https://chromedevtools.github.io/devtools-protocol.
type devtools struct {
	session string // of the page; empty is the browser
	ended   chan struct{}
	to      io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan<- answer
}

type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

var errEnded = errors.New("the browser has ended")

// launch starts a browser that ctx ends, with an empty page.
func launch(ctx context.Context, program, folder string) (*devtools, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), to.Close())
	}
	cmd := exec.CommandContext(ctx, program, //nolint:gosec // a browser
		"--remote-debugging-pipe", "--user-data-dir="+folder, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--mute-audio", "--no-first-run", "--no-default-browser-check", "--enable-automation", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
		"--disable-breakpad", "--disable-extensions", "--disable-renderer-backgrounding", "--disable-sync", "--force-color-profile=srgb",
		"--password-store=basic", "--use-mock-keychain", "--disable-features=Translate")
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4, as the protocol wants them
	err = cmd.Start()
	err = errors.Join(err, in.Close(), out.Close())
	if err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	d := &devtools{ended: make(chan struct{}), to: to, waiting: map[int]chan<- answer{}}
	go func() {
		defer close(d.ended)
		d.read(from)
		_ = cmd.Wait()
		_ = from.Close()
	}()
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *devtools) open() error {
	var page struct{ TargetID string }
	if err := d.call("Target.createTarget", map[string]any{"url": "about:blank"}, &page); err != nil {
		return err
	}
	var session struct{ SessionID string }
	if err := d.call("Target.attachToTarget", map[string]any{"targetId": page.TargetID, "flatten": true}, &session); err != nil {
		return err
	}
	d.session = session.SessionID
	return nil
}

// Close waits until the browser has ended.
func (d *devtools) Close() error {
	d.session = ""
	err := d.call("Browser.close", nil, nil)
	<-d.ended
	return errors.Join(err, d.to.Close())
}

// read hands each answer to its call until the browser has ended. No call waits for an event.
func (d *devtools) read(from io.Reader) {
	for r := bufio.NewReader(from); ; {
		message, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(message[:len(message)-1], &a) != nil {
			continue
		}
		d.mu.Lock()
		if waiting := d.waiting[a.ID]; waiting != nil {
			waiting <- a
		}
		d.mu.Unlock()
	}
}

// call sends a command, and reads its result into a struct.
func (d *devtools) call(method string, params map[string]any, result any) error {
	answered := make(chan answer, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.waiting[id] = answered
	message, err := json.Marshal(struct {
		ID        int            `json:"id"`
		Method    string         `json:"method"`
		Params    map[string]any `json:"params,omitempty"`
		SessionID string         `json:"sessionId,omitempty"`
	}{id, method, params, d.session})
	if err == nil {
		_, err = d.to.Write(append(message, 0))
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiting, id)
		d.mu.Unlock()
	}()
	if err != nil {
		return err
	}
	var a answer
	select {
	case a = <-answered:
	case <-d.ended:
		return errEnded
	}
	switch {
	case a.Error != nil:
		return fmt.Errorf("%s: %s", method, a.Error.Message)
	case result == nil:
		return nil
	}
	return json.Unmarshal(a.Result, result)
}
