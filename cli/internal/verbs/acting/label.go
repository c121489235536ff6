package acting

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func label(a *app.App) *cobra.Command {
	s := &command.Selection{}
	cmd := command.New(a, command.Spec{
		Use: "label [node] NAME... KEY=VALUE... KEY-...", Short: "Set and remove labels of nodes",
		Long: `KEY=VALUE sets a label, and KEY- removes it. Other labels stay. Groups ask for labels with nodeAffinity.

Labels that you set replace those of the agent's settings. To go back to these, remove labels in orrery edit node NAME.`,
		Example: `orrery label node node-1 zone=a ssd=
orrery label node-1 zone- --dry-run
orrery label node -l zone=a rack=7 --yes`,
		Args: cobra.ArbitraryArgs, Complete: command.CompleteTargets(a, "node"),
		Run: func(ctx context.Context, args []string) error { return runLabel(ctx, a, s, args) },
	})
	s.NodeFlags(a, cmd)
	return cmd
}

const labelExample = "for example: orrery label node-1 zone=a rack-"

func runLabel(ctx context.Context, a *app.App, s *command.Selection, args []string) error {
	changes, args, err := command.Assignments(args, labelExample)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return command.UsageError(labelExample, "label needs KEY=VALUE or KEY-")
	}
	client, names, err := selectedNodes(ctx, a, s, args, "label")
	if err != nil || len(names) == 0 {
		return err
	}
	_, err = onEach(ctx, a, s, names, func(ctx context.Context, name string) (any, []string, error) {
		answer, lines, err := labelOne(ctx, client, s.DryRun, name, changes)
		return answer, lines, command.NotFound(ctx, client, err, "node", name)
	})
	return err
}

func labelOne(ctx context.Context, client *orrery.Client, dryRun bool, name string, changes map[string]*string) (any, []string, error) {
	patch := orrery.Patch{"labels": changes}
	if !dryRun {
		node, err := client.UpdateNode(ctx, name, patch, nil)
		if err != nil {
			return nil, nil, err
		}
		return node, []string{"node " + name + " has " + labelsText(node.Labels)}, nil
	}
	planned, err := client.UpdateNodeDryRun(ctx, name, patch, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(planned.Diff) == 0 {
		return planned, []string{"node " + name + " would not change"}, nil
	}
	var lines []string
	for _, change := range objects.Flattened(planned.Diff) {
		lines = append(lines, name+": "+output.Change(change.Field, change.From, change.To))
	}
	return planned, lines, nil
}

// labelsText lists labels: "the labels rack=7, zone=a".
func labelsText(labels map[string]string) string {
	if len(labels) == 0 {
		return "no labels"
	}
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, key+"="+labels[key])
	}
	return "the labels " + strings.Join(texts, ", ")
}

// selectedNodes returns a client and the nodes to act on: those in the arguments, or those that flags select. In the
// second case it asks first, unless it is a dry run.
func selectedNodes(ctx context.Context, a *app.App, s *command.Selection, args []string, verb string) (client *orrery.Client, names []string, err error) {
	kind, names, err := command.Targets(args, "node")
	if err != nil {
		return nil, nil, err
	}
	if err := s.Take(kind, names); err != nil {
		return nil, nil, err
	}
	if client, err = a.Client(); err != nil || !s.ByFlags() {
		return client, s.Names, err
	}
	selector, err := command.ParseSelector(s.Labels)
	if err != nil {
		return nil, nil, err
	}
	rows, err := app.List(ctx, client, kind, "", nil)
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		labels, _ := gjson.GetBytes(row, "labels").Value().(map[string]any) // a node without labels has none
		if gjson.GetBytes(row, "type").String() != "PENDING" && selector.Matches(labels) {
			names = append(names, gjson.GetBytes(row, kind.NameField).String())
		}
	}
	switch {
	case len(names) == 0:
		a.Notef("no node to %s", verb)
	case !s.DryRun:
		err = s.Confirm(a, verb, kind, names)
	}
	return client, names, err
}
