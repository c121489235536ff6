package acting

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// notEnded is the action whose dry run selects the instances that have not ended.
const notEnded = "kill"

// goalRunning is the goal of verbs that begin a new generation.
const goalRunning = "running"

// The reasons that the verbs look at: an instance sleeps, or its data was on a node that was deleted.
const (
	reasonSleeping = "SLEEPING"
	reasonDataLost = "DataLost"
)

// instanceVerb is a verb that acts on instances.
type instanceVerb struct {
	name, short, long, example string
	aliases                    []string
	// bulk is the action of the route for several instances; empty if that route does not have it.
	bulk string
	// selects reports whether an instance that has not ended and was selected by flags is acted on, for verbs
	// without bulk; nil acts on all.
	selects func(orrery.BulkInstanceResult) bool
	// doing is what the instance does afterwards: "stops".
	doing string
	// already says of an instance that was not changed why not; empty means that its state says so.
	already string
	// goal is what --wait waits for; empty if the verb has no --wait.
	goal string
	// group acts on a group; nil if the verb does not.
	group func(ctx context.Context, run *instanceRun, name string) error
	// one acts on one instance.
	one func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error)
}

// instanceOptions are the flags of a verb that acts on instances.
type instanceOptions struct {
	selection   command.Selection
	wait        bool
	count       int
	discardData bool
	variables   []string
}

func instanceCommand(a *app.App, v instanceVerb) *cobra.Command {
	allowed := []string{"instance"}
	if v.group != nil {
		allowed = append(allowed, "group")
	}
	o := &instanceOptions{}
	cmd := command.New(a, command.Spec{
		Use: v.name + " [" + strings.Join(allowed, "|") + "] NAME...", Aliases: v.aliases, Short: v.short, Long: v.long, Example: v.example,
		Args: cobra.ArbitraryArgs, Complete: command.CompleteTargets(a, allowed...),
		Run: func(ctx context.Context, args []string) error { return runInstances(ctx, a, v, o, args, allowed) },
	})
	o.selection.InstanceFlags(a, cmd)
	if v.goal != "" {
		cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until they are "+v.goal)
	}
	if v.name == "start" {
		o.count = 1
		command.Number(cmd.Flags(), &o.count, "count", 1, "start this `number` of instances; only with group")
		cmd.Flags().BoolVar(&o.discardData, "discard-data", false, "start one without its data, if its node was deleted")
		cmd.Flags().StringArrayVar(&o.variables, "var", nil, "`KEY=VALUE` of a variable with the scope INSTANCE, for this start; only with group; repeat it for more")
		command.CompleteFlag(cmd, "count", cobra.NoFileCompletions)
		command.CompleteFlag(cmd, "var", cobra.NoFileCompletions)
	}
	return cmd
}

// instanceRun is one run of a verb.
type instanceRun struct {
	app     *app.App
	client  *orrery.Client
	verb    instanceVerb
	options *instanceOptions
}

func runInstances(ctx context.Context, a *app.App, v instanceVerb, o *instanceOptions, args, allowed []string) error {
	kind, names, err := command.Targets(args, allowed...)
	if err != nil {
		return err
	}
	s := &o.selection
	if err := s.Take(kind, names); err != nil {
		return err
	}
	switch {
	case kind.Name == "group" && len(names) != 1:
		return command.UsageError("", "%s group takes the name of one group", v.name)
	case kind.Name != "group" && o.count > 1:
		return command.UsageError("orrery start group NAME --count "+fmt.Sprint(o.count), "--count needs the name of a group")
	case kind.Name != "group" && len(o.variables) > 0:
		return command.UsageError("orrery start group NAME --var KEY=VALUE", "--var needs the name of a group")
	case o.discardData && len(names) != 1:
		return command.UsageError("", "--discard-data needs the name of one instance")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	run := &instanceRun{app: a, client: client, verb: v, options: o}
	switch {
	case kind.Name == "group":
		return v.group(ctx, run, names[0])
	case len(names) == 1 && !s.DryRun:
		return run.single(ctx, names[0])
	case v.bulk == "":
		return run.each(ctx)
	}
	return run.bulk(ctx)
}

// single acts on one instance.
func (r *instanceRun) single(ctx context.Context, name string) error {
	answer, err := r.verb.one(ctx, r, name)
	if err != nil {
		return app.Suggest(ctx, r.client, err, kinds.Get("instance"), "", name)
	}
	if err := report(r.app, answer, act{answer.Instance.ID, changedIf(answer.Changed), sentence(r.verb, answer)}); err != nil {
		return err
	}
	return r.follow(ctx, []progress.Target{r.target(answer.Instance, wanted(answer))})
}

// sentence says what an act did to an instance.
func sentence(v instanceVerb, answer *orrery.InstanceActionResponse) string {
	id := answer.Instance.ID
	text := fmt.Sprintf("instance %s %s", id, v.doing)
	switch {
	case !answer.Changed && answer.Instance.Reason == reasonDataLost:
		text = fmt.Sprintf("instance %s waits for its data (%s); orrery start %s --discard-data starts it without", id, answer.Instance.Message, id)
	case !answer.Changed && v.already != "":
		text = fmt.Sprintf("instance %s was not changed: it %s", id, v.already)
	case !answer.Changed:
		text = fmt.Sprintf("instance %s was not changed: it is %s (%s)", id, strings.ToLower(answer.Instance.State), answer.Instance.Message)
	case v.name == "start":
		text = fmt.Sprintf("instance %s starts again, as generation %d", id, wanted(answer))
	}
	if answer.Message != "" {
		text += "; " + answer.Message
	}
	return text
}

// bulk acts on several instances with one request.
func (r *instanceRun) bulk(ctx context.Context) error {
	s := &r.options.selection
	request, proceed, err := r.plan(ctx, s.Instances(r.verb.bulk))
	if err != nil || !proceed {
		return err
	}
	before, err := r.before(ctx)
	if err != nil {
		return err
	}
	answer, err := r.client.UpdateInstancesInBulk(ctx, request, &orrery.UpdateInstancesInBulkParams{Parallel: s.Parallel})
	if err != nil {
		return s.Missing(ctx, r.client, unfinished(ctx, err))
	}
	failed, err := reportBulk(r.app, answer, r.verb.doing)
	if err != nil {
		return err
	}
	var changed []progress.Target
	for _, result := range answer.Data {
		if instance, ok := before[result.UID]; ok && result.OK && result.Changed {
			changed = append(changed, r.target(instance, instance.Generation+1))
		}
	}
	if err := r.follow(ctx, changed); err != nil {
		return err
	}
	return failed.Err()
}

// unfinished adds to the end of ctx that the server may act on a request that was sent.
func unfinished(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return exit.Hint(ctx.Err(), "the request was sent, and the server may have acted on some of them: orrery get shows their states")
}

// plan asks the server which instances the request would change, and the user whether to do it. It returns the request
// for exactly these instances. With --dry-run it prints them.
func (r *instanceRun) plan(ctx context.Context, request *orrery.BulkInstancesRequest) (*orrery.BulkInstancesRequest, bool, error) {
	s := &r.options.selection
	if !s.ByFlags() && !s.DryRun {
		return request, true, nil
	}
	planned, err := r.client.UpdateInstancesInBulkDryRun(ctx, request, &orrery.UpdateInstancesInBulkParams{Parallel: s.Parallel})
	if err != nil {
		return nil, false, s.Missing(ctx, r.client, err)
	}
	if len(planned.Data) == 0 {
		r.app.Notef("no instance to %s", r.verb.name)
		return nil, false, nil
	}
	if s.DryRun {
		return nil, false, r.show(ctx, planned.Data)
	}
	var names []string
	exact := &orrery.BulkInstancesRequest{Action: request.Action, Command: request.Command}
	for _, result := range planned.Data {
		names, exact.IDs = append(names, result.ID), append(exact.IDs, result.UID)
	}
	return exact, true, s.Confirm(r.app, r.verb.name, kinds.Get("instance"), names)
}

// show prints what a dry run returned.
func (r *instanceRun) show(ctx context.Context, results []orrery.BulkInstanceResult) error {
	if len(r.options.selection.Names) == 1 && !results[0].OK {
		err := command.BulkError(false, results[0].Error, results[0].Message)
		return app.Suggest(ctx, r.client, err, kinds.Get("instance"), "", results[0].ID)
	}
	if err := r.showPlanned(plannedInstances, results); err != nil {
		return err
	}
	var failed command.Failures
	for _, result := range results {
		failed.Add(r.app, result.ID, command.BulkError(result.OK, result.Error, result.Message))
	}
	return failed.Err()
}

// showPlanned prints what a dry run returned: one object for programs if one was named.
func (r *instanceRun) showPlanned(columns []output.Column, results []orrery.BulkInstanceResult) error {
	return tableOrObject(r.app, len(r.options.selection.Names) == 1, columns, results)
}

// before returns the instances by uid as they are before the act, if --wait needs them.
func (r *instanceRun) before(ctx context.Context) (map[string]orrery.Instance, error) {
	if !r.options.wait {
		return nil, nil
	}
	found := map[string]orrery.Instance{}
	for instance, err := range r.client.AllInstances(ctx, &orrery.ListInstancesParams{All: true}) {
		if err != nil {
			return nil, err
		}
		found[instance.UID] = instance
	}
	return found, nil
}

// each acts on several instances with one request for each, because the route for several does not have the verb.
func (r *instanceRun) each(ctx context.Context) error {
	s := &r.options.selection
	results, err := r.selected(ctx)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		r.app.Notef("no instance to %s", r.verb.name)
		return nil
	}
	if s.DryRun {
		return r.showPlanned(selectedInstances, results)
	}
	var names []string
	for _, result := range results {
		names = append(names, result.ID)
	}
	if err := s.Confirm(r.app, r.verb.name, kinds.Get("instance"), names); err != nil {
		return err
	}
	return r.onEach(ctx, results)
}

// selected returns the instances that each acts on. The server is asked only if it knows more than their names.
func (r *instanceRun) selected(ctx context.Context) ([]orrery.BulkInstanceResult, error) {
	s := &r.options.selection
	if !s.ByFlags() && !s.DryRun {
		var named []orrery.BulkInstanceResult
		for _, name := range s.Names {
			named = append(named, orrery.BulkInstanceResult{ID: name})
		}
		return named, nil
	}
	planned, err := r.client.UpdateInstancesInBulkDryRun(ctx, s.Instances(notEnded), &orrery.UpdateInstancesInBulkParams{Parallel: s.Parallel})
	if err != nil {
		return nil, s.Missing(ctx, r.client, err)
	}
	if !s.ByFlags() || r.verb.selects == nil {
		return planned.Data, nil
	}
	return slices.DeleteFunc(planned.Data, func(result orrery.BulkInstanceResult) bool { return !r.verb.selects(result) }), nil
}

// onEach acts on one instance after the other.
func (r *instanceRun) onEach(ctx context.Context, results []orrery.BulkInstanceResult) error {
	all, err := newTally(r.app)
	if err != nil {
		return err
	}
	var answers []orrery.Instance
	var targets []progress.Target
	for _, result := range results {
		name := result.UID
		if name == "" {
			name = result.ID
		}
		answer, err := r.verb.one(ctx, r, name)
		done := act{Name: result.ID}
		if err == nil {
			answers = append(answers, answer.Instance)
			targets = append(targets, r.target(answer.Instance, wanted(answer)))
			done = act{answer.Instance.ID, changedIf(answer.Changed), sentence(r.verb, answer)}
		}
		if err := all.add(done, err); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return exit.Hint(ctx.Err(), fmt.Sprintf("%d of %d instances were done, the others were not begun", len(answers), len(results)))
		}
	}
	if err := reportAll(r.app, all.acts, answers); err != nil {
		return err
	}
	if err := r.follow(ctx, targets); err != nil {
		return err
	}
	return all.failed.Err()
}

// target is what --wait follows: an instance until it runs in the wanted generation, or has ended.
func (r *instanceRun) target(i orrery.Instance, wanted int64) progress.Target {
	t := progress.Target{Kind: kinds.Get("instance"), Name: i.ID, ID: i.UID, Until: progress.Stopped(i.Generation)}
	if r.verb.goal == goalRunning {
		t.Until = progress.RunningSince(wanted)
	}
	return t
}

// follow waits for instances if --wait was given.
func (r *instanceRun) follow(ctx context.Context, targets []progress.Target) error {
	if !r.options.wait || len(targets) == 0 {
		return nil
	}
	return waitAll(ctx, r.app, r.client, progress.Options{
		Targets: targets, Goal: r.verb.goal, Afterwards: "the server continues",
	})
}

// waitAll follows objects and says how it ended.
func waitAll(ctx context.Context, a *app.App, client *orrery.Client, o progress.Options) error {
	outcomes, err := progress.All(ctx, a, client, o)
	if err != nil {
		return err
	}
	if len(outcomes) == 1 {
		if outcomes[0].Err == nil {
			a.Notef("%s is %s", outcomes[0].Target, o.Goal)
		}
		return outcomes[0].Err
	}
	var failed command.Failures
	for _, outcome := range outcomes {
		failed.Add(a, outcome.Target.Name, outcome.Err)
	}
	if err := failed.Err(); err != nil {
		return err
	}
	a.Notef("all %d are %s", len(outcomes), o.Goal)
	return nil
}

// wanted returns the generation that an instance runs in after a start, a restart or a waking. It is the next one if
// the current one has to end first.
func wanted(answer *orrery.InstanceActionResponse) int64 {
	i := answer.Instance
	if answer.Changed && (i.Desired == "stopped" || i.Reason == reasonSleeping) {
		return i.Generation + 1
	}
	return i.Generation
}
