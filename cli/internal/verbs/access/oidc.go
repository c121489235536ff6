package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
)

const (
	// providerPatience is how long a user may take to log in at the provider. The gateway ends the login then.
	providerPatience = 10 * time.Minute
	// farewell is how long the page that ends the login may take to reach the browser.
	farewell = 5 * time.Second
)

// withProvider returns the login of a user who logs in at the server's login provider, with a browser that comes back to a
// port of this machine (RFC 8252).
func withProvider(ctx context.Context, a *app.App, client *orrery.Client) (*settings.Login, string, error) {
	provider, err := client.GetLoginProvider(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case !provider.Enabled || provider.LoginURL == nil:
		return nil, "", exit.Hint(errors.New("the server has no login provider"), "log in with a password: leave out --oidc")
	}
	late := exit.With(exit.TimedOut, fmt.Errorf("the browser did not come back within %d minutes", int(providerPatience.Minutes())), "")
	ctx, cancel := context.WithTimeoutCause(ctx, providerPatience, late)
	defer cancel()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("a browser cannot come back to this machine: %w", err)
	}
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	page := *provider.LoginURL + "?" + url.Values{
		"redirect_uri": {"http://" + listener.Addr().String() + "/"}, "state": {state}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
	}.Encode()
	if open(a, page) {
		a.Notef("log in with the browser that opens; if none does, open\n  %s", page)
	} else {
		a.Notef("open this address in a browser on this machine\n  %s", page)
	}
	code, err := comeBack(ctx, listener, state)
	if err != nil {
		return nil, "", err
	}
	session, err := client.ExchangeProviderLogin(ctx, &orrery.ProviderExchange{Code: code, CodeVerifier: verifier})
	if err != nil {
		return nil, "", err
	}
	return app.NewLogin(session.Token, session.RefreshToken, session.ExpiresInSeconds), session.User.Username, nil
}

// returned is what a browser brings back.
type returned struct {
	code string
	err  error
}

// comeBack serves the page at the end of the login, and returns the code that the browser brings. It ignores requests with
// another state, which other programs send.
func comeBack(ctx context.Context, listener net.Listener, state string) (string, error) {
	came := make(chan returned, 1)
	server := &http.Server{ReadHeaderTimeout: farewell, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if query.Get("state") != state {
			http.NotFound(w, r)
			return
		}
		got := returned{code: query.Get("code")}
		text := "You are logged in. You can close this window."
		if got.code == "" {
			got.err = exit.With(exit.Denied, errors.New(cmp.Or(query.Get("error_description"), query.Get("error"), "the server sent no code")), "")
			text = "You are not logged in: " + got.err.Error()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, text)
		select {
		case came <- got:
		default: // the browser loaded the page again
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { <-served }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}()
	select {
	case got := <-came:
		return got.code, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// open opens a page in a browser, and reports whether it could. Variable BROWSER names the program.
func open(a *app.App, page string) bool {
	if u, err := url.Parse(page); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return false // a server must not open programs of this machine
	}
	program := strings.Fields(a.Env("BROWSER"))
	switch {
	case len(program) > 0:
	case runtime.GOOS == "darwin":
		program = []string{"open"}
	case runtime.GOOS == "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case a.Env("DISPLAY") != "" || a.Env("WAYLAND_DISPLAY") != "":
		program = []string{"xdg-open"}
	default:
		return false
	}
	cmd := exec.Command(program[0], append(program[1:], page)...)
	if cmd.Start() != nil {
		return false
	}
	go func() { _ = cmd.Wait() }() // it may run as long as the browser
	return true
}
