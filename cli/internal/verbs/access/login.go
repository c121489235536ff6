package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
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
	username, passwordFile, tokenFile, name, data string
	quiet                                         bool
}

func login(a *app.App) *cobra.Command {
	var o loginOptions
	cmd := command.New(a, command.Spec{
		Use:   "login [URL...]",
		Short: "Log in and make the server the current one",
		Long: `Without a URL it looks for a standalone on this machine: it reads ready.json in --data, in ./data or
in /var/lib/orrery, and the file with the password of the first user if it may. Several URLs are gateways of one cluster.

The login is stored as a context: orrery context list shows all of them.`,
		Example: `orrery login
orrery login http://10.0.0.5:8080 --username alice --password-file secret
orrery login https://a.example https://b.example --name production`,
		Args: command.Between(0, -1, ""),
		Run:  func(ctx context.Context, args []string) error { return runLogin(ctx, a, o, args) },
	})
	flags := cmd.Flags()
	flags.StringVarP(&o.username, "username", "u", "", "`name` of the user")
	flags.StringVar(&o.passwordFile, "password-file", "", "`file` with the password; - is standard input")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` with an API token to use instead of a password; - is standard input")
	flags.StringVar(&o.name, "name", "", "`name` of the context; the default is the host")
	flags.StringVar(&o.data, "data", "", "data `directory` of a standalone on this machine")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing when it succeeds")
	return cmd
}

func runLogin(ctx context.Context, a *app.App, o loginOptions, servers []string) error {
	password := ""
	if len(servers) == 0 {
		found, err := local.FindReady(o.data)
		if err != nil {
			return err
		}
		if servers, err = defaultServers(a, found); err != nil {
			return err
		}
		if found != nil && o.passwordFile == "" && o.tokenFile == "" && (o.username == "" || o.username == found.User) {
			o.username = found.User
			password = passwordOf(a, found)
		}
	}
	for i, server := range servers {
		servers[i] = withScheme(server)
	}
	client, err := a.ClientOf(app.Target{Servers: servers})
	if err != nil {
		return err
	}
	newLogin, username, err := authenticate(ctx, a, client, o, password)
	if err != nil {
		return err
	}
	name := contextName(o.name, servers[0])
	err = a.Settings.Change(ctx, func(file *settings.File) error {
		c := file.Find(name)
		if c == nil {
			file.Contexts = append(file.Contexts, settings.Context{Name: name})
			c = file.Find(name)
		}
		c.Servers, c.Username = servers, username
		a.Settings.SetLogin(c, newLogin)
		file.Current = name
		return nil
	})
	if err != nil || o.quiet {
		return err
	}
	return a.Report(map[string]any{"id": name, "servers": servers, "username": username},
		"logged in to %s as %s (context %s)", strings.Join(servers, ", "), username, name)
}

// defaultServers returns the servers of a login without a URL: those of the standalone on this machine, or
// those of the current context, whose login may have ended.
func defaultServers(a *app.App, found *local.Ready) ([]string, error) {
	if found != nil && a.Flags.Server == "" && a.Flags.Context == "" {
		return []string{found.API}, nil
	}
	target, err := a.Target()
	return slices.Clone(target.Servers), err
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
	newLogin, err := app.LogIn(ctx, client, o.username, password)
	if errors.Is(err, orrery.ErrUnauthenticated) {
		err = exit.Hint(err, "check the name and the password")
	}
	return newLogin, o.username, err
}

// withToken returns the login of an API token, which it tries.
func withToken(ctx context.Context, a *app.App, client *orrery.Client, file string) (*settings.Login, string, error) {
	token, err := a.ReadSecret(file, "", "")
	if err != nil {
		return nil, "", err
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

// withScheme adds http:// to a host without a scheme.
func withScheme(server string) string {
	if strings.Contains(server, "://") {
		return server
	}
	return "http://" + server
}

// contextName returns the name of the context for a server.
func contextName(name, server string) string {
	if name != "" {
		return name
	}
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
	client, err := a.ClientOf(target)
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
	return a.Report(map[string]any{"id": target.Context}, "logged out of %s", target.Context)
}
