package declaring

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func hasDocuments(kind *kinds.Kind) bool { return kind.Document != "" }

// documentKind returns the kind that the user typed, which must have documents.
func documentKind(name string) (*kinds.Kind, error) {
	kind, err := command.KindOf(name)
	if err != nil {
		return nil, err
	}
	if !hasDocuments(kind) {
		return nil, command.UsageError("the kinds with documents are "+strings.Join(kinds.Names(hasDocuments), ", "), "%s have no document", kind.Plural)
	}
	return kind, nil
}

func export(a *app.App) *cobra.Command {
	var complete bool
	cmd := command.New(a, command.Spec{
		Use: "export KIND [NAME...]", Short: "Print objects as documents for apply",
		Long: `Without a name it prints all objects of the kind. Fields of a group that have their default are left out, unless
--all-fields prints them. Secrets are not in documents: *** stands for a value that the server keeps to itself.
-o json prints JSON, one document a line.`,
		Example: `orrery export group lobby
orrery export schedules -o json`,
		Args:     command.Between(1, -1, "a kind and names, for example group lobby"),
		Complete: command.CompleteKindThenNames(a, hasDocuments),
		Run:      func(ctx context.Context, args []string) error { return runExport(ctx, a, args, complete) },
	})
	cmd.Flags().BoolVar(&complete, "all-fields", false, "also fields that have their default")
	return cmd
}

func runExport(ctx context.Context, a *app.App, args []string, complete bool) error {
	kind, err := documentKind(args[0])
	if err != nil {
		return err
	}
	write, err := documentWriter(a)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	names := args[1:]
	if len(names) == 0 {
		if names, err = exportable(ctx, a, remote{client}, kind); err != nil {
			return err
		}
	}
	for i, name := range names {
		live, err := remote{client}.existing(ctx, kind, name)
		if err != nil {
			return err
		}
		values := live.writable(kind)
		if !complete {
			values = remote{client}.withoutDefaults(ctx, kind, values)
		}
		if err := write(&manifest.Document{Kind: kind.Document, Name: name, Fields: values}, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// exportable returns the names of the objects of a kind, without those that exist from the start.
func exportable(ctx context.Context, a *app.App, r remote, kind *kinds.Kind) ([]string, error) {
	rows, err := app.List(ctx, r.client, kind, "", nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if !gjson.GetBytes(row, "builtIn").Bool() {
			names = append(names, gjson.GetBytes(row, kind.NameField).String())
		}
	}
	if len(names) == 0 {
		a.Notef("no %s found", kind.Plural)
	}
	return names, nil
}

// documentWriter returns a function that prints a document in the format of -o.
func documentWriter(a *app.App) (func(d *manifest.Document, first bool) error, error) {
	switch a.Flags.Output {
	case "", "yaml":
		return func(d *manifest.Document, first bool) error {
			text, err := d.YAML()
			if err == nil && !first {
				text = append([]byte("---\n"), text...)
			}
			if err == nil {
				_, err = a.Out.Write(text)
			}
			return err
		}, nil
	case "json":
		return func(d *manifest.Document, _ bool) error {
			text, err := d.JSON()
			if err == nil {
				_, err = fmt.Fprintf(a.Out, "%s\n", text)
			}
			return err
		}, nil
	}
	return nil, command.UsageError("pass -o yaml or -o json", "documents cannot be printed as -o %s", a.Flags.Output)
}

// existing returns an object that must exist. The error suggests similar names.
func (r remote) existing(ctx context.Context, kind *kinds.Kind, name string) (*object, error) {
	live, err := r.get(ctx, kind, name)
	if err != nil || live != nil {
		return live, err
	}
	names, err := app.Names(ctx, r.client, kind, "")
	if err != nil {
		return nil, err
	}
	return nil, exit.With(exit.NotFound, fmt.Errorf("there is no %s %q", kind.Name, name), app.DidYouMean(name, names, "orrery get "+kind.Plural+" lists them"))
}

// withoutDefaults returns the fields of a group that differ from their defaults. The server knows
// them: the dry run of a creation with these fields lists what differs. If it fails, every field
// stays.
func (r remote) withoutDefaults(ctx context.Context, kind *kinds.Kind, values fields) fields {
	if kind.Name != "group" {
		return values
	}
	changes, ok := r.differing(ctx, kind, values)
	if !ok {
		return values
	}
	out := maps.Clone(values)
	maps.DeleteFunc(out, func(field string, _ any) bool { return changes[field] == nil })
	for _, pair := range samePairs {
		for _, field := range pair {
			shorter := maps.Clone(out)
			delete(shorter, field)
			if same, ok := r.differing(ctx, kind, shorter); ok && manifest.Equal(same, changes) {
				out = shorter
				break
			}
		}
	}
	return out
}

// samePairs are fields of a group that say the same: one of them is enough in a document. The first
// is left out if the second says everything.
var samePairs = [][]string{{"templateInstallationConfig", "templates"}, {"cpuReservation", "cpu"}}

// differing returns the fields that a group with these values would have apart from defaults. It reports
// false if the server does not answer the dry run of a creation.
func (r remote) differing(ctx context.Context, kind *kinds.Kind, values fields) (fields, bool) {
	name := "export-" + strings.ToLower(rand.Text()[:8]) // a name that no group has
	answer, err := r.create(ctx, kind, name, values, true)
	if err != nil || answer == nil {
		return nil, false
	}
	diff, ok := answer.fields["diff"].([]any)
	out := fields{}
	for _, change := range diff {
		if change, isObject := change.(fields); isObject {
			name, _ := change["field"].(string) // every change names its field
			out[name] = change["to"]
		}
	}
	return out, ok
}
