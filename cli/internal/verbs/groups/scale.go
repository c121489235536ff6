package groups

import (
	"context"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

type scaleOptions struct {
	to           int64
	dryRun, wait bool
}

func scale(a *app.App) *cobra.Command {
	var o scaleOptions
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use:   "scale [group] NAME --to NUMBER",
		Short: "Set how many instances of a group run",
		Long: `It sets the minimum of the group, and its maximum if that is lower. Surplus instances stop, youngest first,
as soon as they have no players.`,
		Example: `orrery scale lobby --to 3
orrery scale lobby --to 3 --wait
orrery scale lobby --to 0 --dry-run`,
		Args: command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error {
			if !cmd.Flags().Changed("to") {
				return command.UsageError("for example: orrery scale "+args[len(args)-1]+" --to 3", "--to takes the number of instances, 0 or more")
			}
			return runScale(ctx, a, o, args)
		},
	})
	flags := cmd.Flags()
	command.Number(flags, &o.to, "to", 0, "`number` of instances")
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.wait, "wait", false, "wait until that many are RUNNING")
	command.CompleteFlag(cmd, "to", cobra.NoFileCompletions)
	return cmd
}

func runScale(ctx context.Context, a *app.App, o scaleOptions, args []string) error {
	_, name, err := command.One(args, "group")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	request := &orrery.ScaleGroupRequest{TargetInstances: o.to}
	if o.dryRun {
		d, err := client.ScaleGroupDryRun(ctx, name, request)
		if err != nil {
			return command.NotFound(ctx, client, err, "group", name)
		}
		return a.ShowGroupDryRun(d)
	}
	answer, err := client.ScaleGroup(ctx, name, request)
	if err != nil {
		return command.NotFound(ctx, client, err, "group", name)
	}
	if answer.Message != "" {
		a.Notef("%s", answer.Message)
	}
	if o.wait {
		if err := waitForNumber(ctx, a, client, name, o.to); err != nil {
			return err
		}
	}
	return a.Say(answer, name, "group %s scaled to %d", name, o.to)
}

// waitForNumber waits until the group has that many RUNNING instances.
func waitForNumber(ctx context.Context, a *app.App, client *orrery.Client, name string, want int64) error {
	_, err := progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{
			Kind: kinds.Get("group"), Name: name,
			Until: progress.Existing(func(_ context.Context, row output.Row) progress.Step { return hasNumber(name, want, row) }),
		}},
		Goal:       "scaled",
		Afterwards: "the group is scaled and Orrery continues by itself; orrery explain group " + name + " says what holds it back",
	})
	return err
}

// hasNumber judges whether a group has that many RUNNING instances. It cannot get more while nothing is started.
func hasNumber(name string, want int64, row output.Row) progress.Step {
	group := gjson.ParseBytes(row)
	running := group.Get("runningInstances").Int()
	text := fmt.Sprintf("%s %d of %d running", progress.Bar(running, want), running, want)
	if held := group.Get("scaling.heldBy.message").String(); held != "" {
		text += ": " + held
	}
	hint := ""
	switch {
	case running == want:
		return progress.Step{Done: true}
	case running > want:
		return progress.Step{Text: fmt.Sprintf("%d run, and %d of them stop as soon as they have no players", running, running-want)}
	case group.Get("paused").Bool():
		hint = "end the pause: orrery crash reset " + name
	case group.Get("maintenance").Bool():
		hint = "end the maintenance: orrery maintenance off group " + name
	default:
		return progress.Step{Text: text}
	}
	message := strings.TrimSpace(group.Get("message").String() + " " + group.Get("scaling.heldBy.message").String())
	err := fmt.Errorf("group %s is scaled to %d and %d run, but nothing is started now: %s", name, want, running, message)
	return progress.Step{Err: exit.With(exit.Failed, err, hint)}
}
