package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/console"
)

// serving starts the command. It returns the command's output, and a function that ends the
// command.
func (o operator) serving(args ...string) (said serving, end func() (code int, stderr string)) {
	o.Helper()
	ctx, cancel := context.WithCancel(o.Ctx)
	out, in := io.Pipe()
	var errs strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"console", "-addr", "127.0.0.1:0", "-json", "-dsn", o.DSN}, args...), in, &errs)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &said)
	}
	end = func() (int, string) { cancel(); return <-code, errs.String() }
	if err != nil {
		_, stderr := end()
		o.Fatalf("%q: %v, %s", line, err, stderr)
	}
	return said, end
}

func TestConsole(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		said, end := o.serving()
		if len(said.Token) < console.MinToken {
			o.Errorf("got %+v", said)
		}
		jar, _ := cookiejar.New(nil)
		client := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
		answer, err := client.Get(said.URL)
		if err != nil {
			o.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			o.Errorf("without the token: %s", answer.Status)
		}
		answer, err = client.PostForm(said.URL+"login", url.Values{"token": {said.Token}})
		if err != nil {
			o.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if !strings.Contains(string(body), "every operation has an outcome") || !strings.Contains(string(body), "read-only") {
			o.Errorf("%s: %s", answer.Status, body)
		}
		if code, stderr := end(); code != exitOK || strings.Contains(stderr, said.Token) {
			o.Errorf("it ends with %d, %q", code, stderr)
		}
		if _, err := client.Get(said.URL); err == nil {
			o.Error("it is still there")
		}
	})
}

func TestConsoleRefuses(t *testing.T) {
	t.Setenv(tokenVariable, "")
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:80", "127.0.0.1"} {
		if code, out, err := command(t, "console", "-addr", addr, "-dsn", "sqlite://:memory:"); code != exitUsage || out != "" || !strings.Contains(err, "--addr") {
			t.Errorf("%s: status %d, %q, %q", addr, code, out, err)
		}
	}
	for _, chosen := range []string{"short", "holdfastholdfast"} {
		t.Setenv(tokenVariable, chosen)
		if code, out, err := command(t, "console", "-dsn", "sqlite://:memory:"); code != exitUsage || out != "" || !strings.Contains(err, tokenVariable) || !strings.Contains(err, "the command generates one") || strings.Contains(err, chosen) {
			t.Errorf("%s: status %d, %q, %q", chosen, code, out, err)
		}
	}
}
