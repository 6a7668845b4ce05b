package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/token"
)

const (
	// tokenVariable holds the console's token, so that it is not on the command line.
	tokenVariable = "HOLDFAST_CONSOLE_TOKEN"

	// endTimeout is how long serve waits at the end for requests in progress.
	endTimeout = 5 * time.Second
)

// serving is the console's address, in JSON.
type serving struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"`
}

func newConsole(f *flags) *cobra.Command {
	var o console.Options
	var addr string
	var remote bool
	var behind proxy
	cmd := &cobra.Command{
		Use: "console", Short: "Serve a page with locks, operations and the reaper's history, until interrupted", Args: noArgs,
		Long: "Serve a page with locks, operations and the reaper's history, until interrupted.\n" +
			"It only shows, unless --write is given. The token to sign in with is that of\n" +
			"$" + tokenVariable + ", or else a random one, which is printed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAddr(addr, remote); err != nil {
				return err
			}
			said := serving{}
			if o.Token = os.Getenv(tokenVariable); o.Token == "" {
				o.Token = rand.Text()
				said.Token = o.Token
			}
			if problem := token.Problem(o.Token); problem != "" {
				return usage("%s %s: unset it, and the command generates one", tokenVariable, problem)
			}
			if behind.user != "" && said.Token != "" {
				return usage("--user-header needs a token that the proxy sends, too: set " + tokenVariable)
			}
			wrap, err := behind.configure(&o)
			if err != nil {
				return err
			}
			o.Log = logTo(cmd.ErrOrStderr())
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				o.Ending = ctx.Done()
				handler, err := console.New(ctx, db, o)
				if err != nil {
					return err
				}
				listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
				if err != nil {
					return err
				}
				said.URL = "http://" + listener.Addr().String() + "/"
				link := said.URL
				if said.Token != "" { // browsers do not send the part after the #
					link += "#token=" + url.QueryEscape(said.Token)
				}
				if err := f.answer(cmd, said, "console: "+link+"\nan interrupt ends it\n"); err != nil {
					return errors.Join(err, listener.Close())
				}
				return serve(ctx, listener, wrap(handler), o.Log)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&addr, "addr", "127.0.0.1:8081", "address to listen at")
	flags.BoolVar(&remote, "allow-remote", false, "listen at an address that other machines can reach; put a proxy with TLS in front of it")
	flags.BoolVar(&o.Write, "write", false, "allow to resolve operations and to release locks")
	flags.BoolVar(&o.FourEyes, "four-eyes", false, "with --write: one person proposes a change, and another one confirms it; needs --user-header")
	flags.BoolVar(&o.SecureCookie, "secure-cookie", false, "the page is reached through TLS, which a proxy ends")
	flags.StringVar(&o.Path, "path", "", "path below which browsers reach the page, if a proxy takes it away: /ops/console/ (default: /)")
	flags.StringSliceVar(&o.Hosts, "host", nil, "name by which browsers reach the page; may be repeated (default: localhost, 127.0.0.1, ::1)")
	flags.StringVar(&behind.user, "user-header", "", "header in which a proxy that authenticates names the person; it sends the token as Authorization: Bearer")
	flags.StringVar(&behind.groups, "groups-header", "", "header in which that proxy lists the person's groups, with commas")
	flags.StringVar(&behind.writers, "write-group", "", "with --write, only members of this group may change anything")
	addNamespace(flags, &o.Store.Namespace)
	return cmd
}

// checkAddr refuses an address that other machines could reach, unless remote is set.
func checkAddr(addr string, remote bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usage("--addr is not host:port")
	}
	if ip := net.ParseIP(host); !remote && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usage("--addr %s can be reached by other machines, and the token would travel in clear: use 127.0.0.1 behind a proxy with TLS, or add --allow-remote", addr)
	}
	return nil
}

// serve serves until ctx ends, and then waits for requests in progress.
func serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := core.CleanupWithin(ctx, endTimeout)
	defer cancel()
	err := server.Shutdown(end)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off at the end: %w", err), server.Close())
	}
	<-served //nolint:errcheck // it says that it was closed
	return err
}

// logTo returns a logger for people that leaves out passwords.
func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(withoutPassword(err.Error()))
		}
		return a
	}}))
}
