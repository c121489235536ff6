package rollouts

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// control is a command that changes a rollout.
type control struct {
	verb, short, long string
	act               func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error)
	dryRun            func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error
	// starts says that it starts another rollout.
	starts bool
	// shows reports whether the rollout shows that Orrery has begun to act.
	shows func(d *orrery.Deployment) bool
}

// controls are the commands below rollout that change one.
var controls = []control{
	{
		verb: "pause", short: "Pause a rollout",
		long: "Nothing more is replaced until it is resumed. Instances that wait for their players to leave take players again.",
		act: func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error) {
			return c.PauseDeployment(ctx, group, revision, nil)
		},
		dryRun: func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error {
			return controlDryRun(a)(c.PauseDeploymentDryRun(ctx, group, revision, nil))
		},
		shows: paused,
	},
	{
		verb: "resume", short: "Resume a paused rollout",
		act: func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error) {
			return c.ResumeDeployment(ctx, group, revision, nil)
		},
		dryRun: func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error {
			return controlDryRun(a)(c.ResumeDeploymentDryRun(ctx, group, revision, nil))
		},
		shows: func(d *orrery.Deployment) bool { return !paused(d) },
	},
	{
		verb: "promote", short: "Replace the remaining instances of a canary, or switch a blue-green rollout, now",
		act: func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error) {
			return c.PromoteDeployment(ctx, group, revision, nil)
		},
		dryRun: func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error {
			return controlDryRun(a)(c.PromoteDeploymentDryRun(ctx, group, revision, nil))
		},
		shows: func(d *orrery.Deployment) bool { return d.Promoted },
	},
	{
		verb: "cancel", short: "End a rollout",
		long: "Originals that are not replaced yet stay, and their replacements stop. New instances stay too: rollout undo reverts that.",
		act: func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error) {
			return c.CancelDeployment(ctx, group, revision, nil)
		},
		dryRun: func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error {
			return controlDryRun(a)(c.CancelDeploymentDryRun(ctx, group, revision, nil))
		},
		shows: ended,
	},
	{
		verb: "undo", short: "Roll back to the state before a rollout",
		long: `It restores the settings and template versions of the latest completed rollout before, and rolls them out.
Scaling and maintenance keep their values.`,
		starts: true,
		act: func(ctx context.Context, c *orrery.Client, group, revision string) (*orrery.DeploymentControlResponse, error) {
			return c.RollbackDeployment(ctx, group, revision, nil)
		},
		dryRun: func(ctx context.Context, a *app.App, c *orrery.Client, group, revision string) error {
			d, err := c.RollbackDeploymentDryRun(ctx, group, revision, nil)
			if err != nil {
				return err
			}
			return showDeployDryRun(a, d)
		},
	},
}

// controlDryRun returns a function that prints the dry run of a change of a rollout.
func controlDryRun(a *app.App) func(*orrery.DeploymentControlDryRun, error) error {
	return func(d *orrery.DeploymentControlDryRun, err error) error {
		if err != nil {
			return err
		}
		return a.ShowDiff(d, "rollout "+d.Deployment, d.Diff)
	}
}

func (c control) command(a *app.App) *cobra.Command {
	var o rolloutFlags
	spec := command.Spec{
		Use: c.verb + " [group] NAME", Short: c.short, Long: c.long,
		Example: "orrery rollout " + c.verb + " lobby\norrery rollout " + c.verb + " lobby --dry-run",
		Args:    command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error { return c.run(ctx, a, o, args) },
	}
	if c.verb == "undo" {
		spec.Aliases = []string{"rollback"}
	}
	cmd := command.New(a, spec)
	flags := cmd.Flags()
	revisionFlag(cmd, &o.revision)
	command.DryRunFlag(a, cmd, &o.dryRun)
	if c.starts {
		flags.BoolVar(&o.wait, "wait", false, "wait until it has ended; fail if it fails")
	}
	return cmd
}

func revisionFlag(cmd *cobra.Command, target *int64) {
	command.Number(cmd.Flags(), target, "revision", 1, "`number` of the rollout; the default is the newest")
	command.CompleteFlag(cmd, "revision", cobra.NoFileCompletions)
}

func (c control) run(ctx context.Context, a *app.App, o rolloutFlags, args []string) error {
	_, name, err := command.One(args, "group")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	revision, err := newest(ctx, client, name, o.revision)
	if err != nil {
		return err
	}
	if o.dryRun {
		return c.dryRun(ctx, a, client, name, revisionText(revision))
	}
	answer, err := c.act(ctx, client, name, revisionText(revision))
	if err != nil {
		return err
	}
	d := &answer.Deployment
	if c.starts {
		return started(ctx, a, client, o.wait, d)
	}
	settle(ctx, a, client, d, c.shows)
	return a.Say(answer, revisionText(d.Revision), "rollout %d of group %s %s: %d of %d instances replaced, state %s",
		d.Revision, name, answer.Status, d.UpdatedInstances, d.TotalInstances, d.State)
}

func paused(d *orrery.Deployment) bool { return d.State == "PAUSED" }

func ended(d *orrery.Deployment) bool { return d.State != "IN_PROGRESS" && d.State != "PAUSED" }

// settleTimeout bounds how long a command waits until the state of a rollout shows what was requested. Usually
// it takes milliseconds; without an enforcer it takes for ever.
const settleTimeout = 5 * time.Second

// settle reads the rollout into d until shows reports true of it or it has ended. It gives up without an
// error, because the request was accepted.
func settle(ctx context.Context, a *app.App, client *orrery.Client, d *orrery.Deployment, shows func(*orrery.Deployment) bool) {
	if shows(d) || ended(d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	quiet := *a
	quiet.Err = io.Discard
	_, err := progress.One(ctx, &quiet, client, progress.Options{Targets: []progress.Target{{
		Kind: kinds.Get("deployment"), Group: d.GroupName, Name: revisionText(d.Revision),
		Until: func(_ context.Context, row output.Row) progress.Step {
			err := json.Unmarshal(row, d)
			return progress.Step{Done: shows(d) || ended(d), Err: err}
		},
	}}})
	if err != nil {
		a.Notef("the rollout does not show the change yet: orrery rollout status %s", d.GroupName)
	}
}
