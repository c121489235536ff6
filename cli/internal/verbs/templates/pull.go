package templates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/progress"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type pullOptions struct {
	version string
	force   bool
}

func templatePull(a *app.App) *cobra.Command {
	var o pullOptions
	cmd := command.New(a, command.Spec{
		Use:   "pull NAME [DIRECTORY]",
		Short: "Write the files of a template into a directory",
		Long: `The default directory has the name of the template. It must be empty or new, unless --force is given: then files of
the template replace those of the directory, and other files stay. The definitions of variables, if the template has any, are
in ` + filetree.DefinitionsFile + `.`,
		Example: `orrery template pull lobby
orrery template pull lobby ./old --version 7b1acdba6af048c2`,
		Args:     command.Between(1, 2, "the name of a template, and a directory"),
		Complete: command.CompleteFirst(a, "template", command.LocalFiles),
		Run: func(ctx context.Context, args []string) error {
			dir := ""
			if len(args) > 1 {
				dir = args[1]
			}
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error { return runPull(ctx, a, client, o, args[0], dir) })
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&o.version, "version", "", "`hash` of a version, or its first 16 digits; the default is the current one")
	flags.BoolVar(&o.force, "force", false, "also write into a directory that has files")
	command.CompleteFlag(cmd, "version", completeVersions(a))
	return cmd
}

func runPull(ctx context.Context, a *app.App, client *orrery.Client, o pullOptions, name, dir string) error {
	version := o.version
	if version == "" {
		head, err := client.GetTemplate(ctx, name)
		if err != nil {
			return err
		}
		version = head.Hash
	}
	if dir == "" {
		dir = path.Base(name)
	}
	if err := mayFill(dir, o.force); err != nil {
		return err
	}
	archive, err := client.ExportTemplate(ctx, name, &orrery.ExportTemplateParams{Format: "tar", Version: version})
	if err != nil {
		return err
	}
	defer archive.Body.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := filetree.OpenDirectory(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	bar := progress.NewTransfer(a, "downloading", 0)
	err = filetree.UnpackTar(bar.Reader(archive.Body, 0), root)
	bar.End()
	if errors.Is(err, filetree.ErrNotArchive) {
		err = nil // a template without files
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return exit.Hint(fmt.Errorf("template %s was not written completely: %w", name, err), "the files that "+dir+" has are complete, but others are missing: repeat the command with --force")
	}
	return a.Say(map[string]any{"id": name, "version": version, "directory": dir}, name, "template %s, version %s, is in %s", name, kinds.Version(version), dir)
}

// mayFill fails if the directory has files.
func mayFill(dir string, force bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) || err == nil && (len(entries) == 0 || force):
		return nil
	case err != nil:
		return err
	}
	return exit.With(exit.Conflict, fmt.Errorf("the directory %s has files", dir), "choose a new directory, or pass --force to replace files of the same name")
}
