package access

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/spf13/cobra"
)

func contextCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "context", Aliases: []string{"contexts", "ctx"},
		Short: "List, choose and change the servers that you know", Local: true,
		Example: `orrery context list
orrery context use production`,
	})
	cmd.AddCommand(contextList(a), contextUse(a), contextSet(a), contextDelete(a))
	return cmd
}

func contextList(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "list", Aliases: []string{"ls"}, Short: "List the contexts",
		Local: true, Example: "orrery context list",
		Run: func(context.Context, []string) error { return listContexts(a) },
	})
}

// contextRow is what a list shows of a context. Tokens are not shown.
type contextRow struct {
	Name     string   `json:"name"`
	Current  bool     `json:"current"`
	Servers  []string `json:"servers"`
	Username string   `json:"username"`
	LoggedIn bool     `json:"loggedIn"`
	Group    string   `json:"group"`
}

var contextColumns = []output.Column{
	{Header: "NAME", Path: "name"},
	{Header: "CURRENT", Path: "current"},
	{Header: "SERVERS", Path: "servers"},
	{Header: "USER", Path: "username"},
	{Header: "LOGGED IN", Path: "loggedIn"},
	{Header: "GROUP", Path: "group"},
}

func listContexts(a *app.App) error {
	file, err := a.Settings.Read()
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if len(file.Contexts) == 0 && printer.Format.ForPeople() {
		a.Notef("no context yet; log in: orrery login")
		return nil
	}
	var rows []output.Row
	for _, c := range file.Contexts {
		row, err := json.Marshal(contextRow{
			Name: c.Name, Current: c.Name == file.Current, Servers: c.Servers, Username: c.Username,
			LoggedIn: c.Login != nil || c.Keyring, Group: c.Group,
		})
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return printer.List(contextColumns, "name", rows)
}

// change changes the context of that name, which must exist.
func change(ctx context.Context, a *app.App, name string, f func(*settings.File, *settings.Context) error) error {
	return a.Settings.Change(ctx, func(file *settings.File) error {
		c := file.Find(name)
		if c == nil {
			return exit.With(exit.NotFound, fmt.Errorf("there is no context %q", name), app.DidYouMean(name, file.Names(), "orrery context list shows the contexts"))
		}
		return f(file, c)
	})
}

// CompleteContexts completes names of contexts.
func CompleteContexts(a *app.App) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		file, err := a.Settings.Read()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return file.Names(), cobra.ShellCompDirectiveNoFileComp
	}
}

func contextUse(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "use NAME", Short: "Make a context the current one",
		Local: true, Example: "orrery context use local",
		Args: command.Between(1, 1, "the name of a context"), Complete: CompleteContexts(a),
		Run: func(ctx context.Context, args []string) error {
			if err := change(ctx, a, args[0], func(file *settings.File, _ *settings.Context) error { file.Current = args[0]; return nil }); err != nil {
				return err
			}
			return a.Say(map[string]any{"id": args[0]}, args[0], "the current context is %s", args[0])
		},
	})
}

func contextSet(a *app.App) *cobra.Command {
	var servers []string
	var group, rename, ca string
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: "set NAME", Short: "Change a context",
		Local: true, Example: `orrery context set local --group lobby
orrery context set production --server-url https://a.example --server-url https://b.example`,
		Args: command.Between(1, 1, "the name of a context"), Complete: CompleteContexts(a),
		Run: func(ctx context.Context, args []string) error {
			setCA := cmd.Flags().Changed("ca")
			if len(servers) == 0 && rename == "" && !setCA && !cmd.Flags().Changed("group") {
				return command.UsageError("pass --server-url, --ca, --group or --rename", "nothing to change")
			}
			if ca != "" {
				if _, err := (app.Target{CA: ca}).Config(); err != nil {
					return err
				}
				var err error
				if ca, err = filepath.Abs(ca); err != nil {
					return err
				}
			}
			for i, server := range servers {
				servers[i] = withScheme(server)
			}
			if len(servers) > 0 {
				if _, err := a.ContextClient(app.Target{Servers: servers}); err != nil {
					return err
				}
			}
			err := change(ctx, a, args[0], func(file *settings.File, c *settings.Context) error {
				if len(servers) > 0 {
					c.Servers = servers
				}
				if setCA {
					c.CA = ca
				}
				if cmd.Flags().Changed("group") {
					c.Group = group
				}
				if rename == "" || rename == c.Name {
					return nil
				}
				return renameContext(a, file, c, rename)
			})
			if err != nil {
				return err
			}
			return a.Say(map[string]any{"id": args[0]}, args[0], "context %s changed", args[0])
		},
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&servers, "server-url", nil, "`URL` of a gateway; repeat it for more")
	flags.StringVar(&ca, "ca", "", "`file` in PEM with the authorities that sign the certificates of the gateways; empty: those of this machine")
	flags.StringVar(&group, "group", "", "`name` of the group to use where a command takes --group")
	flags.StringVar(&rename, "rename", "", "new `name`")
	return cmd
}

// checkName refuses a name of a context that could steer the terminal.
func checkName(name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return command.UsageError("", "a context cannot have the name %q: it has control characters", name)
	}
	return nil
}

// renameContext gives a context another name. The login in the keyring moves with it.
func renameContext(a *app.App, file *settings.File, c *settings.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if file.Find(name) != nil {
		return exit.With(exit.Conflict, fmt.Errorf("there is a context %q already", name), "choose another name, or orrery context delete "+name)
	}
	login := a.Settings.LoginOf(c)
	a.Settings.DropLogin(c)
	if file.Current == c.Name {
		file.Current = name
	}
	c.Name = name
	a.Settings.SetLogin(c, login)
	return nil
}

func contextDelete(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Forget a context and its login",
		Long:  "The tokens are deleted on this machine only. To revoke them, log out first.",
		Local: true, Example: "orrery context delete local",
		Args: command.Between(1, 1, "the name of a context"), Complete: CompleteContexts(a),
		Run: func(ctx context.Context, args []string) error {
			wasCurrent := false
			err := change(ctx, a, args[0], func(file *settings.File, c *settings.Context) error {
				a.Settings.DropLogin(c)
				if wasCurrent = file.Current == c.Name; wasCurrent {
					file.Current = ""
				}
				file.Contexts = slices.DeleteFunc(file.Contexts, func(c settings.Context) bool { return c.Name == args[0] })
				return nil
			})
			if err != nil {
				return err
			}
			if wasCurrent {
				a.Notef("no context is the current one now: orrery context use NAME")
			}
			return a.Say(map[string]any{"id": args[0]}, args[0], "context %s deleted", args[0])
		},
	})
}
