// Package importing has the commands that take over groups and templates from other systems.
package importing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/importer"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/verbs/declaring"
	push "github.com/orreryhq/orrery/cli/internal/verbs/templates"
	"github.com/spf13/cobra"
)

// importOptions are the flags of import.
type importOptions struct {
	out                string
	dryRun, yes, force bool
}

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{importCommand(a)} }

func importCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "import", Short: "Take over groups and templates from another system",
		Long: `Each system has a command. It reads files and running programs of this machine and changes nothing there. It lists what has no
counterpart in Orrery and what to do about it. Imported groups are in maintenance, so that nothing starts by itself.`,
		Example: `orrery import cloudnet /opt/cloudnet --out ./fleet
orrery import screen lobby --dry-run`,
	})
	for _, system := range importer.Systems() {
		cmd.AddCommand(importFrom(a, system))
	}
	return cmd
}

// importArguments has an argument for the example of each system.
var importArguments = map[string]string{
	"cloudnet": "/opt/cloudnet", "prexorcloud": "export", "pterodactyl": "export", "screen": "lobby", "systemd": "minecraft.service", "universe": "/opt/universe",
}

func importFrom(a *app.App, system importer.System) *cobra.Command {
	var o importOptions
	cmd := command.New(a, command.Spec{
		Use: system.Name + " PATH|NAME", Short: "Import " + system.Summary,
		Long: "It takes " + system.Argument + `.

Without --out it uploads the templates and applies the documents. It asks before, and may be repeated.`,
		Example: strings.ReplaceAll("orrery import NAME --dry-run\norrery import NAME --out ./fleet", "NAME", system.Name+" "+importArguments[system.Name]),
		Args:    command.Between(1, 1, system.Argument), Complete: command.LocalFiles,
		Run: func(ctx context.Context, args []string) error { return runImport(ctx, a, system, args[0], o) },
	})
	flags := cmd.Flags()
	flags.StringVar(&o.out, "out", "", "write the documents and templates into this `directory`, to review them, and apply nothing")
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.force, "force", false, "overwrite what other writers changed since an earlier import")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	return cmd
}

func runImport(ctx context.Context, a *app.App, system importer.System, argument string, o importOptions) error {
	found, err := system.Import(argument)
	if err != nil {
		return err
	}
	if len(found.Documents) == 0 && len(found.Templates) == 0 {
		report(a, found)
		return exit.With(exit.NotFound, fmt.Errorf("nothing to import was found in %s", argument), "import "+system.Name+" takes "+system.Argument)
	}
	report(a, found)
	if o.out != "" {
		return writeImport(a, found, o.out)
	}
	if !o.yes && !o.dryRun {
		question := fmt.Sprintf("upload %d templates and apply %d documents?", len(found.Templates), len(found.Documents))
		if err := a.Confirm(question, "--yes"); err != nil {
			return err
		}
	}
	if err := uploadAll(ctx, a, found.Templates, o.dryRun); err != nil {
		return err
	}
	documents := make([]*manifest.Document, len(found.Documents))
	for i := range found.Documents {
		documents[i] = &found.Documents[i]
	}
	var coming []string
	for _, t := range found.Templates {
		group, _, _ := strings.Cut(t.Name, "/") // a group may name all templates of a template group
		coming = append(coming, t.Name, group)
	}
	return declaring.Apply(ctx, a, declaring.Options{DryRun: o.dryRun, Force: o.force, Coming: coming}, documents)
}

// report prints what was found and what did not map to standard error.
func report(a *app.App, found *importer.Result) {
	for i := range found.Documents {
		a.Notef("found %s", &found.Documents[i])
	}
	for _, t := range found.Templates {
		a.Notef("found template %s in %s", t.Name, t.Dir)
	}
	for _, s := range found.Static {
		a.Notef("found data of instance %s of group %s in %s: copy it to static/%s/%s in the data directory of its node", s.Instance, s.Group, s.Dir, s.Group, s.Instance)
	}
	for _, n := range found.Notes {
		place := n.Object
		if n.Field != "" {
			place += ", " + n.Field
		}
		if n.Value != "" {
			place += " = " + n.Value
		}
		a.Notef("note: %s: %s", place, n.Text)
	}
}

// writeImport writes documents and copies templates into a directory.
func writeImport(a *app.App, found *importer.Result, dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return exit.Hint(fmt.Errorf("%s is not empty, and import overwrites nothing", dir), "choose another directory")
	}
	documents, templates := filepath.Join(dir, "documents"), filepath.Join(dir, "templates")
	for i := range found.Documents {
		d := &found.Documents[i]
		text, err := d.YAML()
		if err != nil {
			return err
		}
		path := filepath.Join(documents, d.Object().Name+"-"+fileName(d.Name)+".yaml")
		if err := os.MkdirAll(documents, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil { // it may have passwords
			return err
		}
	}
	var next []string
	for _, t := range found.Templates {
		to := filepath.Join(templates, filepath.FromSlash(t.Name))
		if err := copyTemplate(t, to); err != nil {
			return fmt.Errorf("template %s: %w", t.Name, err)
		}
		next = append(next, fmt.Sprintf("  orrery template push %s %s", t.Name, to))
	}
	if len(found.Documents) > 0 {
		next = append(next, "  orrery apply -f "+documents)
	}
	answer := map[string]any{"id": dir, "documents": len(found.Documents), "templates": len(found.Templates)}
	return a.Say(answer, dir, "%d documents and %d templates written to %s. Look through them, then:\n%s",
		len(found.Documents), len(found.Templates), dir, strings.Join(next, "\n"))
}

// fileName returns a name without characters that lead out of a directory.
func fileName(name string) string { return strings.NewReplacer("/", "_", `\`, "_").Replace(name) }

// walkTemplate calls each with the directories and the regular files of a template that are not
// excluded. path is relative, with slashes.
func walkTemplate(t importer.Template, each func(path string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(t.Dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(t.Dir, full)
		if err != nil || path == "." {
			return err
		}
		path = filepath.ToSlash(path)
		excluded := slices.Contains(t.Exclude, path) || slices.Contains(t.Exclude, full)
		switch {
		case excluded && entry.IsDir():
			return fs.SkipDir
		case excluded || !entry.IsDir() && !entry.Type().IsRegular():
			return nil
		}
		return each(path, entry)
	})
}

func copyTemplate(t importer.Template, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return walkTemplate(t, func(path string, entry fs.DirEntry) error {
		target := filepath.Join(to, filepath.FromSlash(path))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		from, err := os.Open(filepath.Join(t.Dir, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		defer from.Close()
		file, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(file, from)
		return errors.Join(err, file.Close())
	})
}

// uploadAll makes the templates what their directories contain. It stops at the first failure, because
// groups need them.
func uploadAll(ctx context.Context, a *app.App, templates []importer.Template, dryRun bool) error {
	notes := *a // what a push prints is no result of the import
	notes.Out, notes.Flags.Output = a.Err, ""
	for i, t := range templates {
		o := push.PushOptions{Exclude: patterns(t.Exclude), DryRun: dryRun}
		if err := push.Push(ctx, &notes, o, t.Name, t.Dir); err != nil {
			return exit.Explain(fmt.Errorf("template %s: %w", t.Name, err),
				fmt.Sprintf("%d of %d templates were uploaded, and no document was applied; import again to finish", i, len(templates)))
		}
	}
	return nil
}

// patterns returns patterns that match exactly these paths.
func patterns(paths []string) []string {
	var out []string
	for _, path := range paths {
		out = append(out, "/"+strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path))
	}
	return out
}
