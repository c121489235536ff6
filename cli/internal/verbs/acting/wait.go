package acting

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
	"github.com/orreryhq/orrery/cli/internal/progress"
	"github.com/orreryhq/orrery/cli/internal/verbs/rollouts"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

type waitOptions struct{ goal, group string }

// goal is a condition with a name. done says of an object that it is true.
type goal struct {
	name, done string
	// kinds are the kinds that have it; nil means all.
	kinds []string
	until func(kind *kinds.Kind) progress.Condition
}

func goals() []goal {
	return []goal{
		{"running", "is running", []string{"instance"}, func(*kinds.Kind) progress.Condition { return progress.Running(false) }},
		{"stopped", "is stopped", []string{"instance"}, func(*kinds.Kind) progress.Condition { return progress.Stopped(0) }},
		{"ready", "is ready", []string{"instance", "node", "group"}, ready},
		{"drained", "is drained", []string{"node"}, func(*kinds.Kind) progress.Condition { return progress.Drained() }},
		{"rollout", "is complete", []string{"group", "deployment"}, func(*kinds.Kind) progress.Condition { return progress.RolloutEnded() }},
		{"deleted", "is deleted", nil, func(*kinds.Kind) progress.Condition { return progress.Deleted() }},
	}
}

func ready(kind *kinds.Kind) progress.Condition {
	switch kind.Name {
	case "node":
		return progress.Online()
	case "group":
		return progress.GroupReady()
	}
	return progress.Running(false)
}

func waitCommand(a *app.App) *cobra.Command {
	o := &waitOptions{}
	cmd := command.New(a, command.Spec{
		Use: "wait KIND NAME... --for CONDITION", Short: "Wait until something is true of objects",
		Long: `The conditions are:

  running   an instance runs
  stopped   an instance has ended or sleeps
  ready     an instance runs, a node is online, a group has as many running instances as its minimum
  drained   nothing runs on a node that is being drained
  rollout   the latest deployment of a group is complete
  deleted   the object does not exist
  FIELD=VALUE, FIELD>VALUE and the like
            a field of -o json has that value, as in get --filter

The command follows events. It ends with an error as soon as the condition can no longer become true, and with exit code 7
after --timeout. A field that changes without an event, such as the use of memory, is only looked at when an event comes.`,
		Example: `orrery wait instance lobby-1 --for running --timeout 2m
orrery wait group lobby --for rollout --timeout 10m
orrery wait group lobby --for ready
orrery wait node node-1 --for drained
orrery wait instance lobby-1 --for 'playerCount=0'
orrery wait deployment 3 --group lobby --for state=COMPLETED`,
		Following: true,
		Args:      command.Between(1, -1, "a kind and a name, for example instance lobby-1"), Complete: command.CompleteKindThenNames(a, nil),
		Run: func(ctx context.Context, args []string) error { return runWait(ctx, a, o, args) },
	})
	cmd.Flags().StringVar(&o.goal, "for", "", "`condition` to wait for")
	cmd.Flags().StringVar(&o.group, "group", "", "the `group`, for kinds that belong to one")
	command.CompleteFlag(cmd, "for", completeGoals)
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	return cmd
}

// completeGoals completes the conditions of the kind in the arguments.
func completeGoals(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var kind *kinds.Kind
	if len(args) > 0 {
		first, _, _ := strings.Cut(args[0], "/")
		kind = kinds.Find(first)
	}
	return goalNames(kind), cobra.ShellCompDirectiveNoFileComp
}

// goalNames returns the names of the conditions of a kind; nil means all kinds.
func goalNames(kind *kinds.Kind) []string {
	var names []string
	for _, g := range goals() {
		if kind == nil || g.has(kind) {
			names = append(names, g.name)
		}
	}
	return names
}

func (g goal) has(kind *kinds.Kind) bool {
	if g.kinds == nil {
		return !kind.Singleton
	}
	for _, name := range g.kinds {
		if kind.Name == name {
			return true
		}
	}
	return false
}

func runWait(ctx context.Context, a *app.App, o *waitOptions, args []string) error {
	kind, names, err := command.KindAndNames(args)
	if err != nil {
		return err
	}
	g, err := goalOf(kind, o.goal)
	if err != nil {
		return err
	}
	switch {
	case kind.Singleton && len(names) > 0:
		return command.UsageError("", "there is one %s only, without a name", kind.Name)
	case kind.Singleton:
		names = []string{""}
	case len(names) == 0:
		return command.UsageError("orrery get "+kind.Plural+" lists the names", "wait needs the name of %s %s", kinds.Article(kind.Name), kind.Name)
	case kind.InGroup():
		if o.group, err = command.GroupOf(a, kind, o.group); err != nil {
			return err
		}
	case o.group != "":
		return command.UsageError("leave --group out", "%s do not belong to a group that --group could name", kind.Plural)
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	options := progress.Options{Goal: g.name}
	for _, name := range names {
		t := progress.Target{Kind: kind, Group: o.group, Name: name, Until: g.until(kind)}
		switch {
		case g.name == "rollout" && kind.Name == "group":
			revision, err := rollouts.Newest(ctx, client, name)
			if err != nil {
				return err
			}
			t.Kind, t.Group, t.Name = kinds.Get("deployment"), name, strconv.FormatInt(revision, 10)
		case kind.Name == "instance" && (g.name == "running" || g.name == "ready"):
			t.Until, t.Related = unlessPaused(client, t.Until), isCrashLoop
		}
		options.Targets = append(options.Targets, t)
	}
	return waitAndPrint(ctx, a, client, options, g.done)
}

// unlessPaused adds to the condition that an instance runs that it fails for a crashed one whose group is paused after
// crashes: it is not replaced until the pause is over.
func unlessPaused(client *orrery.Client, until progress.Condition) progress.Condition {
	return func(ctx context.Context, row output.Row) progress.Step {
		step := until(ctx, row)
		if step.Done || step.Err != nil || gjson.GetBytes(row, "state").String() != "CRASHED" {
			return step
		}
		group, err := client.GetGroup(ctx, gjson.GetBytes(row, "group").String())
		if err == nil && group.Paused {
			id := gjson.GetBytes(row, "id").String()
			err := fmt.Errorf("instance %s crashed: %s; group %s: %s", id, gjson.GetBytes(row, "message"), group.Name, group.Message)
			step.Err = exit.With(exit.Failed, err, "orrery explain instance "+id+" says why")
		}
		return step // without the group the condition can still become true
	}
}

func isCrashLoop(event orrery.Event) bool { return event.Type == "GROUP_CRASH_LOOP" }

// goalOf returns the condition that --for names.
func goalOf(kind *kinds.Kind, text string) (goal, error) {
	hint := "the conditions of " + kind.Plural + " are " + strings.Join(append(goalNames(kind), "FIELD=VALUE"), ", ")
	if text == "" {
		return goal{}, command.UsageError(hint, "wait needs --for")
	}
	for _, g := range goals() {
		if g.name == text && g.has(kind) {
			return g, nil
		}
	}
	if !strings.ContainsAny(text, "=<>~") {
		return goal{}, command.UsageError(hint, "%s have no condition %q", kind.Plural, text)
	}
	filter, err := output.ParseFilter("--for", text, kind.Fields())
	if err != nil {
		return goal{}, exit.With(exit.Usage, err, hint)
	}
	return goal{name: text, done: "has " + text, until: func(*kinds.Kind) progress.Condition { return progress.Matches(filter) }}, nil
}

// waitAndPrint waits and prints a sentence for each object, or the objects for programs.
func waitAndPrint(ctx context.Context, a *app.App, client *orrery.Client, o progress.Options, done string) error {
	people, err := forPeople(a)
	if err != nil {
		return err
	}
	outcomes, err := progress.All(ctx, a, client, o)
	if err != nil {
		return err
	}
	if len(outcomes) == 1 && outcomes[0].Err != nil {
		return outcomes[0].Err
	}
	var failed command.Failures
	var rows []output.Row
	for _, outcome := range outcomes {
		failed.Add(a, outcome.Target.Name, outcome.Err)
		if outcome.Err != nil {
			continue
		}
		if outcome.Row != nil {
			rows = append(rows, outcome.Row)
		}
		if people {
			if _, err := fmt.Fprintf(a.Out, "%s %s\n", outcome.Target, done); err != nil {
				return err
			}
		}
	}
	if !people {
		if err := printRows(a, outcomes[0].Target.Kind, rows, len(outcomes) == 1); err != nil {
			return err
		}
	}
	return failed.Err()
}

func printRows(a *app.App, kind *kinds.Kind, rows []output.Row, single bool) error {
	printer, err := a.Printer()
	switch {
	case err != nil:
		return err
	case single && len(rows) == 0:
		return nil // it was deleted
	case single:
		return printer.Object(kind.Columns, kind.NameField, rows[0])
	}
	return printer.List(kind.Columns, kind.NameField, rows)
}
