package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// explained are the kinds that explain takes.
var explained = []string{"instance", "group", "node"}

func explain(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "explain [instance|group|node] NAME", Short: "Say why something is as it is",
		Long: `Of an instance: what led to its state, why it waits or why it is on its node.
Of a group: what keeps it from the number of instances that it shall have.
Of a node: what it can run, and what it cannot.`,
		Example: `orrery explain lobby-1
orrery explain group lobby
orrery explain node node-1`,
		Args: command.Between(1, 2, "the name of an instance, group or node"), Complete: command.CompleteTargets(a, explained...),
		Run: func(ctx context.Context, args []string) error { return runExplain(ctx, a, args) },
	})
}

func runExplain(ctx context.Context, a *app.App, args []string) error {
	kind, name, err := command.One(args, explained...)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	switch kind.Name {
	case "group":
		return explainGroup(ctx, a, client, name)
	case "node":
		return explainNode(ctx, a, client, name)
	}
	return explainInstance(ctx, a, client, name)
}

func explainInstance(ctx context.Context, a *app.App, client *orrery.Client, name string) error {
	e, err := client.ExplainInstance(ctx, name)
	if err != nil {
		return otherKind(ctx, client, command.NotFound(ctx, client, err, "instance", name), name)
	}
	return a.Show(e, e.ID, func(p output.Printer) error {
		if err := a.Linef("%s is %s: %s", e.ID, e.State, e.Message); err != nil {
			return err
		}
		if err := a.Linef("group %s, uid %s, run %d, reason %s", e.Group, e.UID, e.Generation, e.Reason); err != nil {
			return err
		}
		if err := showChain(a, p, e.Chain); err != nil {
			return err
		}
		if e.Pending != nil {
			return showPending(a, p, e.Pending)
		}
		if e.Placement != nil {
			return showPlacement(a, p, e.Placement)
		}
		return nil
	})
}

// otherKind adds to a 404 that a group or a node has the name.
func otherKind(ctx context.Context, client *orrery.Client, err error, name string) error {
	if !errors.Is(err, orrery.ErrNotFound) {
		return err
	}
	if _, other := client.GetGroup(ctx, name); other == nil {
		return exit.Hint(err, "did you mean orrery explain group "+name+"?")
	}
	if _, other := client.GetNode(ctx, name); other == nil {
		return exit.Hint(err, "did you mean orrery explain node "+name+"?")
	}
	return err
}

var chainColumns = []output.Column{
	{Header: "TIME", Path: "at", Text: kinds.MomentCell},
	{Header: "STEP", Path: "step"},
	{Header: "REASON", Path: "reason"},
	{Header: "BY", Path: "by"},
	{Header: "NODE", Path: "node"},
	{Header: "WHY", Path: "message"},
}

func showChain(a *app.App, p output.Printer, chain []orrery.ReasonStep) error {
	rows, err := app.Rows(chain)
	if err != nil {
		return err
	}
	return titled(a, "what led to it, oldest first", func() error { return p.List(chainColumns, "step", rows) })
}

// titled prints an empty line, a title and what show prints.
func titled(a *app.App, title string, show func() error) error {
	if err := a.Linef("\n%s:", title); err != nil {
		return err
	}
	return show()
}

var lostColumns = []output.Column{
	{Header: "RULE", Path: "filter"},
	{Header: "NODES", Path: "nodes"},
	{Header: "WHAT WOULD HELP", Path: "fix"},
}

func showLost(a *app.App, p output.Printer, lost []orrery.FilterResult) error {
	if len(lost) == 0 {
		return nil
	}
	rows, err := app.Rows(lost)
	if err != nil {
		return err
	}
	return titled(a, "nodes that are excluded", func() error { return p.List(lostColumns, "filter", rows) })
}

func showPending(a *app.App, p output.Printer, w *orrery.PendingExplanation) error {
	if err := a.Linef("\nit waits for a node: %s (%s looked at)", w.Message, output.Counted(w.Nodes, "node")); err != nil {
		return err
	}
	if err := showLost(a, p, w.Lost); err != nil {
		return err
	}
	if err := showCandidates(a, p, "closest nodes", w.Best); err != nil {
		return err
	}
	return sourceNote(a, w.Source, w.Note)
}

func showPlacement(a *app.App, p output.Printer, placed *orrery.PlacementExplanation) error {
	if err := a.Linef("\nplaced on %s, port %d, at %s; score %s", placed.Node, placed.Port, kinds.Moment(placed.At), score(placed.Score)); err != nil {
		return err
	}
	now := placed.Now
	if now == nil {
		return nil
	}
	if err := showLost(a, p, now.Lost); err != nil {
		return err
	}
	candidates := now.Best
	if here := now.Here; here != nil && !slices.ContainsFunc(candidates, func(c orrery.CandidateNode) bool { return c.Node == here.Node }) {
		candidates = append(candidates, *here)
	}
	if err := showCandidates(a, p, fmt.Sprintf("how the %s would be ranked now", output.Counted(now.Nodes, "node")), candidates); err != nil {
		return err
	}
	return sourceNote(a, now.Source, now.Note)
}

// sourceNote says that figures are not of now.
func sourceNote(a *app.App, source, note string) error {
	if source == "stored" {
		a.Notef("this is what the scheduler recorded, not its answer of now")
	}
	if note != "" {
		return a.Linef("note: %s", note)
	}
	return nil
}

func showCandidates(a *app.App, p output.Printer, title string, candidates []orrery.CandidateNode) error {
	if len(candidates) == 0 {
		return nil
	}
	cells := make([][]string, len(candidates))
	for i, c := range candidates {
		why := score(c.Score)
		if c.Filter != "" {
			why = "excluded by " + c.Filter + ": " + c.Fix
		}
		rank := "-"
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		cells[i] = []string{rank, output.Clean(c.Node), output.Clean(why)}
	}
	return titled(a, title, func() error { return p.Lines(cells) })
}

// totalScore is the sum of the parts.
const totalScore = "total"

// score returns a score such as 0.64 = cpu 0.25 + memory 0.39, the largest part first.
func score(parts map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(parts), func(x, y string) int {
		if parts[x] != parts[y] {
			return cmp.Compare(parts[y], parts[x])
		}
		return strings.Compare(x, y)
	})
	var terms []string
	for _, name := range names {
		if name != totalScore {
			terms = append(terms, fmt.Sprintf("%s %.3f", name, parts[name]))
		}
	}
	return fmt.Sprintf("%.3f = %s", parts[totalScore], strings.Join(terms, " + "))
}
