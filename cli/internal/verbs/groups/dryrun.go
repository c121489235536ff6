package groups

import (
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// dryRunNote says at the end of a dry run what it is.
const dryRunNote = "dry run: nothing was changed"

// showDiff prints the changes of a dry run.
func showDiff(a *app.App, answer any, name string, diff []orrery.FieldChange) error {
	defer a.Notef(dryRunNote)
	return a.Show(answer, name, func(output.Printer) error { return diffLines(a, name, diff) })
}

func diffLines(a *app.App, name string, diff []orrery.FieldChange) error {
	if len(diff) == 0 {
		return a.Linef("%s would not change", name)
	}
	for _, change := range diff {
		if err := a.Linef("%s: %s", name, output.Change(change.Field, change.From, change.To)); err != nil {
			return err
		}
	}
	return nil
}

// showGroupDryRun prints what would change in a group and its instances.
func showGroupDryRun(a *app.App, d *orrery.GroupDryRun) error {
	defer a.Notef(dryRunNote)
	return a.Show(d, d.Group, func(output.Printer) error {
		if err := diffLines(a, d.Group, d.Diff); err != nil {
			return err
		}
		return lines(a, groupEffects(d))
	})
}

func groupEffects(d *orrery.GroupDryRun) []string {
	var effects []string
	if len(d.Start) > 0 {
		effects = append(effects, "would start: "+strings.Join(d.Start, ", "))
	}
	for _, p := range d.Placements {
		where := "on " + p.Node
		if p.Node == "" {
			where = "waits: " + p.Message
		}
		effects = append(effects, "  "+p.Name+" "+where)
	}
	if len(d.Stop) > 0 {
		effects = append(effects, "would stop: "+strings.Join(d.Stop, ", "))
	}
	return append(effects, notes(d.Notes)...)
}

func notes(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = "note: " + text
	}
	return out
}

func lines(a *app.App, texts []string) error {
	for _, text := range texts {
		if err := a.Linef("%s", text); err != nil {
			return err
		}
	}
	return nil
}
