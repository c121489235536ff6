package acting

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
)

// startGroup starts additional instances of a group.
func startGroup(ctx context.Context, r *instanceRun, name string) error {
	count := int64(r.options.count)
	body := &orrery.StartRequest{Count: &count}
	for _, argument := range r.options.variables {
		key, value, ok := strings.Cut(argument, "=")
		if !ok || key == "" {
			return command.UsageError("for example --var MAP=desert", "--var %q is not KEY=VALUE", argument)
		}
		if body.Variables == nil {
			body.Variables = map[string]string{}
		}
		body.Variables[key] = value
	}
	if r.options.selection.DryRun {
		planned, err := r.client.StartGroupDryRun(ctx, name, body, nil)
		if err != nil {
			return app.Suggest(ctx, r.client, err, kinds.Get("group"), "", name)
		}
		return r.app.ShowGroupDryRun(planned)
	}
	answer, err := r.client.StartGroup(ctx, name, body, nil)
	if err != nil {
		return app.Suggest(ctx, r.client, err, kinds.Get("group"), "", name)
	}
	if err := reportStart(r.app, name, answer); err != nil {
		return err
	}
	var targets []progress.Target
	for _, i := range answer.Instances {
		targets = append(targets, r.target(i, i.Generation))
	}
	return r.follow(ctx, targets)
}

func reportStart(a *app.App, group string, answer *orrery.StartResponse) error {
	var names []string
	var acts []act
	for _, i := range answer.Instances {
		names, acts = append(names, i.ID), append(acts, act{i.ID, resultChanged, "instance " + i.ID + " starts"})
	}
	if a.Flags.Output == "csv" || a.Flags.Output == "name" {
		return reportAll(a, acts, answer.Instances)
	}
	err := a.Say(answer, "", "%s of group %s started: %s", output.Counted(int64(len(names)), "instance"), group, strings.Join(names, ", "))
	if people, formatErr := forPeople(a); err != nil || !people {
		return errors.Join(err, formatErr)
	}
	if answer.Message != "" {
		a.Notef("%s", answer.Message)
	}
	for _, w := range answer.Waiting {
		a.Notef("%s waits for a node: %s", w.Instance, w.Message)
	}
	return nil
}

// restartGroup replaces the instances of a group one after another.
func restartGroup(ctx context.Context, r *instanceRun, name string) error {
	if r.options.selection.DryRun {
		planned, err := r.client.RestartGroupDryRun(ctx, name)
		if err != nil {
			return app.Suggest(ctx, r.client, err, kinds.Get("group"), "", name)
		}
		var lines []string
		text := fmt.Sprintf("a rolling restart of group %s would replace %s", name, output.Counted(int64(len(planned.Replace)), "instance"))
		for _, i := range planned.Replace {
			lines = append(lines, fmt.Sprintf("%s with %s: %s", i.ID, output.Counted(i.Players, "player"), i.Reason))
		}
		return report(r.app, planned, act{name, resultPlanned, text}, append(lines, planned.Notes...)...)
	}
	deployment, err := r.client.RestartGroup(ctx, name)
	if err != nil {
		return app.Suggest(ctx, r.client, err, kinds.Get("group"), "", name)
	}
	text := fmt.Sprintf("group %s restarts its instances one after another, as deployment %d", name, deployment.Revision)
	if err := report(r.app, deployment, act{fmt.Sprint(deployment.Revision), resultChanged, text}); err != nil || !r.options.wait {
		return err
	}
	return waitAll(ctx, r.app, r.client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("deployment"), Group: name, Name: fmt.Sprint(deployment.Revision), Until: progress.RolloutEnded()}},
		Goal:    "complete", Afterwards: "the rollout continues: orrery wait group " + name + " --for rollout waits again",
	})
}
