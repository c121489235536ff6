package command

import (
	"context"
	"errors"
	"iter"
	"net/url"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Part returns a kind for a list that belongs to one object, such as the versions of a template. {group} in its path
// stands for that object.
func Part(plural, path, nameField string, columns []output.Column) *kinds.Kind {
	return &kinds.Kind{Name: nameField, Plural: plural, Path: path, NameField: nameField, Columns: columns}
}

// PrintPart prints a part of the object owner of a kind.
func PrintPart(ctx context.Context, a *app.App, p *kinds.Kind, of *kinds.Kind, owner string, query url.Values) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	rows, err := app.List(ctx, client, p, owner, query)
	if err != nil {
		return app.Suggest(ctx, client, err, of, "", owner)
	}
	return PrintRows(a, p, rows)
}

// PrintRows prints a list. On a terminal an empty one is a note.
func PrintRows(a *app.App, p *kinds.Kind, rows []output.Row) error {
	return PrintEach(a, p, output.Sequence(rows))
}

// PrintEach is PrintRows for a sequence; see output.Printer.Each.
func PrintEach(a *app.App, p *kinds.Kind, rows iter.Seq2[output.Row, error]) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	empty := true
	err = printer.Each(p.Columns, p.NameField, func(yield func(output.Row, error) bool) {
		for row, err := range rows {
			empty = false
			if !yield(row, err) {
				return
			}
		}
	})
	if empty && printer.Format.ForPeople() {
		a.Notef("no %s found", p.Plural)
	}
	return err
}

// OnObject runs an act on the object name of a kind.
func OnObject(ctx context.Context, a *app.App, kind, name string, act func(client *orrery.Client) error) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if err := act(client); err != nil {
		return app.Suggest(ctx, client, err, kinds.Get(kind), "", name)
	}
	return nil
}

// DryRunFlag declares --dry-run. A run with it ends with a note on standard error, unless it fails as a whole.
func DryRunFlag(a *app.App, cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "dry-run", false, "show what would happen and change nothing")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if *into && (err == nil || errors.Is(err, ErrSomeFailed)) {
			a.Notef("dry run: nothing was changed")
		}
		return err
	}
}

// CompleteFirst completes the first argument with names of a kind, and the others as then does; nil
// completes nothing.
func CompleteFirst(a *app.App, kind string, then cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return CompleteNames(a, kind)(cmd, args, toComplete)
		case then != nil:
			return then(cmd, args[1:], toComplete)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// LocalFiles completes files of this machine.
func LocalFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
