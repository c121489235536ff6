package access

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func userCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "user", Aliases: []string{"users"}, Short: "Change users and end their logins",
		Long: "orrery get users lists the users, orrery create user makes one.",
		Example: `orrery user set alice --role OPERATOR
orrery user sessions alice`,
	})
	cmd.AddCommand(userSet(a), userPassword(a), userSessions(a), userFactor(a))
	return cmd
}

func userSet(a *app.App) *cobra.Command {
	var role, email string
	var dryRun bool
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: "set NAME", Short: "Change the role or the email address of a user",
		Example: "orrery user set alice --role OPERATOR --email alice@example.org",
		Args:    command.Between(1, 1, "the name of a user"), Complete: command.CompleteFirst(a, "user", nil),
		Run: func(ctx context.Context, args []string) error {
			patch := orrery.Patch{}
			for flag, value := range map[string]string{"role": role, "email": email} {
				if cmd.Flags().Changed(flag) {
					patch[flag] = value
				}
			}
			if len(patch) == 0 {
				return command.UsageError("pass --role or --email", "user set has nothing to change")
			}
			return updateUser(ctx, a, args[0], patch, dryRun, "user %s changed")
		},
	})
	cmd.Flags().StringVar(&role, "role", "", "`name` of the role")
	cmd.Flags().StringVar(&email, "email", "", "`address` for password resets; empty removes it")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "role", command.CompleteNames(a, "role"))
	command.CompleteFlag(cmd, "email", cobra.NoFileCompletions)
	return cmd
}

// updateUser changes a user. Callers who change their own password get a new login, which is stored.
func updateUser(ctx context.Context, a *app.App, name string, patch orrery.Patch, dryRun bool, done string) error {
	return command.OnObject(ctx, a, "user", name, func(client *orrery.Client) error {
		update := client.UpdateUser
		if dryRun {
			update = client.UpdateUserDryRun
		}
		user, err := update(ctx, name, patch, nil)
		if err != nil {
			return err
		}
		if user.Token != "" && !dryRun {
			if err := storeLogin(ctx, a, app.NewLogin(user.Token, user.RefreshToken, user.ExpiresInSeconds)); err != nil {
				return err
			}
			user.Token, user.RefreshToken = "", ""
		}
		if dryRun {
			return a.Say(user, name, "user %s would change", name)
		}
		return a.Say(user, name, done, name)
	})
}

// storeLogin replaces the login of the context in use.
func storeLogin(ctx context.Context, a *app.App, login *settings.Login) error {
	target, err := a.Target()
	if err != nil || target.Context == "" || a.Env("ORRERY_TOKEN") != "" {
		return err
	}
	return change(ctx, a, target.Context, func(_ *settings.File, c *settings.Context) error { a.Settings.SetLogin(c, login); return nil })
}

func userPassword(a *app.App) *cobra.Command {
	var file string
	cmd := command.New(a, command.Spec{
		Use: "password NAME", Short: "Set the password of a user",
		Long:    "All logins of the user end. orrery passwd changes your own password.",
		Example: "orrery user password alice --password-file secret",
		Args:    command.Between(1, 1, "the name of a user"), Complete: command.CompleteFirst(a, "user", nil),
		Run: func(ctx context.Context, args []string) error {
			password, err := newPassword(a, file, args[0], "--password-file FILE")
			if err != nil {
				return err
			}
			return updateUser(ctx, a, args[0], orrery.Patch{"password": password}, false, "the password of %s is set, and all logins have ended")
		},
	})
	cmd.Flags().StringVar(&file, "password-file", "", "`file` with the new password; - is standard input")
	return cmd
}

// newPassword returns the password in a file, or one that is typed twice.
func newPassword(a *app.App, file, user, flag string) (string, error) {
	password, err := a.ReadSecret(file, "new password of "+user, flag)
	if err != nil || file != "" {
		return password, err
	}
	again, err := a.AskSecret("again", flag)
	if err == nil && again != password {
		err = exit.With(exit.Usage, errors.New("the two passwords differ; nothing was changed"), "")
	}
	return password, err
}

func passwd(a *app.App) *cobra.Command {
	var current, next string
	var endTokens bool
	cmd := command.New(a, command.Spec{
		Use: "passwd", Short: "Change your own password",
		Long:    "All your other logins end. This one continues.",
		Example: "orrery passwd --current-file old-secret --new-file new-secret",
		Run: func(ctx context.Context, _ []string) error {
			return changePassword(ctx, a, current, next, endTokens)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&current, "current-file", "", "`file` with the present password; - is standard input")
	flags.StringVar(&next, "new-file", "", "`file` with the new password")
	flags.BoolVar(&endTokens, "end-tokens", false, "also revoke your API tokens")
	return cmd
}

func changePassword(ctx context.Context, a *app.App, currentFile, newFile string, endTokens bool) error {
	current, err := a.ReadSecret(currentFile, "present password", "--current-file FILE")
	if err != nil {
		return err
	}
	next, err := newPassword(a, newFile, "yours", "--new-file FILE")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	done, err := client.ChangePassword(ctx, &orrery.PasswordChangeRequest{CurrentPassword: current, NewPassword: next, EndAPITokens: &endTokens})
	if err != nil {
		return err
	}
	if err := storeLogin(ctx, a, app.NewLogin(done.Token, done.RefreshToken, done.ExpiresInSeconds)); err != nil {
		return exit.Explain(err, "the password was changed, but the new login could not be stored: orrery login")
	}
	return a.Say(map[string]any{"status": "ok"}, "", "your password was changed")
}

func sessionsOf() *kinds.Kind {
	return command.Part("logins", "/api/v1/users/{group}/sessions", "id", []output.Column{
		{Header: "ID", Path: "id"},
		{Header: "CURRENT", Path: "current"},
		{Header: "SINCE", Path: "signedInAt", Text: kinds.MomentCell},
		{Header: "REFRESHED", Path: "refreshedAt", Text: kinds.MomentCell},
		{Header: "EXPIRES", Path: "expiresAt", Text: kinds.MomentCell},
		{Header: "ADDRESS", Path: "ipAddress"},
		{Header: "PROGRAM", Path: "userAgent"},
	})
}

func userSessions(a *app.App) *cobra.Command {
	var end []string
	var all bool
	cmd := command.New(a, command.Spec{
		Use: "sessions NAME", Aliases: []string{"logins"}, Short: "List the logins of a user, or end them",
		Example: `orrery user sessions alice
orrery user sessions alice --end SGCFREYGLPTGQRJCKFZ2BBFUWN
orrery user sessions alice --all`,
		Args: command.Between(1, 1, "the name of a user"), Complete: command.CompleteFirst(a, "user", nil),
		Run: func(ctx context.Context, args []string) error {
			switch name := args[0]; {
			case all:
				return command.OnObject(ctx, a, "user", name, func(client *orrery.Client) error { return endAll(ctx, a, client, name) })
			case len(end) > 0:
				return command.Each(ctx, a, end, func(id string) error { return endSession(ctx, a, name, id) })
			default:
				return command.PrintPart(ctx, a, sessionsOf(), kinds.Get("user"), name, nil)
			}
		},
	})
	cmd.Flags().StringArrayVar(&end, "end", nil, "end the login with this `id`; repeat it for more")
	cmd.Flags().BoolVar(&all, "all", false, "end all logins of the user")
	cmd.MarkFlagsMutuallyExclusive("end", "all")
	command.CompleteFlag(cmd, "end", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return command.NamesIn(cmd.Context(), a, sessionsOf(), args[0]), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

func endAll(ctx context.Context, a *app.App, client *orrery.Client, name string) error {
	if err := client.DeleteUserSessions(ctx, name); err != nil {
		return err
	}
	return a.Say(map[string]any{"id": name}, name, "all logins of %s have ended", name)
}

func endSession(ctx context.Context, a *app.App, name, id string) error {
	return command.OnObject(ctx, a, "user", name, func(client *orrery.Client) error {
		if err := client.DeleteUserSession(ctx, name, id); err != nil {
			return err
		}
		return a.Say(map[string]any{"id": id}, id, "login %s of %s has ended", id, name)
	})
}

func roleCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "role", Aliases: []string{"roles"}, Short: "Change what the users of a role may do",
		Example: "orrery role set BUILDERS --add templates.update",
	})
	cmd.AddCommand(roleSet(a))
	return cmd
}

func roleSet(a *app.App) *cobra.Command {
	var add, remove []string
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "set NAME", Short: "Add permissions to a role or remove them",
		Example: "orrery role set BUILDERS --add templates.view,templates.update --remove groups.update",
		Args:    command.Between(1, 1, "the name of a role"), Complete: command.CompleteFirst(a, "role", nil),
		Run: func(ctx context.Context, args []string) error {
			if len(add)+len(remove) == 0 {
				return command.UsageError("pass --add or --remove", "role set has nothing to change")
			}
			return command.OnObject(ctx, a, "role", args[0], func(client *orrery.Client) error {
				return setRole(ctx, a, client, args[0], add, remove, dryRun)
			})
		},
	})
	cmd.Flags().StringSliceVar(&add, "add", nil, "`permissions` to add, separated by commas")
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "`permissions` to remove, separated by commas")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "add", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "remove", cobra.NoFileCompletions)
	return cmd
}

func setRole(ctx context.Context, a *app.App, client *orrery.Client, name string, add, remove []string, dryRun bool) error {
	role, err := client.GetRole(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range remove {
		if !slices.Contains(role.Permissions, p) {
			return exit.With(exit.NotFound, fmt.Errorf("role %s does not have the permission %q", name, p), app.DidYouMean(p, role.Permissions, "orrery describe role "+name))
		}
	}
	permissions := slices.DeleteFunc(slices.Clone(role.Permissions), func(p string) bool { return slices.Contains(remove, p) })
	for _, p := range add {
		if !slices.Contains(permissions, p) {
			permissions = append(permissions, p)
		}
	}
	update := client.UpdateRole
	if dryRun {
		update = client.UpdateRoleDryRun
	}
	done, err := update(ctx, name, orrery.Patch{"permissions": permissions}, &orrery.UpdateRoleParams{IfMatch: role.ETag})
	if err != nil {
		return err
	}
	if dryRun {
		return a.Say(done, name, "role %s would have %d permissions", name, len(done.Permissions))
	}
	return a.Say(done, name, "role %s has %d permissions", name, len(done.Permissions))
}
