package groups

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type scaleOptions struct {
	to           int64
	dryRun, wait bool
}

func scale(a *app.App) *cobra.Command {
	var o scaleOptions
	cmd := command.New(a, command.Spec{
		Use:   "scale [group] NAME --to NUMBER",
		Short: "Set how many instances of a group run",
		Long: `It sets the minimum of the group, and its maximum if that is lower. Surplus instances stop, youngest first,
as soon as they have no players.`,
		Example: `orrery scale lobby --to 3
orrery scale lobby --to 3 --wait --timeout 2m
orrery scale lobby --to 0 --dry-run`,
		Args: command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
	})
	flags := cmd.Flags()
	flags.Int64Var(&o.to, "to", 0, "`number` of instances")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would start and stop, and change nothing")
	flags.BoolVar(&o.wait, "wait", false, "wait until that many are RUNNING")
	command.CompleteFlag(cmd, "to", cobra.NoFileCompletions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("to") || o.to < 0 {
			return command.UsageError("for example: orrery scale "+args[len(args)-1]+" --to 3", "--to takes the number of instances, 0 or more")
		}
		ctx, cancel := a.Context(cmd.Context())
		defer cancel()
		return runScale(ctx, a, o, args)
	}
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
			return found(ctx, client, err, "group", name)
		}
		return showGroupDryRun(a, d)
	}
	answer, err := client.ScaleGroup(ctx, name, request)
	if err != nil {
		return found(ctx, client, err, "group", name)
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
	progress := a.Progress()
	defer progress.End()
	running := int64(-1)
	err := app.Follow(ctx, client, orrery.EventsOptions{Group: name}, func(ctx context.Context) (bool, error) {
		group, err := client.GetGroup(ctx, name)
		if err != nil {
			return false, err
		}
		running = group.RunningInstances
		progress.Set("%s %d of %d running%s", app.Bar(running, want), running, want, because(group))
		return running == want, nil
	})
	if ctx.Err() == nil || running < 0 {
		return err
	}
	hint := fmt.Sprintf("group %s is scaled to %d and %d run; Orrery continues by itself, and orrery explain group %s says what holds it back", name, want, running, name)
	return exit.Hint(err, hint)
}

// because says what holds a group back; empty if nothing does.
func because(group *orrery.Group) string {
	if held := group.Scaling.HeldBy; held != nil {
		return ": " + held.Message
	}
	return ""
}
