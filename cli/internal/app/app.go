// Package app gives commands what they need from outside: the server, the terminal, the settings,
// and one way to print, ask and report.
package app

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
	"golang.org/x/term"
)

// App is passed to every command.
type App struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Env returns a variable of the environment.
	Env func(name string) string
	// Settings are those of the user.
	Settings *settings.Store
	// Flags are the flags that all commands have.
	Flags Flags
	// Interactive says that a person sits in front of In and Err.
	Interactive bool
	// Interrupted is closed by Ctrl-C; nil if that cannot happen.
	Interrupted <-chan struct{}
	// Width and Height are those of the terminal of Out; 0 if it is not a terminal.
	Width, Height int

	lines *bufio.Reader
}

// Flags are the flags that all commands have.
type Flags struct {
	// Context is the name of the context to use; empty means the current one.
	Context string
	// Server is the URL of a gateway, used instead of those of the context.
	Server string
	// CA is a file with the authorities that sign the certificates of servers; empty means that of the context.
	CA string
	// Output is the value of -o.
	Output string
	// NoInput makes the command fail where it would ask.
	NoInput bool
	// NoHeaders omits the headings of tables.
	NoHeaders bool
	// Timeout bounds the command; 0 means no bound.
	Timeout time.Duration
}

// New returns the App of this process.
func New() *App {
	var keyring settings.Keyring
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" || hasNativeKeyring {
		keyring = settings.DesktopKeyring{}
	}
	a := &App{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Settings: settings.New(settings.DefaultPath(os.Getenv), keyring),
		Interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	a.Settings.Warn = func(text string) { a.Notef("warning: %s", text) }
	if term.IsTerminal(int(os.Stdout.Fd())) {
		var err error
		if a.Width, a.Height, err = term.GetSize(int(os.Stdout.Fd())); err != nil || a.Width <= 0 {
			a.Width, a.Height = 80, 24
		}
	}
	return a
}

// defaultServer is where a standalone listens.
const defaultServer = "http://127.0.0.1:8080"

// Target is the server that a command talks to.
type Target struct {
	// Context is the name of the context whose login is used; empty without one.
	Context string
	Servers []string
	// Group is the group that the context names for --group.
	Group string
	// CA is a file with the authorities that sign the certificates of the servers; empty means those of this machine.
	CA string
}

// Target returns the server of the flags, the environment or the settings, in this order.
func (a *App) Target() (Target, error) {
	target, err := a.chosen()
	target.CA = cmp.Or(a.ChosenCA(), target.CA)
	return target, err
}

// ChosenCA returns the file that --ca or ORRERY_CA chooses; empty without them.
func (a *App) ChosenCA() string { return cmp.Or(a.Flags.CA, a.Env("ORRERY_CA")) }

func (a *App) chosen() (Target, error) {
	server := a.Flags.Server
	if server == "" && a.Flags.Context == "" {
		server = a.Env("ORRERY_SERVER")
	}
	if server != "" && a.Env("ORRERY_TOKEN") != "" {
		return Target{Servers: []string{server}}, nil // a script, which needs no settings
	}
	file, err := a.Settings.Read()
	if err != nil {
		return Target{}, err
	}
	if server != "" && a.Flags.Context == "" {
		return targetAt(server, file.With(server, a.Env("ORRERY_CONTEXT"), file.Current)), nil
	}
	name := cmp.Or(a.ChosenContext(), file.Current)
	if name == "" {
		return Target{Servers: []string{defaultServer}}, nil
	}
	c := file.Find(name)
	switch {
	case c == nil:
		return Target{}, exit.With(exit.NotFound, fmt.Errorf("there is no context %q", name), DidYouMean(name, file.Names(), "orrery context list shows the contexts"))
	case server != "":
		return targetAt(server, c), nil
	case len(c.Servers) == 0:
		return Target{}, exit.With(exit.Usage, fmt.Errorf("the context %s has no servers", name), "orrery context set "+name+" --server-url http://HOST:8080")
	}
	return Target{Context: name, Servers: c.Servers, Group: c.Group, CA: c.CA}, nil
}

// targetAt returns a server with the login of a context; without one if c is nil.
func targetAt(server string, c *settings.Context) Target {
	target := Target{Servers: []string{server}}
	if c != nil {
		target.Context, target.Group, target.CA = c.Name, c.Group, c.CA
	}
	return target
}

// ChosenContext returns the name of the context that --context or ORRERY_CONTEXT chooses; empty without them.
func (a *App) ChosenContext() string { return cmp.Or(a.Flags.Context, a.Env("ORRERY_CONTEXT")) }

// Client returns a client of the target with the login of the context, or with the token in ORRERY_TOKEN.
func (a *App) Client() (*orrery.Client, error) {
	target, err := a.Target()
	if err != nil {
		return nil, err
	}
	return a.ClientOf(target)
}

// ClientOf returns a client of a target.
func (a *App) ClientOf(target Target) (*orrery.Client, error) {
	if token := strings.TrimSpace(a.Env("ORRERY_TOKEN")); token != "" {
		if strings.ContainsFunc(token, unicode.IsControl) {
			return nil, exit.With(exit.Usage, errors.New("ORRERY_TOKEN has control characters"), "set it to one API token, or unset it")
		}
		return newClient(target, orrery.StaticToken(token))
	}
	return a.ContextClient(target)
}

// ContextClient returns a client of a target with the login of its context, also if there is an ORRERY_TOKEN.
func (a *App) ContextClient(target Target) (*orrery.Client, error) {
	anonymous, err := newClient(target, nil)
	if err != nil || target.Context == "" {
		return anonymous, err
	}
	return newClient(target, a.Settings.Credentials(target.Context, func(ctx context.Context, refreshToken string) (*settings.Login, error) {
		return refresh(ctx, anonymous, refreshToken)
	}))
}

func newClient(target Target, credentials orrery.Credentials) (*orrery.Client, error) {
	config, err := target.Config()
	if err != nil {
		return nil, err
	}
	config.Credentials = credentials
	client, err := orrery.New(config)
	return client, exit.With(exit.Usage, err, "")
}

// Config returns the configuration of a client of the target, without a login.
func (t Target) Config() (orrery.Config, error) {
	config := orrery.Config{Addresses: t.Servers, UserAgent: "orrery/" + Version()}
	if t.CA == "" {
		return config, nil
	}
	content, err := os.ReadFile(t.CA)
	if err != nil {
		return config, exit.With(exit.Usage, fmt.Errorf("cannot read the authorities that sign certificates of servers: %w", err), "pass --ca FILE, or change that of the context: orrery context set NAME --ca FILE")
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(content) {
		return config, exit.With(exit.Usage, fmt.Errorf("%s has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----", t.CA), "pass --ca with the certificate of the authority")
	}
	return config, nil
}

// HintOf returns the next step after an error, like exit.HintOf, and names the server to log in to.
func (a *App) HintOf(err error) string {
	hint := exit.HintOf(err)
	if !errors.Is(err, orrery.ErrUnauthenticated) {
		return hint
	}
	target, err := a.Target()
	if err != nil {
		return hint
	}
	logIn := exit.LogIn + " " + strings.Join(target.Servers, " ")
	if a.Env("ORRERY_TOKEN") != "" {
		logIn = "ORRERY_TOKEN is not valid there: set it to an API token of that server, or unset it and " + logIn
	}
	return strings.Replace(hint, exit.LogIn, logIn, 1)
}

// Printer returns the printer of -o.
func (a *App) Printer() (output.Printer, error) {
	format, err := output.ParseFormat(a.Flags.Output)
	if err != nil {
		return output.Printer{}, exit.With(exit.Usage, err, "")
	}
	return output.Printer{Out: a.Out, Format: format, Style: a.Style(), Width: a.Width, NoHeaders: a.Flags.NoHeaders}, nil
}

// Style returns the style of standard output: colours on a terminal, unless NO_COLOR is set.
func (a *App) Style() output.Style {
	return output.Style{Colour: a.Width > 0 && a.Env("NO_COLOR") == "" && a.Env("TERM") != "dumb"}
}

// Context returns a context that ends with --timeout.
func (a *App) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Flags.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.Flags.Timeout)
}

// Notef prints a line for people to standard error, without control characters.
func (a *App) Notef(format string, args ...any) {
	fmt.Fprintln(a.Err, output.Clean(fmt.Sprintf(format, args...)))
}

// Reconnecting returns a function that says why a connection was lost. It says the same reason only once in a row.
func Reconnecting(note func(format string, args ...any)) func(error) {
	last := ""
	return func(err error) {
		if text := err.Error(); text != last {
			last = text
			note("connection lost: %s; reconnecting", text)
		}
	}
}

// errNoTerminal is why a question was not asked.
var errNoTerminal = errors.New("there is no terminal to ask on")
