package declaring

import (
	"context"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
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
--all-fields prints them. A document has every value that you may see, also passwords; *** stands for one that the server
hides, and apply keeps it. -o json prints JSON, one document a line.`,
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
		if names, err = exportable(ctx, a, objects.Remote{Client: client}, kind); err != nil {
			return err
		}
	}
	for i, name := range names {
		live, err := objects.Remote{Client: client}.Existing(ctx, objects.Ref{Kind: kind, Name: name})
		if err != nil {
			return err
		}
		values := live.Writable(kind)
		if !complete {
			values = objects.Remote{Client: client}.WithoutDefaults(ctx, kind, values)
		}
		hidden := hidesEnv(kind, live)
		if hidden {
			a.Notef("%s %s: env is left out, because you lack the permission groups.env", kind.Name, name)
		}
		if err := write(&manifest.Document{Kind: kind.Document, Name: name, Fields: values}, i == 0, hidden); err != nil {
			return err
		}
	}
	return nil
}

// hidesEnv reports whether the server left the environment of a group out of an answer, which it does for users without
// groups.env.
func hidesEnv(kind *kinds.Kind, live *objects.Object) bool {
	_, shown := live.Fields["env"]
	return kind.Name == "group" && !shown
}

// withoutEnv is a comment in a document without the environment that its group may have.
const withoutEnv = `# This document lacks env, because the user who exported it lacks the permission groups.env.
# If a user with that permission applies it, variables that were applied before are removed. Add env first.
`

// exportable returns the names of the objects of a kind, without those that exist from the start.
func exportable(ctx context.Context, a *app.App, r objects.Remote, kind *kinds.Kind) ([]string, error) {
	rows, err := app.List(ctx, r.Client, kind, "", nil)
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

// documentWriter returns a function that prints a document in the format of -o. hidden says that its env is hidden.
func documentWriter(a *app.App) (func(d *manifest.Document, first, hidden bool) error, error) {
	switch a.Flags.Output {
	case "", "yaml":
		return func(d *manifest.Document, first, hidden bool) error {
			text, err := d.YAML()
			if hidden {
				text = append([]byte(withoutEnv), text...)
			}
			if err == nil && !first {
				text = append([]byte("---\n"), text...)
			}
			if err == nil {
				_, err = a.Out.Write(text)
			}
			return err
		}, nil
	case "json":
		return func(d *manifest.Document, _, _ bool) error {
			text, err := d.JSON()
			if err == nil {
				_, err = fmt.Fprintf(a.Out, "%s\n", text)
			}
			return err
		}, nil
	}
	return nil, command.UsageError("pass -o yaml or -o json", "documents cannot be printed as -o %s", a.Flags.Output)
}
