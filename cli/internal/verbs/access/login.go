package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/local"
	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type loginOptions struct {
	username, passwordFile, tokenFile, code, name, data string
	quiet, oidc                                         bool
}

func login(a *app.App) *cobra.Command {
	var o loginOptions
	cmd := command.New(a, command.Spec{
		Use:   "login [URL...]",
		Short: "Log in and make the server the current one",
		Long: `Without a URL it looks for a standalone on this machine: it reads ready.json in --data, in ./data or
in /var/lib/orrery, and the file with the password of the first user if it may. Several URLs are gateways of one cluster.

The login is stored as a context, which becomes the current one: orrery context list shows all of them. A login at a server
that has a context replaces the login there.

With --oidc a browser logs in at the login provider of the server, and comes back to a port of this machine. If no browser
can be opened, it prints the address. The variable BROWSER names another program than the usual one.`,
		Example: `orrery login
orrery login http://10.0.0.5:8080 --username alice --password-file secret
orrery login https://a.example https://b.example --name production
orrery login https://orrery.example.org --oidc`,
		Args: command.Between(0, -1, ""),
		Run:  func(ctx context.Context, args []string) error { return runLogin(ctx, a, o, args) },
	})
	flags := cmd.Flags()
	flags.StringVarP(&o.username, "username", "u", "", "`name` of the user")
	flags.StringVar(&o.passwordFile, "password-file", "", "`file` with the password; - is standard input")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` with an API token to use instead of a password; - is standard input")
	flags.StringVar(&o.code, "code", "", "`code` of your authenticator, or a recovery code; the default is ORRERY_CODE, and it asks if the server wants one")
	flags.BoolVar(&o.oidc, "oidc", false, "log in with a browser at the login provider of the server")
	flags.StringVar(&o.name, "name", "", "`name` of the context; the default is that of the server, or the host")
	flags.StringVar(&o.data, "data", "", "data `directory` of a standalone on this machine")
	for _, other := range []string{"username", "password-file", "token-file", "code"} {
		cmd.MarkFlagsMutuallyExclusive("oidc", other)
	}
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing when it succeeds")
	return cmd
}

func runLogin(ctx context.Context, a *app.App, o loginOptions, servers []string) error {
	if _, err := a.Settings.Read(); err != nil {
		return err // before it asks for a password
	}
	if err := checkName(o.name); err != nil {
		return err
	}
	where, err := destinationOf(a, o, servers)
	if err != nil {
		return err
	}
	password := ""
	if found := where.local; found != nil && !o.oidc && o.passwordFile == "" && o.tokenFile == "" && (o.username == "" || o.username == found.User) {
		o.username = found.User
		password = passwordOf(a, found)
	}
	ca, err := authorities(a, where.servers)
	if err != nil {
		return err
	}
	client, err := a.ContextClient(app.Target{Servers: where.servers, CA: ca})
	if err != nil {
		return err
	}
	newLogin, username, err := authenticate(ctx, a, client, o, password)
	if err != nil {
		return err
	}
	var name, before string
	err = a.Settings.Change(ctx, func(file *settings.File) error {
		c := where.context(file, cmp.Or(o.name, a.Flags.Context), a.Env("ORRERY_CONTEXT"), username)
		c.Servers, c.CA, c.Username, c.Data = where.servers, ca, username, where.data()
		a.Settings.SetLogin(c, newLogin)
		name, before, file.Current = c.Name, file.Current, c.Name
		return nil
	})
	if err != nil {
		return exit.Explain(fmt.Errorf("the login at %s is not stored: %w", where, err), "set ORRERY_CONFIG to a file that you may write")
	}
	noteCurrent(a, name, before)
	if o.quiet {
		return nil
	}
	return a.Say(map[string]any{"id": name, "servers": where.servers, "username": username}, name, "logged in to %s as %s (context %s)", where, username, name)
}

// authorities returns the absolute path of the file with the authorities of servers: the chosen one, otherwise that of
// the context that has them.
func authorities(a *app.App, servers []string) (string, error) {
	if chosen := a.ChosenCA(); chosen != "" {
		return filepath.Abs(chosen)
	}
	file, err := a.Settings.Read()
	if err != nil {
		return "", err
	}
	if c := file.With(servers[0], a.ChosenContext(), file.Current); c != nil {
		return c.CA, nil
	}
	return "", nil
}

// noteCurrent says that a login changed the current context, and which context commands use if it is another one.
func noteCurrent(a *app.App, name, before string) {
	if used := a.Env("ORRERY_CONTEXT"); used != "" && used != name {
		a.Notef("commands still use the context %s, because ORRERY_CONTEXT is set", used)
		return
	}
	if before != "" && before != name {
		a.Notef("the current context is now %s; back to the one before: orrery context use %s", name, before)
	}
}

// destination is what a login is for.
type destination struct {
	servers []string
	// local is the standalone on this machine; nil for another server.
	local *local.Ready
}

// String returns the servers with commas between.
func (d destination) String() string { return strings.Join(d.servers, ", ") }

// data returns the data directory of the standalone; empty for another server.
func (d destination) data() string {
	if d.local == nil {
		return ""
	}
	return d.local.Data
}

// destinationOf returns the servers of the arguments, otherwise those that flags or the environment choose, otherwise the
// standalone on this machine, otherwise those of the current context, whose login may have ended.
func destinationOf(a *app.App, o loginOptions, servers []string) (d destination, err error) {
	switch {
	case o.data != "" && (len(servers) > 0 || a.Flags.Server != ""):
		return d, command.UsageError("leave out one of them", "--data cannot be combined with the URL of a server")
	case len(servers) > 0:
		for _, server := range servers {
			d.servers = append(d.servers, withScheme(server))
		}
		return d, nil
	}
	chosen := a.Flags.Server != "" || a.Env("ORRERY_SERVER") != "" || a.ChosenContext() != ""
	if o.data != "" || !chosen {
		if d.local, err = local.FindReady(o.data); err != nil {
			return d, err
		}
	}
	if d.local != nil {
		d.servers = []string{d.local.API}
		if d.local.Data, err = filepath.Abs(d.local.Data); err != nil {
			return d, err
		}
		return d, nil
	}
	target, err := a.Target()
	d.servers = slices.Clone(target.Servers)
	return d, err
}

// context returns the context to store a login in. It is the one that is named, otherwise the one with the same data
// directory or server, of the same user if there are several, otherwise a new one.
func (d destination) context(file *settings.File, named, preferred, username string) *settings.Context {
	if named == "" {
		if c := d.known(file, preferred, username); c != nil {
			return c
		}
		named = freeName(file, hostName(d.servers[0]))
	}
	if file.Find(named) == nil {
		file.Contexts = append(file.Contexts, settings.Context{Name: named})
	}
	return file.Find(named)
}

func (d destination) known(file *settings.File, preferred, username string) *settings.Context {
	var sameUser []string
	for i, c := range file.Contexts {
		if d.local != nil && c.Data == d.local.Data {
			return &file.Contexts[i]
		}
		if c.Username == username {
			sameUser = append(sameUser, c.Name)
		}
	}
	for _, server := range d.servers {
		if c := file.With(server, slices.Concat([]string{preferred}, sameUser, []string{file.Current})...); c != nil {
			return c
		}
	}
	return nil
}

// freeName returns a name that no context has: name, or name-2 and so on.
func freeName(file *settings.File, name string) string {
	free := name
	for n := 2; file.Find(free) != nil; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
}

// passwordOf returns the password that a standalone wrote for its first user; empty if it is gone.
func passwordOf(a *app.App, found *local.Ready) string {
	content, err := os.ReadFile(found.PasswordFile)
	if err != nil {
		a.Notef("the password file %s cannot be read, so a password is needed", found.PasswordFile)
		return ""
	}
	return strings.TrimSpace(string(content))
}

// authenticate returns the login of a user, whose password is given, in a file, or asked for.
func authenticate(ctx context.Context, a *app.App, client *orrery.Client, o loginOptions, password string) (*settings.Login, string, error) {
	if o.oidc {
		return withProvider(ctx, a, client)
	}
	if o.tokenFile != "" {
		return withToken(ctx, a, client, o.tokenFile)
	}
	var err error
	if o.username == "" {
		if o.username, err = a.Ask("username", "admin", "--username NAME"); err != nil {
			return nil, "", err
		}
	}
	if password == "" {
		if password, err = a.ReadSecret(o.passwordFile, "password of "+o.username, "--password-file FILE"); err != nil {
			return nil, "", err
		}
	}
	if password == "" {
		return nil, "", command.UsageError("", "the password is empty")
	}
	newLogin, err := logInWithCode(ctx, a, client, o, password)
	return newLogin, o.username, err
}

// logInWithCode logs in with a password, and with a code if the server wants one.
func logInWithCode(ctx context.Context, a *app.App, client *orrery.Client, o loginOptions, password string) (*settings.Login, error) {
	code := cmp.Or(o.code, a.Env("ORRERY_CODE"))
	newLogin, err := app.LogIn(ctx, client, o.username, password, code)
	if app.NeedsCode(err) && code == "" {
		if code, err = askCode(a); err != nil {
			return nil, err
		}
		newLogin, err = app.LogIn(ctx, client, o.username, password, code)
	}
	switch {
	case app.NeedsCode(err):
		err = exit.Hint(err, "pass --code CODE")
	case code != "" && errors.Is(err, orrery.ErrUnauthenticated):
		err = exit.Hint(err, "check the name, the password and the code")
	case errors.Is(err, orrery.ErrUnauthenticated):
		err = exit.Hint(err, "check the name and the password")
	}
	return newLogin, err
}

// askCode asks for a code of the second factor.
func askCode(a *app.App) (string, error) {
	return a.Ask("code of your authenticator, or a recovery code", "", "--code CODE, or set ORRERY_CODE")
}

// withToken returns the login of an API token, which it tries.
func withToken(ctx context.Context, a *app.App, client *orrery.Client, file string) (*settings.Login, string, error) {
	token, err := a.ReadSecret(file, "", "")
	if err != nil {
		return nil, "", err
	}
	if len(strings.Fields(token)) != 1 {
		return nil, "", command.UsageError("it must have the token and nothing else", "%s has no API token", file)
	}
	var me struct {
		Username string `json:"username"`
	}
	request := orrery.Request{Method: http.MethodGet, Path: "/api/v1/auth/me", Header: http.Header{"Authorization": {"Bearer " + token}}}
	if err := client.Call(ctx, request, &me); err != nil {
		return nil, "", err
	}
	return &settings.Login{Token: token}, me.Username, nil
}

// withScheme adds https:// to a host without a scheme, and http:// to this machine.
func withScheme(server string) string {
	if strings.Contains(server, "://") {
		return server
	}
	if hostName("http://"+server) == "local" {
		return "http://" + server
	}
	return "https://" + server
}

// hostName returns the name of a new context for a server: local for one on this machine, otherwise its host.
func hostName(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return server
	}
	if host := u.Hostname(); host == "127.0.0.1" || host == "::1" || host == "localhost" {
		return "local"
	}
	return u.Hostname()
}

func logout(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use:     "logout",
		Short:   "End the login of the current context",
		Long:    "The server revokes the tokens, so that they cannot be used elsewhere. The context stays.",
		Example: "orrery logout",
		Run:     func(ctx context.Context, _ []string) error { return runLogout(ctx, a) },
	})
}

func runLogout(ctx context.Context, a *app.App) error {
	target, err := a.Target()
	if err != nil {
		return err
	}
	if target.Context == "" {
		return command.UsageError("log in first: orrery login", "there is no context to log out of")
	}
	file, err := a.Settings.Read()
	if err != nil {
		return err
	}
	if c := file.Find(target.Context); c == nil || c.Login == nil && !c.Keyring {
		return a.Say(map[string]any{"id": target.Context}, target.Context, "%s was not changed: you are not logged in", target.Context)
	}
	client, err := a.ContextClient(target)
	if err != nil {
		return err
	}
	revoked := client.Call(ctx, orrery.Request{Method: http.MethodPost, Path: "/api/v1/auth/logout"}, nil)
	err = a.Settings.Change(ctx, func(file *settings.File) error {
		if c := file.Find(target.Context); c != nil {
			a.Settings.DropLogin(c)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case revoked != nil && !errors.Is(revoked, orrery.ErrUnauthenticated):
		return exit.Hint(fmt.Errorf("the tokens are deleted here, but the server did not revoke them: %w", revoked), "they expire by themselves; an administrator can end the login: orrery user sessions")
	}
	return a.Say(map[string]any{"id": target.Context}, target.Context, "logged out of %s", target.Context)
}
