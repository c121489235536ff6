package acting

import (
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type moveOptions struct {
	to, message          string
	grace                time.Duration
	cancel, dryRun, wait bool
}

func move(a *app.App) *cobra.Command {
	o := &moveOptions{grace: time.Minute}
	cmd := command.New(a, command.Spec{
		Use: "move [instance] NAME [--to NODE | --cancel]", Short: "Move a static instance with its data to another node",
		Long: `The instance stops, its directory is copied and verified, and it starts on the other node. Without --to the scheduler
chooses the node.`,
		Example: `orrery move survival-1 --to node-2
orrery move survival-1 --to node-2 --dry-run
orrery move survival-1 --wait --timeout 10m
orrery move survival-1 --cancel`,
		Args: command.Between(1, 2, "the name of an instance"), Complete: command.CompleteTargets(a, "instance"),
		Run: func(ctx context.Context, args []string) error { return runMove(ctx, a, o, args) },
	})
	flags := cmd.Flags()
	flags.StringVar(&o.to, "to", "", "`node` that it moves to")
	command.Duration(flags, &o.grace, "grace", "`time` that players have to leave; 0 stops it at once")
	flags.StringVar(&o.message, "message", "", "why it moves, as a `text`")
	flags.BoolVar(&o.cancel, "cancel", false, "cancel the move; the instance starts again where it was")
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.wait, "wait", false, "wait until the move has ended")
	command.CompleteFlag(cmd, "to", command.CompleteNames(a, "node"))
	command.CompleteFlag(cmd, "grace", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "message", cobra.NoFileCompletions)
	return cmd
}

func runMove(ctx context.Context, a *app.App, o *moveOptions, args []string) error {
	_, name, err := command.One(args, "instance")
	if err != nil {
		return err
	}
	switch {
	case o.cancel && o.to != "":
		return command.UsageError("leave out one of them", "--to and --cancel cannot be combined")
	case o.wait && (o.cancel || o.dryRun):
		return command.UsageError("leave out --wait", "--wait waits for a move that begins now")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if o.cancel {
		return cancelMove(ctx, a, client, o, name)
	}
	return beginMove(ctx, a, client, o, name)
}

func beginMove(ctx context.Context, a *app.App, client *orrery.Client, o *moveOptions, name string) error {
	seconds := int64(o.grace.Seconds())
	body := &orrery.MoveInstanceRequest{DeadlineSeconds: &seconds}
	if o.to != "" {
		body.Node = &o.to
	}
	if o.message != "" {
		body.Message = &o.message
	}
	request := client.MoveInstance
	if o.dryRun {
		request = client.MoveInstanceDryRun
	}
	answer, err := request(ctx, name, body)
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("instance"), "", name)
	}
	about := fmt.Sprintf("instance %s from %s to %s: %s, %s", answer.InstanceID, answer.From, answer.To, kinds.Size(answer.Bytes), output.Counted(answer.Players, "player"))
	done, steps := act{answer.InstanceID, resultChanged, "moving " + about}, []string(nil)
	if o.dryRun {
		done, steps = act{answer.InstanceID, resultPlanned, "would move " + about}, answer.Steps
	}
	if err := report(a, answer, done, steps...); err != nil || !o.wait || answer.Move == nil {
		return err
	}
	return waitAll(ctx, a, client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("instance"), Name: answer.InstanceID, ID: answer.UID, Until: progress.Moved(answer.Move.ID)}},
		Goal:    "moved", Afterwards: "the move continues: orrery move " + answer.InstanceID + " --cancel ends it", Refresh: copyRefresh,
	})
}

// copyRefresh is how often the number of copied bytes is read. No event reports it.
const copyRefresh = 2 * time.Second

func cancelMove(ctx context.Context, a *app.App, client *orrery.Client, o *moveOptions, name string) error {
	request := client.CancelInstanceMove
	if o.dryRun {
		request = client.CancelInstanceMoveDryRun
	}
	answer, err := request(ctx, name)
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("instance"), "", name)
	}
	done := act{answer.InstanceID, resultChanged, fmt.Sprintf("the move of instance %s to %s is cancelled: %s", answer.InstanceID, answer.Move.To, answer.Outlook)}
	if o.dryRun {
		done.Result, done.Message = resultPlanned, fmt.Sprintf("would cancel the move of instance %s to %s: %s", answer.InstanceID, answer.Move.To, answer.Outlook)
	}
	return report(a, answer, done)
}
