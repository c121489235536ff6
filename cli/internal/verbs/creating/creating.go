// Package creating has the commands below create whose objects have no documents.
package creating

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{createUser(a), createServiceAccount(a), createAPIToken(a), createJoinToken(a), createTemplate(a)}
}

func createUser(a *app.App) *cobra.Command {
	var role, passwordFile, email string
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "user NAME --role ROLE", Short: "Create a user",
		Long: "It asks for the password, unless --password-file has it.",
		Example: `orrery create user alice --role MODERATOR --password-file secret
orrery create user bob --role VIEWER --email bob@a.example --password-file bob.txt`,
		Args: command.Between(1, 1, "the name of the new user"),
		Run: func(ctx context.Context, args []string) error {
			if role == "" {
				return command.UsageError("orrery get roles lists the roles", "a user needs --role")
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			password, err := a.ReadSecret(passwordFile, "password of "+args[0], "--password-file FILE")
			if err != nil {
				return err
			}
			request := &orrery.UserRequest{Username: args[0], Password: password, Role: role}
			if email != "" {
				request.Email = &email
			}
			create := client.CreateUser
			if dryRun {
				create = client.CreateUserDryRun
			}
			user, err := create(ctx, request)
			if err != nil {
				return err
			}
			if dryRun {
				return a.Say(user, user.Username, "user %s would be created with the role %s", user.Username, user.Role)
			}
			return a.Say(user, user.Username, "user %s created with the role %s", user.Username, user.Role)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "`role` of the user")
	flags.StringVar(&passwordFile, "password-file", "", "`file` with the password; - is standard input")
	flags.StringVar(&email, "email", "", "`address` for messages")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "role", command.CompleteNames(a, "role"))
	command.CompleteFlag(cmd, "email", cobra.NoFileCompletions)
	return cmd
}

func createServiceAccount(a *app.App) *cobra.Command {
	var role string
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "service-account NAME", Short: "Create an account for a program",
		Long: `A service account cannot log in. orrery create api-token --user NAME creates a token for it, and bindings or --role say what it
may do.`,
		Example: `orrery create service-account ci
orrery create service-account monitoring --role VIEWER`,
		Args: command.Between(1, 1, "the name of the new service account"),
		Run: func(ctx context.Context, args []string) error {
			request := &orrery.ServiceAccountRequest{Name: args[0]}
			if role != "" {
				request.Role = &role
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			create, done := client.CreateServiceAccount, "created"
			if dryRun {
				create, done = client.CreateServiceAccountDryRun, "would be created"
			}
			account, err := create(ctx, request)
			if err != nil {
				return err
			}
			return a.Say(account, account.Name, "service account %s %s with the role %s", account.Name, done, account.Role)
		},
	})
	cmd.Flags().StringVar(&role, "role", "", "`role` of the account; the default is NONE")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "role", command.CompleteNames(a, "role"))
	return cmd
}

func createAPIToken(a *app.App) *cobra.Command {
	var expires, user string
	var scopes []string
	var readOnly bool
	cmd := command.New(a, command.Spec{
		Use: "api-token NAME", Aliases: []string{"token"}, Short: "Create an API token for a program",
		Long: `The token has your permissions or those of --user, a service account, or only those of --scope. It is printed now and never again: standard output has the token
and nothing else. -o name prints its id instead.`,
		Example: `orrery create api-token ci --expires 30d
orrery create api-token backup --scope groups.view --scope templates.view
orrery create api-token website --public
orrery create api-token deploy --user ci`,
		Args: command.Between(1, 1, "what the token is for"),
		Run: func(ctx context.Context, args []string) error {
			request := &orrery.APITokenRequest{Name: args[0], Scopes: scopes}
			if readOnly {
				public := "PUBLIC"
				request.Kind = &public
			}
			if user != "" {
				request.User = &user
			}
			var err error
			if request.ExpiresInSeconds, err = parseExpiry(expires); err != nil {
				return err
			}
			return runCreateAPIToken(ctx, a, request)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&expires, "expires", "", "`duration` until it expires, such as 12h, 30d or never; the default is a year")
	flags.StringSliceVar(&scopes, "scope", nil, "`permission` that it has; repeat it for more")
	flags.StringVar(&user, "user", "", "`name` of the service account that the token is for")
	flags.BoolVar(&readOnly, "public", false, "it can only read, and is limited to 100 requests a minute")
	command.NoCompletions(cmd)
	return cmd
}

func runCreateAPIToken(ctx context.Context, a *app.App, request *orrery.APITokenRequest) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	token, err := client.CreateAPIToken(ctx, request)
	if err != nil {
		return err
	}
	return a.Show(token, token.ID, func(output.Printer) error {
		until := "it never expires"
		if token.ExpiresAt != nil {
			until = "it expires at " + kinds.Moment(*token.ExpiresAt)
		}
		a.Notef("API token %s created (id %s); %s. It is shown only now:", token.Name, token.ID, until)
		_, err := fmt.Fprintln(a.Out, token.Token)
		return err
	})
}

// parseExpiry parses a duration with days, or never, in seconds. It is nil without a text.
func parseExpiry(text string) (*int64, error) {
	seconds := int64(0)
	switch {
	case text == "":
		return nil, nil
	case text == "never":
		return &seconds, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			seconds = int64(n) * 24 * 3600
			return &seconds, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return nil, command.UsageError("", "--expires %q is not a duration such as 12h or 30d, and not never", text)
	}
	seconds = int64(d / time.Second)
	return &seconds, nil
}

func createJoinToken(a *app.App) *cobra.Command {
	var ttl *string
	var again bool
	cmd := command.New(a, command.Spec{
		Use: "join-token NODE", Short: "Create a token with which a host joins as a node",
		Long: `Standard output has the token and nothing else. It is shown only now, and admits one host: run nodeagent join TOKEN there.
-o name prints its id instead.`,
		Example: `orrery create join-token node-2
orrery create join-token node-2 --ttl 15m`,
		Args: command.Between(1, 1, "the name of the node that will join"),
		Run: func(ctx context.Context, args []string) error {
			request := &orrery.CreateJoinTokenRequest{NodeID: args[0], TTL: ttl}
			if again {
				request.Again = &again
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			token, err := client.CreateJoinToken(ctx, request)
			if err != nil {
				return err
			}
			return a.Show(token, token.TokenID, func(output.Printer) error {
				a.Notef("join token for node %s created (id %s); it expires at %s", token.NodeID, token.TokenID, kinds.Moment(token.ExpiresAt))
				if token.Warning != "" {
					a.Notef("%s", token.Warning)
				}
				_, err := fmt.Fprintln(a.Out, token.Token)
				return err
			})
		},
	})
	command.OptionalText(cmd.Flags(), &ttl, "ttl", "`duration` that it is valid, such as 15m, 12h or 7d; at most 30d", command.ParseDuration)
	command.CompleteFlag(cmd, "ttl", cobra.NoFileCompletions)
	cmd.Flags().BoolVar(&again, "again", false, "the node has joined before: its host gets a new certificate and keeps its data")
	return cmd
}

func createTemplate(a *app.App) *cobra.Command {
	var description, platform string
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "template NAME", Short: "Create a template without files",
		Example: `orrery create template lobby --description 'World and plugins of the lobby'
orrery create template games/duels`,
		Args: command.Between(1, 1, "the name of the new template"),
		Run: func(ctx context.Context, args []string) error {
			request := &orrery.CreateTemplateRequest{Name: args[0]}
			if description != "" {
				request.Description = &description
			}
			if platform != "" {
				request.Platform = &platform
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			if dryRun {
				would, err := client.CreateTemplateDryRun(ctx, request)
				if err != nil {
					return err
				}
				return a.Say(would, would.Template.Name, "template %s would be created", would.Template.Name)
			}
			template, err := client.CreateTemplate(ctx, request)
			if err != nil {
				return err
			}
			return a.Say(template, template.Name, "template %s created", template.Name)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&description, "description", "", "`text` that says what it is for")
	flags.StringVar(&platform, "platform", "", "server `software` that it is for")
	command.DryRunFlag(a, cmd, &dryRun)
	command.NoCompletions(cmd)
	return cmd
}
