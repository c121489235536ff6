package templates

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type diffOptions struct {
	from, to string
	files    bool
	exclude  []string
}

func templateDiff(a *app.App) *cobra.Command {
	var o diffOptions
	cmd := command.New(a, command.Spec{
		Use:   "diff NAME [DIRECTORY]",
		Short: "Show how two versions of a template differ, or a version and a directory",
		Long: `Without a directory it compares the version before the current one with the current one. With a directory it lists
the files that a push would change.`,
		Example: `orrery template diff lobby
orrery template diff lobby --from 7b1acdba6af048c2 --to head
orrery template diff lobby ./lobby`,
		Args:     command.Between(1, 2, "the name of a template, and a directory"),
		Complete: command.CompleteFirst(a, "template", command.LocalFiles),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error {
				if len(args) == 2 {
					return diffDirectory(ctx, a, client, o, args[0], args[1])
				}
				return diffVersions(ctx, a, client, o, args[0])
			})
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "`hash` of the older version; the default is previous, or with a directory the current one")
	flags.StringVar(&o.to, "to", "", "`hash` of the newer version; the default is head, the current one")
	flags.BoolVar(&o.files, "files", false, "list the files only")
	flags.StringArrayVar(&o.exclude, "exclude", nil, "leave out files whose name or path matches this `pattern`")
	command.CompleteFlag(cmd, "from", completeVersions(a))
	command.CompleteFlag(cmd, "to", completeVersions(a))
	command.CompleteFlag(cmd, "exclude", cobra.NoFileCompletions)
	return cmd
}

func diffDirectory(ctx context.Context, a *app.App, client *orrery.Client, o diffOptions, name, dir string) error {
	if o.to != "" {
		return command.UsageError("leave --to out", "a directory is compared with one version, that of --from")
	}
	if err := filetree.CheckPatterns(o.exclude); err != nil {
		return err
	}
	root, remove, err := openSource(dir)
	if err != nil {
		return err
	}
	defer remove()
	local, err := filetree.Local(root, o.exclude)
	if err != nil {
		return err
	}
	delete(local, filetree.DefinitionsFile)
	remote, err := remoteTree(ctx, client, name, o.from)
	if err != nil {
		return err
	}
	p, err := filetree.Compare(root, local, remote)
	if err != nil {
		return err
	}
	return printChanges(a, p.Changes, fmt.Sprintf("template %s and %s have the same content", name, dir))
}

// fileDifference is a file that differs between two versions.
type fileDifference struct {
	orrery.TemplateFileChange
	// Unified is the difference of the lines; empty for files that are not text.
	Unified string `json:"unified,omitempty"`
}

func diffVersions(ctx context.Context, a *app.App, client *orrery.Client, o diffOptions, name string) error {
	params := orrery.DiffTemplateVersionsParams{From: o.from, To: o.to}
	found, err := client.DiffTemplateVersions(ctx, name, &params)
	if err != nil {
		return err
	}
	if found.Truncated {
		a.Notef("only the first %d changed files are shown", len(found.Files))
	}
	if o.files {
		return printChanges(a, changesOf(found.Files), "the versions have the same files")
	}
	params.From, params.To = found.From, found.To
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	var rows []output.Row
	for _, f := range found.Files {
		d, err := diffFile(ctx, client, name, params, f)
		if err != nil {
			return err
		}
		if printer.Format.ForPeople() {
			printDifference(a, printer.Style, d)
			continue
		}
		row, err := app.Row(d)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if printer.Format.ForPeople() {
		return nil
	}
	return printer.List(changeColumns, "path", rows)
}

// diffFile compares the lines of a file, if it is text that is not too large.
func diffFile(ctx context.Context, client *orrery.Client, name string, params orrery.DiffTemplateVersionsParams, f orrery.TemplateFileChange) (fileDifference, error) {
	d := fileDifference{TemplateFileChange: f}
	params.Path = f.Path
	lines, err := client.DiffTemplateVersions(ctx, name, &params)
	var refusal *orrery.Error
	switch {
	case err == nil:
		d.Unified = lines.Unified
	case errors.Is(err, orrery.ErrInvalid), errors.Is(err, orrery.ErrNotFound), errors.As(err, &refusal) && refusal.Status == http.StatusUnsupportedMediaType:
		// It is a directory or a link on one side, too large, or not text.
	default:
		return d, err
	}
	return d, nil
}

func printDifference(a *app.App, style output.Style, d fileDifference) {
	if d.Unified == "" {
		fmt.Fprintln(a.Out, output.Clean(fmt.Sprintf("%s %s: %d bytes, before %d", d.Change, d.Path, d.NewSize, d.OldSize)))
		return
	}
	for line := range strings.Lines(output.Clean(d.Unified)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			line = style.Bold(line)
		case strings.HasPrefix(line, "+"):
			line = style.Green(line)
		case strings.HasPrefix(line, "-"):
			line = style.Red(line)
		}
		fmt.Fprintln(a.Out, line)
	}
}
