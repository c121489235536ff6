package rollouts

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func rollout(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "rollout", Aliases: []string{"deploy"},
		Short: "Replace the instances of a group by new ones, and watch or stop that",
		Long: `New instances are made from the current settings and templates of the group. One rollout of a group runs at a time.
The commands act on the newest one unless --revision names another.`,
		Example: `orrery rollout start lobby --wait
orrery rollout status lobby --watch
orrery rollout undo lobby`,
	})
	cmd.AddCommand(rolloutStart(a), rolloutStatus(a), rolloutHistory(a))
	for _, c := range controls {
		cmd.AddCommand(c.command(a))
	}
	return cmd
}

func rolloutStart(a *app.App) *cobra.Command {
	var body orrery.DeployRequest
	var dryRun, wait bool
	cmd := command.New(a, command.Spec{
		Use: "start [group] NAME", Short: "Start a rollout",
		Long: `By default one instance after the other is replaced, empty ones first, and a replacement is ready before its original stops.
A canary replaces a few instances first. Blue-green starts a whole second set and then switches.`,
		Example: `orrery rollout start lobby
orrery rollout start lobby --dry-run
orrery rollout start lobby --strategy canary --canary-percent 10 --wait
orrery rollout start lobby --batch-size 5 --deadline 2m`,
		Args: command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error {
			return runRolloutStart(ctx, a, &body, rolloutFlags{dryRun: dryRun, wait: wait}, args)
		},
	})
	flags := cmd.Flags()
	command.DryRunFlag(a, cmd, &dryRun)
	flags.BoolVar(&wait, "wait", false, "wait until it has ended; fail if it fails")
	strategyFlags(cmd, &body)
	return cmd
}

// strategies are the values of --strategy.
var strategies = []string{"rolling", "canary", "blue-green"}

func strategyFlags(cmd *cobra.Command, body *orrery.DeployRequest) {
	flags := cmd.Flags()
	command.OptionalText(flags, &body.Strategy, "strategy", "`strategy`: rolling, canary or blue-green; the default is that of the group", parseStrategy)
	command.CompleteFlag(cmd, "strategy", cobra.FixedCompletions(strategies, cobra.ShellCompDirectiveNoFileComp))
	command.OptionalNumber(flags, &body.BatchSize, "batch-size", "`number` of instances to replace at the same time")
	command.OptionalNumber(flags, &body.MaxSurge, "max-surge", "`number` of instances that may run in addition")
	command.OptionalNumber(flags, &body.MaxUnavailable, "max-unavailable", "`number` of instances that may be down")
	command.OptionalNumber(flags, &body.CanaryInstances, "canary-instances", "`number` of instances that a canary replaces first")
	command.OptionalNumber(flags, &body.CanaryPercent, "canary-percent", "`percent` of the instances that a canary replaces first")
	command.OptionalBool(flags, &body.HealthGateEnabled, "health-gate", "replacements must be healthy before their originals stop")
	command.OptionalBool(flags, &body.AutoRollbackOnFailure, "auto-rollback", "roll back if it fails")
	command.OptionalSeconds(flags, &body.MinHealthySeconds, "min-healthy", "how long an instance must run to be healthy, as a `duration`")
	command.OptionalFloat(flags, &body.MinHealthyTPS, "min-healthy-tps", "lowest `number` of ticks per second of a healthy instance")
	command.OptionalSeconds(flags, &body.PromotionTimeoutSeconds, "promotion-timeout", "how long a ready replacement may take to become healthy, as a `duration`")
	command.OptionalSeconds(flags, &body.ReplacementTimeoutSeconds, "replacement-timeout", "how long the rollout may make no progress, as a `duration`")
	command.OptionalSeconds(flags, &body.DeadlineSeconds, "deadline", "when the players of an instance are asked to move, as a `duration`")
	command.OptionalSeconds(flags, &body.GraceSeconds, "grace", "how long after that the instance stops, as a `duration`")
	command.NoCompletions(cmd)
}

func parseStrategy(text string) (string, error) {
	for _, s := range strategies {
		if strings.EqualFold(strings.ReplaceAll(text, "_", "-"), s) {
			return strings.ToUpper(strings.ReplaceAll(s, "-", "_")), nil
		}
	}
	return "", fmt.Errorf("the strategies are %s", strings.Join(strategies, ", "))
}

// rolloutFlags are the flags of the commands that change a rollout.
type rolloutFlags struct {
	revision     int64
	dryRun, wait bool
}

func runRolloutStart(ctx context.Context, a *app.App, body *orrery.DeployRequest, o rolloutFlags, args []string) error {
	_, name, err := command.One(args, "group")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if o.dryRun {
		d, err := client.DeployGroupDryRun(ctx, name, body)
		if err != nil {
			return command.NotFound(ctx, client, err, "group", name)
		}
		return showDeployDryRun(a, d)
	}
	d, err := client.DeployGroup(ctx, name, body)
	if err != nil {
		return command.NotFound(ctx, client, err, "group", name)
	}
	return started(ctx, a, client, o.wait, d)
}

// started reports a rollout that was just started, or its end.
func started(ctx context.Context, a *app.App, client *orrery.Client, wait bool, d *orrery.Deployment) error {
	if wait {
		a.Notef("rollout %d of group %s started: %s", d.Revision, d.GroupName, d.Strategy)
		return followRollout(ctx, a, client, d.GroupName, d.Revision)
	}
	settle(ctx, a, client, d, func(d *orrery.Deployment) bool { return d.TotalInstances > 0 })
	return a.Say(d, revisionText(d.Revision), "rollout %d of group %s started: %s, %d of %d instances replaced, state %s",
		d.Revision, d.GroupName, d.Strategy, d.UpdatedInstances, d.TotalInstances, d.State)
}

func revisionText(revision int64) string { return strconv.FormatInt(revision, 10) }

var replaceColumns = []output.Column{
	{Header: "INSTANCE", Path: "id"},
	{Header: "PLAYERS", Path: "players"},
	{Header: "WAVE", Path: "wave"},
	{Header: "WHY NOW", Path: "reason"},
}

func showDeployDryRun(a *app.App, d *orrery.DeployDryRun) error {
	return a.Show(d, d.Group, func(p output.Printer) error {
		if len(d.Replace) == 0 {
			return a.Lines(append([]string{"no instance of group " + d.Group + " would be replaced"}, app.Notes(d.Notes)...))
		}
		if err := a.Linef("%s of group %s: %d instances would be replaced, in this order", d.Deployment.Strategy, d.Group, len(d.Replace)); err != nil {
			return err
		}
		rows, err := app.Rows(d.Replace)
		if err != nil {
			return err
		}
		if err := p.List(replaceColumns, "id", rows); err != nil {
			return err
		}
		return a.Lines(app.Notes(d.Notes))
	})
}

// newest returns the revision, or that of the newest rollout of the group if it is 0.
func newest(ctx context.Context, client *orrery.Client, group string, revision int64) (int64, error) {
	if revision != 0 {
		return revision, nil
	}
	return Newest(ctx, client, group)
}

// Newest returns the revision of the newest rollout of a group.
func Newest(ctx context.Context, client *orrery.Client, group string) (int64, error) {
	page, err := client.ListDeployments(ctx, group, &orrery.ListDeploymentsParams{PageSize: 1})
	if err != nil {
		return 0, command.NotFound(ctx, client, err, "group", group)
	}
	if len(page.Data) == 0 {
		return 0, exit.With(exit.NotFound, fmt.Errorf("group %s has no rollout", group), "start one: orrery rollout start "+group)
	}
	return page.Data[0].Revision, nil
}

func rolloutHistory(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "history [group] NAME", Short: "List the rollouts of a group, newest first",
		Example: "orrery rollout history lobby",
		Args:    command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "group")
			if err != nil {
				return err
			}
			return command.PrintPart(ctx, a, kinds.Get("deployment"), kinds.Get("group"), name, nil)
		},
	})
}
