package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func rolloutStatus(a *app.App) *cobra.Command {
	var revision int64
	var watch, wait bool
	cmd := command.New(a, command.Spec{
		Use: "status [group] NAME", Short: "Show how far a rollout is",
		Long: "With --watch it follows the rollout until it ends, and fails if the rollout failed, was cancelled or was rolled back.",
		Example: `orrery rollout status lobby
orrery rollout status lobby --watch`,
		Args: command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error {
			return runRolloutStatus(ctx, a, revision, watch || wait, args)
		},
	})
	revisionFlag(cmd, &revision)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow the rollout until it ends")
	cmd.Flags().BoolVar(&wait, "wait", false, "the same as --watch")
	return cmd
}

func runRolloutStatus(ctx context.Context, a *app.App, revision int64, watch bool, args []string) error {
	_, name, err := command.One(args, "group")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if revision, err = newest(ctx, client, name, revision); err != nil {
		return err
	}
	if watch {
		return followRollout(ctx, a, client, name, revision)
	}
	s, err := readRollout(ctx, client, name, revision)
	if err != nil {
		return err
	}
	return s.show(a)
}

// rolloutState is a rollout with the players who are still on instances that it replaces.
type rolloutState struct {
	*orrery.Deployment
	Players int64 `json:"playersToMove"`
}

func readRollout(ctx context.Context, client *orrery.Client, group string, revision int64) (rolloutState, error) {
	d, err := client.GetDeployment(ctx, group, revisionText(revision))
	if err != nil {
		return rolloutState{}, err
	}
	s := rolloutState{Deployment: d}
	s.countPlayers(ctx, client)
	return s, nil
}

// countPlayers counts the players to move. A user who may not list instances sees the rollout without them.
func (s *rolloutState) countPlayers(ctx context.Context, client *orrery.Client) {
	if s.ended() {
		return
	}
	for instance, err := range client.AllInstances(ctx, &orrery.ListInstancesParams{Group: s.GroupName}) {
		if err != nil {
			return
		}
		if instance.DeploymentRevision < s.Revision && instance.PlayerCount != nil {
			s.Players += *instance.PlayerCount
		}
	}
}

func (s rolloutState) ended() bool { return ended(s.Deployment) }

func (s rolloutState) show(a *app.App) error {
	return a.Show(s, revisionText(s.Revision), func(p output.Printer) error {
		cells := [][]string{
			{"rollout", fmt.Sprintf("%d of group %s", s.Revision, s.GroupName)},
			{"state", p.Style.State(s.State)},
			{"strategy", s.Strategy},
			{"replaced", fmt.Sprintf("%s %d of %d", progress.Bar(s.UpdatedInstances, s.TotalInstances), s.UpdatedInstances, s.TotalInstances)},
			{"ready", fmt.Sprint(s.ReadyInstances)},
			{"failed", fmt.Sprint(s.FailedInstances)},
		}
		if !s.ended() {
			cells = append(cells, []string{"players to move", fmt.Sprint(s.Players)})
		}
		if s.Message != "" {
			cells = append(cells, []string{"message", output.Clean(s.Message)})
		}
		return p.Lines(cells)
	})
}

func (s rolloutState) progress() string {
	line := fmt.Sprintf("%s %d of %d replaced, %d ready", progress.Bar(s.UpdatedInstances, s.TotalInstances), s.UpdatedInstances, s.TotalInstances, s.ReadyInstances)
	if s.FailedInstances > 0 {
		line += fmt.Sprintf(", %d failed", s.FailedInstances)
	}
	if s.Players > 0 {
		line += fmt.Sprintf(", %d players to move", s.Players)
	}
	if s.State == "PAUSED" {
		line += ", PAUSED"
	}
	if s.Message != "" {
		line += ": " + s.Message
	}
	return line
}

// figuresRefresh is how often the players are counted again: they have no events of the rollout.
const figuresRefresh = 5 * time.Second

// followRollout shows a rollout until it ends. It fails unless the rollout completes.
func followRollout(ctx context.Context, a *app.App, client *orrery.Client, group string, revision int64) error {
	var last rolloutState
	_, err := progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{
			Kind: kinds.Get("deployment"), Group: group, Name: revisionText(revision),
			Until: func(ctx context.Context, row output.Row) progress.Step {
				s := rolloutState{Deployment: &orrery.Deployment{}}
				if err := json.Unmarshal(row, s.Deployment); err != nil {
					return progress.Step{Err: exit.With(exit.NotFound, fmt.Errorf("rollout %d of group %s no longer exists", revision, group), "")}
				}
				s.countPlayers(ctx, client)
				last = s
				return progress.Step{Done: s.ended(), Text: s.progress()}
			},
		}},
		Goal: "complete", Refresh: figuresRefresh,
		Afterwards: fmt.Sprintf("the rollout continues by itself: orrery rollout status %s --watch follows it, orrery rollout cancel %s ends it", group, group),
	})
	if err != nil {
		return err
	}
	if err := last.show(a); err != nil {
		return err
	}
	return last.failure()
}

// failure returns why the rollout did not complete; nil if it did.
func (s rolloutState) failure() error {
	message := s.Message
	if message == "" {
		message = s.Reason
	}
	hint := "start another: orrery rollout start " + s.GroupName
	switch s.State {
	case "COMPLETED":
		return nil
	case "FAILED":
		hint = "restore the state before: orrery rollout undo " + s.GroupName
	}
	return exit.With(exit.Failed, fmt.Errorf("rollout %d of group %s ended with %s: %s", s.Revision, s.GroupName, s.State, message), hint)
}
