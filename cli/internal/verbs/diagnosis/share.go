package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func share(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "share", Short: "Keep a piece of a log on the server and print a link to it",
		Long: `The server replaces what looks like a password, token or key. Read the page before you pass the link on. orrery get shares
lists the links, also those that have ended.`,
		Example: `orrery share console lobby-1
orrery share crash 01M8GQ --expires 30d
orrery share revoke 01M8GQ`,
	})
	cmd.AddCommand(
		shareOne(a, shareable{
			use: "console INSTANCE", short: "Share the last lines of the console of an instance", kind: "instance", limited: true,
			example: "orrery share console lobby-1 --lines 200 --expires 1h", create: (*orrery.Client).ShareConsole,
		}),
		shareOne(a, shareable{use: "crash ID", short: "Share a crash", kind: "crash", example: "orrery share crash 01M8GQ --expires 30d", create: (*orrery.Client).ShareCrash}),
		shareOne(a, shareable{
			use: "node NAME", short: "Share the log of the agent of a node", kind: "node", limited: true, levels: true,
			example: "orrery share node node-1 --level WARN", create: (*orrery.Client).ShareNodeLogs,
		}),
		shareOne(a, shareable{
			use: "system", short: "Share the logs of the gateways", limited: true, levels: true, example: "orrery share system --private",
			create: func(client *orrery.Client, ctx context.Context, _ string, body *orrery.ShareRequest) (*orrery.CreatedShare, error) {
				return client.ShareSystemLogs(ctx, body)
			},
		}),
		shareOne(a, shareable{
			use: "diagnostics", short: "Share what a bug report needs", example: "orrery share diagnostics --expires 30d",
			create: func(client *orrery.Client, ctx context.Context, _ string, body *orrery.ShareRequest) (*orrery.CreatedShare, error) {
				return client.ShareDiagnostics(ctx, body)
			},
		}),
		shareRevoke(a),
	)
	return cmd
}

// shareable is something that can be shared.
type shareable struct {
	use, short, example string
	// kind is that of the object in the argument; empty for things that exist once.
	kind string
	// limited things have a number of lines, and levels say that records have one.
	limited, levels bool
	create          func(client *orrery.Client, ctx context.Context, name string, body *orrery.ShareRequest) (*orrery.CreatedShare, error)
}

func shareOne(a *app.App, s shareable) *cobra.Command {
	var body orrery.ShareRequest
	spec := command.Spec{Use: s.use, Short: s.short, Example: s.example, Run: func(ctx context.Context, args []string) error {
		return runShare(ctx, a, s, append(args, "")[0], &body)
	}}
	if s.kind != "" {
		spec.Args, spec.Complete = command.Between(1, 1, "the name of one "+s.kind), command.CompleteFirst(a, s.kind, nil)
	}
	cmd := command.New(a, spec)
	flags := cmd.Flags()
	command.OptionalText(flags, &body.Expiry, "expires", "`time` until the link ends: 1h, 1d, 30d or never", parseExpiry)
	command.OptionalBool(flags, &body.IsPrivate, "private", "only users who could share it themselves can read it")
	command.OptionalBool(flags, &body.BurnAfterRead, "once", "the link works once; that is the default, except for diagnostics: --once=false")
	if s.limited {
		command.OptionalNumber(flags, &body.Limit, "lines", "`number` of lines, counted from the end")
	}
	if s.levels {
		command.OptionalText(flags, &body.Level, "level", "lowest `level`: DEBUG, INFO, WARN or ERROR", nil)
	}
	command.CompleteFlag(cmd, "expires", cobra.FixedCompletions(expiries(), cobra.ShellCompDirectiveNoFileComp))
	command.NoCompletions(cmd)
	return cmd
}

// expiries are the times after which a link can end.
func expiries() []string { return []string{"1h", "1d", "30d", "never"} }

func parseExpiry(text string) (string, error) {
	if !slices.Contains(expiries(), text) {
		return "", fmt.Errorf("it must be one of %s", strings.Join(expiries(), ", "))
	}
	return text, nil
}

func runShare(ctx context.Context, a *app.App, s shareable, name string, body *orrery.ShareRequest) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	made, err := s.create(client, ctx, name, body)
	if err != nil {
		if s.kind == "" {
			return err
		}
		return app.Suggest(ctx, client, err, kinds.Get(s.kind), "", name)
	}
	return a.Show(made, made.ShareID, func(output.Printer) error {
		until := "until it is revoked"
		if made.ExpiresAt != nil {
			until = "until " + kinds.Moment(*made.ExpiresAt)
		}
		if made.BurnAfterRead {
			until = "once, " + until
		}
		a.Notef("share %s can be read %s; orrery share revoke %s ends it", made.ShareID, until, made.ShareID)
		return a.Linef("%s", made.URL)
	})
}

func shareRevoke(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "revoke ID", Short: "End a link", Example: "orrery share revoke 01M8GQ",
		Args: command.Between(1, 1, "the ID of a share"), Complete: command.CompleteFirst(a, "share", nil),
		Run: func(ctx context.Context, args []string) error {
			return command.OnObject(ctx, a, "share", args[0], func(client *orrery.Client) error {
				done, err := client.RevokeShare(ctx, args[0])
				if err != nil {
					return err
				}
				return a.Say(done, args[0], "share %s is revoked", args[0])
			})
		},
	})
}
