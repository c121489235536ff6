package app

import (
	"strings"

	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// ShowDiff prints the changes of a dry run.
func (a *App) ShowDiff(answer any, name string, diff []orrery.FieldChange) error {
	return a.Show(answer, name, func(output.Printer) error { return a.diffLines(name, diff) })
}

func (a *App) diffLines(name string, diff []orrery.FieldChange) error {
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

// ShowGroupDryRun prints what would change in a group and its instances.
func (a *App) ShowGroupDryRun(d *orrery.GroupDryRun) error {
	return a.Show(d, d.Group, func(output.Printer) error {
		effects := groupEffects(d)
		if len(d.Diff) > 0 || len(effects) == 0 {
			if err := a.diffLines(d.Group, d.Diff); err != nil {
				return err
			}
		}
		return a.Lines(effects)
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
	effects = append(effects, Notes(d.Notes)...)
	if d.Message != "" {
		effects = append(effects, d.Message)
	}
	return effects
}

// Notes returns the notes of an answer as lines.
func Notes(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = "note: " + text
	}
	return out
}

// Lines prints lines to standard output.
func (a *App) Lines(texts []string) error {
	for _, text := range texts {
		if err := a.Linef("%s", text); err != nil {
			return err
		}
	}
	return nil
}
