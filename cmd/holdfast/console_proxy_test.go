package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// nginx starts nginx with a server and returns its URL. The test is skipped if it is missing.
func nginx(tb testing.TB, server string) string {
	tb.Helper()
	program := "/usr/sbin/nginx"
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("HOLDFAST_TEST_REQUIRE_NGINX") != "" {
			tb.Fatal("HOLDFAST_TEST_REQUIRE_NGINX is set and nginx was not found: apt-get install nginx-light")
		}
		tb.Skip("nginx was not found, so nothing was tested behind it: apt-get install nginx-light")
	}
	dir, port := tb.TempDir(), dbtest.FreePort(tb)
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr error;
events {}
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server { listen 127.0.0.1:%[2]s; server_name ops.shop.example; %[3]s }
}`, dir, port, server)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	dbtest.Serve(tb, port, program, "-e", "stderr", "-p", dir, "-c", file)
	return "http://127.0.0.1:" + port
}

// TestConsoleBehindProxy checks the configuration in docs/howto/console.md: nginx asks who the person is, under
// a prefix, and no other program can name one.
func TestConsoleBehindProxy(t *testing.T) {
	const secret = "the token of the console"
	t.Setenv(tokenVariable, secret)
	o := operator{conformance.New(t, conformance.SQL(), dbtest.SQLite)}
	said, end := o.serving("--write", "--host", "ops.shop.example", "--user-header", "X-Forwarded-User", "--groups-header", "X-Forwarded-Groups", "--write-group", "payments-ops")
	defer end()
	// It answers as oauth2-proxy does; here, the person is what a cookie says.
	who := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := r.Cookie("person")
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Auth-Request-User", name.Value)
		if name.Value == "ada" {
			w.Header().Set("X-Auth-Request-Groups", "staff,payments-ops")
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer who.Close()
	front := nginx(t, fmt.Sprintf(`
    location /ops/console/ {
      auth_request /oauth2/auth;
      auth_request_set $user $upstream_http_x_auth_request_user;
      auth_request_set $groups $upstream_http_x_auth_request_groups;
      proxy_pass %s;
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-User $user;
      proxy_set_header X-Forwarded-Groups $groups;
      proxy_set_header Authorization "Bearer %s";
    }
    location = /oauth2/auth { internal; proxy_pass %s; proxy_pass_request_body off; proxy_set_header Content-Length ""; }`,
		said.URL, secret, who.URL))

	locks, err := sqllock.New(o.Ctx, o.DB, sqllock.Options{Holder: "worker-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(o.Ctx)) })
	if _, err := locks.Acquire(o.Ctx, "order/7"); err != nil {
		t.Fatal(err)
	}
	ask := func(url, person string, headers ...string) (int, string) {
		t.Helper()
		r, _ := http.NewRequestWithContext(o.Ctx, http.MethodGet, url, nil)
		r.Host = "ops.shop.example"
		if person != "" {
			r.AddCookie(&http.Cookie{Name: "person", Value: person})
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	page := front + "/ops/console/locks"
	if status, body := ask(page, ""); status != http.StatusUnauthorized {
		t.Errorf("nobody: %d %s", status, body)
	}
	if status, body := ask(page, "bob", "X-Forwarded-User", "ada", "X-Forwarded-Groups", "payments-ops"); status != http.StatusOK || strings.Contains(body, "Release") || !strings.Contains(body, "order/7") {
		t.Errorf("bob, who is in no group and says he is: %d %s", status, body)
	}
	if status, body := ask(page, "ada"); status != http.StatusOK || !strings.Contains(body, "Release") || strings.Contains(body, `name="by"`) {
		t.Errorf("ada: %d %s", status, body)
	}
	if status, _ := ask(front+"/ops/console/style.css", "ada"); status != http.StatusOK {
		t.Errorf("a file below the prefix: %d", status)
	}
	// Past the proxy.
	for what, headers := range map[string][]string{
		"no token":      {"X-Forwarded-User", "ada"},
		"another token": {"X-Forwarded-User", "ada", "Authorization", "Bearer x"},
		"no name":       {"Authorization", "Bearer " + secret},
		"two names":     {"Authorization", "Bearer " + secret, "X-Forwarded-User", "ada", "X-Forwarded-User", "bob"},
		"two groups":    {"Authorization", "Bearer " + secret, "X-Forwarded-User", "ada", "X-Forwarded-Groups", "a", "X-Forwarded-Groups", "payments-ops"},
	} {
		if status, body := ask(said.URL+"locks", "", headers...); status != http.StatusUnauthorized || strings.Contains(body, "order/7") {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
}

func TestConsoleProxyFlags(t *testing.T) {
	t.Setenv(tokenVariable, "")
	for _, args := range [][]string{{"--user-header", "X"}, {"--groups-header", "X"}, {"--write-group", "x"}, {"--user-header", "X", "--write-group", "x"}, {"--four-eyes", "--write"}, {"--four-eyes", "--user-header", "X"}} {
		if code, out, err := command(t, append([]string{"console", "-dsn", "sqlite://:memory:"}, args...)...); code != exitUsage || out != "" {
			t.Errorf("%v: status %d, %q, %q", args, code, out, err)
		}
	}
}
