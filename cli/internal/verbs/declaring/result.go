package declaring

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// The actions of a result.
const (
	created    = "created"
	configured = "configured"
	unchanged  = "unchanged"
	conflicted = "conflict"
	failed     = "failed"
	deleted    = "deleted"
	// uncertain is an act that Ctrl-C or --timeout cut off.
	uncertain = "unknown"
)

// result is what happened to one object, or would happen.
type result struct {
	Kind      string               `json:"kind"`
	Name      string               `json:"name"`
	Action    string               `json:"action"`
	File      string               `json:"file,omitempty"`
	Changes   []orrery.FieldChange `json:"changes,omitempty"`
	Conflicts []conflict           `json:"conflicts,omitempty"`
	Start     []string             `json:"start,omitempty"`
	Stop      []string             `json:"stop,omitempty"`
	// Placements say where new instances would run, or why they would wait.
	Placements []orrery.GroupDryRunPlacement `json:"placements,omitempty"`
	Notes      []string                      `json:"notes,omitempty"`
	Error      string                        `json:"error,omitempty"`

	err error
	// written says that the object is as the document says, although an error followed.
	written bool
}

// conflict is a conflict of the merge with who made it.
type conflict struct {
	manifest.Conflict
	objects.Writer
}

// String says what each side wants and who the other is.
func (c conflict) String() string {
	text := fmt.Sprintf("%s: the document says %s, but it is %s", c.Field, show(c.Document), show(c.Live))
	switch {
	case c.By != "" && c.Action != "":
		text += fmt.Sprintf(", set by %s (%s, %s)", c.By, c.Action, kinds.Moment(c.At))
	case c.By != "":
		text += fmt.Sprintf("; %s changed the object last (%s)", c.By, kinds.Moment(c.At))
	}
	if !manifest.Equal(c.Applied, c.Document) {
		text += "; applied last was " + show(c.Applied)
	}
	return text
}

// show returns a value as JSON.
func show(value any) string {
	if value == nil {
		return "not set"
	}
	return string(objects.Encode(value))
}

// String returns the kind and the name.
func (r *result) String() string { return r.Kind + " " + r.Name }

// describe prints what would happen to an object.
func describe(a *app.App, r *result) error {
	style := a.Style()
	headline := "%s would be %s"
	if r.Action == conflicted {
		headline = "%s is in %s"
	}
	if err := a.Linef(headline, r, r.Action); err != nil {
		return err
	}
	lines := []string{}
	for _, c := range r.Conflicts {
		lines = append(lines, style.Red(output.Clean(c.String())))
	}
	for _, c := range r.Changes {
		lines = append(lines, paint(style, c, output.Change(c.Field, c.From, c.To)))
	}
	for _, p := range r.Placements {
		if p.Node == "" {
			lines = append(lines, output.Clean("starts "+p.Name+", which waits: "+p.Message))
			continue
		}
		lines = append(lines, output.Clean("starts "+p.Name+" on "+p.Node))
	}
	if len(r.Placements) == 0 && len(r.Start) > 0 {
		lines = append(lines, output.Clean("starts "+strings.Join(r.Start, ", ")))
	}
	if len(r.Stop) > 0 {
		lines = append(lines, style.Red(output.Clean("stops "+strings.Join(r.Stop, ", "))))
	}
	for _, note := range r.Notes {
		lines = append(lines, output.Clean("note: "+note))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.Out, "  "+line); err != nil {
			return err
		}
	}
	return nil
}

// paint colours a change: green what is set, red what is removed.
func paint(style output.Style, c orrery.FieldChange, line string) string {
	switch {
	case string(c.To) == "null":
		return style.Red(line)
	case string(c.From) == "null":
		return style.Green(line)
	}
	return style.Yellow(line)
}

var resultColumns = []output.Column{
	{Header: "KIND", Path: "kind"},
	{Header: "NAME", Path: "name"},
	{Header: "ACTION", Path: "action"},
	{Header: "ERROR", Path: "error"},
}

// printResults prints the results in a format for programs.
func printResults(printer output.Printer, results []*result) error {
	rows, err := app.Rows(results)
	if err != nil {
		return err
	}
	return printer.List(resultColumns, "name", rows)
}
