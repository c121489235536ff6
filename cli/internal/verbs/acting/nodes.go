package acting

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// nodeVerb is a verb that acts on nodes. Its name is the action of the route for several nodes.
type nodeVerb struct {
	name, short, long, example string
	// one acts on one node.
	one func(ctx context.Context, r *nodeRun, name string) (nodeAnswer, error)
	// doing is what the node does afterwards: "is cordoned", and already why it was not changed: "is cordoned already".
	doing, already string
}

// nodeAnswer is what the server answered about one node. extra is the end of the sentence about it.
type nodeAnswer struct {
	answer  any
	changed bool
	extra   string
}

func nodeVerbs() []nodeVerb {
	return []nodeVerb{
		{
			name: "cordon", doing: "is cordoned: nothing new starts on it", already: "is cordoned already",
			short: "Stop placing instances on nodes",
			example: `orrery cordon node-1
orrery cordon -l zone=a --yes`,
			one: func(ctx context.Context, r *nodeRun, name string) (nodeAnswer, error) {
				return statusAnswer(r.client.CordonNode(ctx, name))
			},
		},
		{
			name: "uncordon", doing: "takes new instances again", already: "is not cordoned",
			short: "Allow placing instances on nodes again",
			example: `orrery uncordon node-1
orrery uncordon --all --yes`,
			one: func(ctx context.Context, r *nodeRun, name string) (nodeAnswer, error) {
				return statusAnswer(r.client.UncordonNode(ctx, name))
			},
		},
		{
			name: "drain", doing: "is being drained", already: "is being drained like that already",
			short: "Empty nodes",
			long: `The node is cordoned. Instances that their group needs start on other nodes first, players are moved, and the rest
stops. Static instances stay down until the drain is ended, because their data is on the node. With --move-static,
they move to other nodes with their data. The dry run then says where to.

The drain continues on the server when the command ends: orrery wait node NAME --for drained waits for it.`,
			example: `orrery drain node-1 --dry-run
orrery drain node-1 --grace 5m --wait --timeout 10m
orrery drain -l zone=a --yes
orrery drain node-1 --move-static --dry-run
orrery drain node-1 --shutdown --kick-message 'The server moves'`,
			one: drainOne,
		},
		{
			name: "undrain", doing: "is back in service", already: "is neither drained nor cordoned",
			short: "End the drain of nodes and put them back into service",
			example: `orrery undrain node-1
orrery undrain --all --dry-run`,
			one: func(ctx context.Context, r *nodeRun, name string) (nodeAnswer, error) {
				answer, err := r.client.UndrainNode(ctx, name)
				if err != nil {
					return nodeAnswer{}, err
				}
				return nodeAnswer{answer, answer.Changed, started(answer.Start, answer.Stay)}, nil
			},
		},
	}
}

func statusAnswer(answer *orrery.NodeStatusResponse, err error) (nodeAnswer, error) {
	if err != nil {
		return nodeAnswer{}, err
	}
	return nodeAnswer{answer: answer, changed: answer.Changed}, nil
}

// started says which instances start again and which stay after an undrain.
func started(start, stay []string) string {
	var parts []string
	if len(start) > 0 {
		parts = append(parts, "starts again: "+strings.Join(start, ", "))
	}
	if len(stay) > 0 {
		parts = append(parts, "stays: "+strings.Join(stay, ", "))
	}
	return strings.Join(parts, "; ")
}

func drainOne(ctx context.Context, r *nodeRun, name string) (nodeAnswer, error) {
	o := r.options
	body := &orrery.DrainNodeRequest{Shutdown: &o.shutdown, Timeout: o.graceSeconds(), KickMessage: o.message(), MoveStatic: o.moves()}
	answer, err := r.client.DrainNode(ctx, name, body, nil)
	if err != nil {
		return nodeAnswer{}, err
	}
	text := fmt.Sprintf("%s with %s to go, at the latest at %s", output.Counted(answer.RemainingInstances, "instance"),
		output.Counted(answer.Players, "player"), kinds.Moment(answer.DeadlineAt))
	return nodeAnswer{answer, answer.Changed, text}, nil
}

// nodeOptions are the flags of a verb that acts on nodes. Only drain has those after the selection.
type nodeOptions struct {
	selection   command.Selection
	grace       time.Duration
	kickMessage string
	shutdown    bool
	moveStatic  bool
	wait        bool
}

func (o *nodeOptions) graceSeconds() *int64 {
	if o.grace == 0 {
		return nil
	}
	seconds := int64(o.grace.Seconds())
	return &seconds
}

func (o *nodeOptions) moves() *bool {
	if !o.moveStatic {
		return nil
	}
	return &o.moveStatic
}

func (o *nodeOptions) message() *string {
	if o.kickMessage == "" {
		return nil
	}
	return &o.kickMessage
}

func nodeCommand(a *app.App, v nodeVerb) *cobra.Command {
	o := &nodeOptions{}
	cmd := command.New(a, command.Spec{
		Use: v.name + " [node] NAME...", Short: v.short, Long: v.long, Example: v.example,
		Args: cobra.ArbitraryArgs, Complete: command.CompleteTargets(a, "node"),
		Run: func(ctx context.Context, args []string) error { return runNodes(ctx, a, v, o, args) },
	})
	o.selection.NodeFlags(a, cmd)
	o.selection.ParallelFlag(cmd, "nodes")
	if v.name != "drain" {
		return cmd
	}
	flags := cmd.Flags()
	command.Duration(flags, &o.grace, "grace", "`time` that instances may keep their players; 0 is the default of the server")
	flags.StringVar(&o.kickMessage, "kick-message", "", "`text` for the players that are still there then")
	flags.BoolVar(&o.shutdown, "shutdown", false, "also shut the agent down when the node is empty")
	flags.BoolVar(&o.moveStatic, "move-static", false, "move static instances to other nodes with their data")
	flags.BoolVar(&o.wait, "wait", false, "wait until they are empty")
	command.CompleteFlag(cmd, "grace", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "kick-message", cobra.NoFileCompletions)
	return cmd
}

// nodeRun is one run of a verb.
type nodeRun struct {
	app     *app.App
	client  *orrery.Client
	verb    nodeVerb
	options *nodeOptions
}

func runNodes(ctx context.Context, a *app.App, v nodeVerb, o *nodeOptions, args []string) error {
	kind, names, err := command.Targets(args, "node")
	if err != nil {
		return err
	}
	s := &o.selection
	if err := s.Take(kind, names); err != nil {
		return err
	}
	if o.grace != 0 && o.grace < time.Second {
		return command.UsageError("", "--grace must be at least 1s")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	r := &nodeRun{app: a, client: client, verb: v, options: o}
	if len(names) == 1 && !s.DryRun {
		return r.single(ctx, names[0])
	}
	return r.bulk(ctx)
}

func (r *nodeRun) single(ctx context.Context, name string) error {
	done, err := r.verb.one(ctx, r, name)
	if err != nil {
		return app.Suggest(ctx, r.client, err, kinds.Get("node"), "", name)
	}
	if err := report(r.app, done.answer, act{name, changedIf(done.changed), r.sentence(name, done.changed, done.extra)}); err != nil {
		return err
	}
	return r.follow(ctx, []string{name})
}

func (r *nodeRun) request() *orrery.BulkNodesRequest {
	request := r.options.selection.Nodes(r.verb.name)
	if r.verb.name == "drain" {
		o := r.options
		request.Shutdown, request.Timeout, request.KickMessage, request.MoveStatic = &o.shutdown, o.graceSeconds(), o.message(), o.moves()
	}
	return request
}

// bulk acts on several nodes with one request, after a question if flags selected them.
func (r *nodeRun) bulk(ctx context.Context) error {
	s := &r.options.selection
	request, params := r.request(), &orrery.UpdateNodesInBulkParams{Parallel: s.Parallel}
	if s.ByFlags() || s.DryRun {
		planned, err := r.client.UpdateNodesInBulkDryRun(ctx, request, params)
		if err != nil {
			return err
		}
		if len(planned.Data) == 0 {
			r.app.Notef("no node to %s", r.verb.name)
			return nil
		}
		if s.DryRun {
			return r.show(ctx, planned.Data)
		}
		request.IDs, request.All, request.Labels = nil, nil, nil
		for _, result := range planned.Data {
			request.IDs = append(request.IDs, result.ID)
		}
		if err := s.Confirm(r.app, r.verb.name, kinds.Get("node"), request.IDs); err != nil {
			return err
		}
	}
	answer, err := r.client.UpdateNodesInBulk(ctx, request, params)
	if err != nil {
		return unfinished(ctx, err)
	}
	return r.report(ctx, answer)
}

// report prints what was done to several nodes, and waits for them with --wait.
func (r *nodeRun) report(ctx context.Context, answer *orrery.BulkNodesResponse) error {
	all, err := newTally(r.app)
	if err != nil {
		return err
	}
	var done []string
	for _, result := range answer.Data {
		err := command.BulkError(result.OK, result.Error, result.Message)
		if err == nil {
			done = append(done, result.ID)
		}
		text := r.sentence(result.ID, result.Changed, started(result.Start, result.Stay))
		if err := all.add(act{result.ID, changedIf(result.Changed), text}, err); err != nil {
			return err
		}
	}
	if err := reportAll(r.app, all.acts, answer.Data); err != nil {
		return err
	}
	if err := r.follow(ctx, done); err != nil {
		return err
	}
	return all.failed.Err()
}

// sentence says what an act did to a node.
func (r *nodeRun) sentence(name string, changed bool, extra string) string {
	text := fmt.Sprintf("node %s %s", name, r.verb.doing)
	if !changed {
		text = fmt.Sprintf("node %s was not changed: it %s", name, r.verb.already)
	}
	if extra != "" {
		text += "; " + extra
	}
	return text
}

// follow waits until drained nodes are empty, if --wait was given.
func (r *nodeRun) follow(ctx context.Context, names []string) error {
	if !r.options.wait || len(names) == 0 {
		return nil
	}
	o := progress.Options{Goal: "drained", Afterwards: "the drain continues: orrery undrain ends it"}
	for _, name := range names {
		o.Targets = append(o.Targets, progress.Target{Kind: kinds.Get("node"), Name: name, Until: progress.Drained()})
	}
	return waitAll(ctx, r.app, r.client, o)
}

// show prints what a dry run returned: for a drain the instances on each node.
func (r *nodeRun) show(ctx context.Context, results []orrery.BulkNodeResult) error {
	single := len(r.options.selection.Names) == 1
	if single && !results[0].OK {
		err := command.BulkError(false, results[0].Error, results[0].Message)
		return app.Suggest(ctx, r.client, err, kinds.Get("node"), "", results[0].ID)
	}
	people, err := forPeople(r.app)
	if err != nil {
		return err
	}
	if people && r.verb.name == "drain" {
		if err := r.showDrain(results); err != nil {
			return err
		}
	} else if err := tableOrObject(r.app, single, plannedNodes, results); err != nil {
		return err
	}
	var failed command.Failures
	for _, result := range results {
		failed.Add(r.app, result.ID, command.BulkError(result.OK, result.Error, result.Message))
	}
	return failed.Err()
}

// drainStep is what a drain does to an instance of a node.
type drainStep struct {
	orrery.NodeDrainStep
	Node string `json:"node"`
}

func (r *nodeRun) showDrain(results []orrery.BulkNodeResult) error {
	var steps []drainStep
	for _, result := range results {
		for _, step := range result.Instances {
			steps = append(steps, drainStep{NodeDrainStep: step, Node: result.ID})
		}
	}
	if len(steps) == 0 {
		r.app.Notef("nothing runs there")
		return nil
	}
	return table(r.app, drainColumns, steps)
}

var drainColumns = []output.Column{
	{Header: "NODE", Path: "node"},
	{Header: "INSTANCE", Path: "id"},
	{Header: "PLAYERS", Path: "players"},
	{Header: "ACTION", Path: "action"},
	{Header: "OUTLOOK", Path: "outlook"},
}
