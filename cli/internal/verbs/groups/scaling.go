package groups

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

func scaling(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "scaling", Short: "Try other scaling rules on what happened",
		Example: "orrery scaling replay lobby -f rules.yaml",
	})
	cmd.AddCommand(scalingReplay(a))
	return cmd
}

func scalingReplay(a *app.App) *cobra.Command {
	var file string
	cmd := command.New(a, command.Spec{
		Use: "replay [group] NAME -f FILE", Short: "Show what other scaling rules would have decided",
		Long: `The file has scaling fields of a group, as YAML or JSON, for example scaleUpThreshold: 0.6. A missing field is as in
the group. Nothing is changed.`,
		Example: "orrery scaling replay lobby -f rules.yaml",
		Args:    command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error { return runReplay(ctx, a, file, args) },
	})
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` with the rules; - is standard input")
	return cmd
}

func runReplay(ctx context.Context, a *app.App, file string, args []string) error {
	_, name, err := command.One(args, "group")
	if err != nil {
		return err
	}
	if file == "" {
		return command.UsageError("for example -f rules.yaml", "replay needs a file with rules")
	}
	rules, err := readRules(a, file)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	replay, err := client.ReplayAutoscaling(ctx, name, rules)
	if err != nil {
		return command.NotFound(ctx, client, err, "group", name)
	}
	return a.Show(replay, name, func(p output.Printer) error { return showReplay(a, p, replay) })
}

// readRules reads a file of scaling fields.
func readRules(a *app.App, file string) (*orrery.ScalingRules, error) {
	content, err := a.ReadFile(file)
	if err != nil {
		return nil, exit.With(exit.Usage, err, "")
	}
	var fields map[string]any
	if err := yaml.Unmarshal(content, &fields); err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", file, err), "")
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", file, err), "")
	}
	rules := &orrery.ScalingRules{}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(rules); err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", file, err), "the fields are the scaling fields of a group, such as scaleUpThreshold")
	}
	return rules, nil
}

func showReplay(a *app.App, p output.Printer, r *orrery.ScalingReplay) error {
	if err := a.Linef("%d situations of group %s, from %s to %s", r.Records, r.Group, kinds.Moment(r.Since), kinds.Moment(r.Until)); err != nil {
		return err
	}
	if err := p.Lines(bothSides(r)); err != nil {
		return err
	}
	rows, err := app.Rows(decisions(r))
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		if err := a.Linef(""); err != nil {
			return err
		}
		if err := p.List(decisionColumns, "at", rows); err != nil {
			return err
		}
	}
	return a.Lines(replayNotes(r))
}

func bothSides(r *orrery.ScalingReplay) [][]string {
	cells := [][]string{{"", "THEN", "WITH THESE RULES"}}
	for _, line := range []struct {
		name  string
		value func(orrery.ScalingReplayResult) string
	}{
		{"starts", func(s orrery.ScalingReplayResult) string { return fmt.Sprint(s.Up) }},
		{"stops", func(s orrery.ScalingReplayResult) string { return fmt.Sprint(s.Down) }},
		{"most instances", func(s orrery.ScalingReplayResult) string { return fmt.Sprint(s.Most) }},
		{"fewest instances", func(s orrery.ScalingReplayResult) string { return fmt.Sprint(s.Least) }},
		{"on average", func(s orrery.ScalingReplayResult) string { return fmt.Sprintf("%.1f", s.Average) }},
	} {
		cells = append(cells, []string{line.name, line.value(r.Then), line.value(r.Would)})
	}
	return cells
}

// decision is a decision of one side.
type decision struct {
	Side string `json:"side"`
	orrery.ScalingReplayResultDecision
}

var decisionColumns = []output.Column{
	{Header: "TIME", Path: "at", Text: kinds.MomentCell},
	{Header: "RULES", Path: "side"},
	{Header: "FROM", Path: "from"},
	{Header: "TO", Path: "to"},
	{Header: "REASON", Path: "reason"},
	{Header: "POLICY", Path: "policy"},
	{Header: "MESSAGE", Path: "message"},
}

// decisions returns those of both sides, oldest first.
func decisions(r *orrery.ScalingReplay) []decision {
	var all []decision
	for _, d := range r.Then.Decisions {
		all = append(all, decision{"then", d})
	}
	for _, d := range r.Would.Decisions {
		all = append(all, decision{"these", d})
	}
	slices.SortStableFunc(all, func(x, y decision) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(y.Side, x.Side)) })
	return all
}

func replayNotes(r *orrery.ScalingReplay) []string {
	var out []string
	for _, answer := range r.Answers {
		number := "no number"
		if answer.Instances != nil {
			number = fmt.Sprint(*answer.Instances)
		}
		line := "policy " + answer.Policy + " asks for " + number + " now"
		if answer.Message != "" {
			line += ": " + answer.Message
		}
		out = append(out, line)
	}
	return append(out, app.Notes(r.Notes)...)
}
