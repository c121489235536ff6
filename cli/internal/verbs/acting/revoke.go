package acting

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type revokeOptions struct {
	days   int
	dryRun bool
}

func revoke(a *app.App) *cobra.Command {
	o := &revokeOptions{}
	cmd := command.New(a, command.Spec{
		Use: "revoke [node] NAME", Short: "Shut out a node",
		Long: `The node is cordoned. Its certificates are refused, so its session ends, and it cannot join again. The tokens of its instances
are refused. An agent that uses etcd without a gateway keeps its session: shut it down to end it.`,
		Example: `orrery revoke node-1 --dry-run
orrery revoke node-1 --days 30`,
		Args: command.Between(1, 2, "the name of a node"), Complete: command.CompleteTargets(a, "node"),
		Run: func(ctx context.Context, args []string) error { return runRevoke(ctx, a, o, args) },
	})
	command.Number(cmd.Flags(), &o.days, "days", 0, "`number` of days; 0 is the default of the server")
	command.DryRunFlag(a, cmd, &o.dryRun)
	command.CompleteFlag(cmd, "days", cobra.NoFileCompletions)
	return cmd
}

func runRevoke(ctx context.Context, a *app.App, o *revokeOptions, args []string) error {
	_, name, err := command.One(args, "node")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	var answer any
	var left orrery.RemainingInstances
	result, text := resultChanged, "node %s is revoked; it still runs %s"
	params := &orrery.RevokeNodeParams{TTLDays: o.days}
	if o.dryRun {
		planned, failure := client.RevokeNodeDryRun(ctx, name, params)
		if answer, err = planned, failure; err == nil {
			left, result, text = planned.Left, resultPlanned, "node %s would be revoked; it runs %s"
		}
	} else {
		done, failure := client.RevokeNode(ctx, name, params)
		if answer, err = done, failure; err == nil {
			left = done.Left
		}
	}
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("node"), "", name)
	}
	return report(a, answer, act{name, result, fmt.Sprintf(text, name, output.Counted(left.Count, "instance"))})
}

func unrevoke(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "unrevoke [node] NAME", Short: "Allow a revoked node to join again",
		Long:    "The node stays cordoned.",
		Example: "orrery unrevoke node-1",
		Args:    command.Between(1, 2, "the name of a node"), Complete: command.CompleteTargets(a, "node"),
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "node")
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			answer, err := client.UnrevokeNode(ctx, name)
			if err != nil {
				return app.Suggest(ctx, client, err, kinds.Get("node"), "", name)
			}
			text := fmt.Sprintf("node %s may join again; it stays cordoned: orrery uncordon %s", name, name)
			return report(a, answer, act{name, resultChanged, text})
		},
	})
}
