package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// PushOptions say how Push makes a template the content of a directory.
type PushOptions struct {
	// Message describes the version.
	Message string
	// Exclude are patterns of files to leave out, as filetree.Local takes them.
	Exclude []string
	// DryRun shows what would change and changes nothing.
	DryRun bool
}

func templatePush(a *app.App) *cobra.Command {
	var o PushOptions
	cmd := command.New(a, command.Spec{
		Use:   "push NAME [DIRECTORY|ARCHIVE]",
		Short: "Make a template exactly the content of a directory, as one version",
		Long: `The default is the current directory. An archive is zip, tar, tar.gz or tar.zst. The template is created if it does
not exist. Files that the directory lacks are removed from the template. Only files that differ are uploaded, and nothing is
published before all of them are. Directories named .git are left out.

Instances get the version when they are started, restarted or replaced.`,
		Example: `orrery template push lobby ./lobby -m "raise the view distance"
orrery template push lobby lobby.zip
orrery template push lobby ./lobby --exclude '*.log' --dry-run`,
		Args:     command.Between(1, 2, "the name of a template, and a directory or archive"),
		Complete: command.CompleteFirst(a, "template", command.LocalFiles),
		Run: func(ctx context.Context, args []string) error {
			source := "."
			if len(args) > 1 {
				source = args[1]
			}
			return Push(ctx, a, o, args[0], source)
		},
	})
	flags := cmd.Flags()
	flags.StringVarP(&o.Message, "message", "m", "", "`text` that describes the version")
	flags.StringArrayVar(&o.Exclude, "exclude", nil, "leave out files whose name or path matches this `pattern`; repeat it for more")
	command.DryRunFlag(a, cmd, &o.DryRun)
	command.CompleteFlag(cmd, "message", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "exclude", cobra.NoFileCompletions)
	return cmd
}

// Push makes a template the content of a directory or an archive, as one version. It creates the template
// if it does not exist, and prints what it did.
func Push(ctx context.Context, a *app.App, o PushOptions, name, source string) error {
	if err := filetree.CheckPatterns(o.Exclude); err != nil {
		return err
	}
	root, remove, err := openSource(source)
	if err != nil {
		return err
	}
	defer remove()
	local, err := filetree.Local(root, o.Exclude)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	p := &push{a: a, client: client, name: name, root: root, local: local, options: o}
	head, err := client.GetTemplate(ctx, name)
	if errors.Is(err, orrery.ErrNotFound) {
		return p.create(ctx)
	}
	if err != nil {
		return err
	}
	p.head = head
	return p.update(ctx)
}

// openSource opens a directory, or a temporary one with the content of an archive. The caller calls
// remove.
func openSource(source string) (root *os.Root, remove func(), err error) {
	info, err := os.Stat(source)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, exit.With(exit.NotFound, fmt.Errorf("there is no directory or archive %s", source), "")
	}
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		root, err := filetree.OpenDirectory(source)
		return root, func() { root.Close() }, err
	}
	temporary, err := os.MkdirTemp("", "orrery-push-")
	if err != nil {
		return nil, nil, err
	}
	root, err = filetree.OpenDirectory(temporary)
	remove = func() { root.Close(); os.RemoveAll(temporary) }
	if err == nil {
		err = filetree.Unpack(source, root)
	}
	if err != nil {
		remove()
	}
	return root, remove, err
}

// push makes a template the content of a directory.
type push struct {
	a       *app.App
	client  *orrery.Client
	name    string
	root    *os.Root
	local   filetree.Tree
	options PushOptions

	// head is the template before the push.
	head *orrery.Template
	plan filetree.Plan
	// staged is how many edits are in the draft.
	staged int64
	bar    *progress.Transfer
}

// create imports the directory as a new template.
func (p *push) create(ctx context.Context) error {
	var err error
	if p.plan, err = filetree.Compare(p.root, p.local, filetree.Tree{}); err != nil {
		return err
	}
	p.startBar()
	form := p.form(p.plan.Write, 0)
	form.Fields = []orrery.FormField{{Name: "name", Value: p.name}}
	if p.options.DryRun {
		would, err := p.client.ImportTemplateDryRun(ctx, form)
		p.bar.End()
		if err != nil {
			return err
		}
		p.a.Notef("template %s would be created", p.name)
		return printChanges(p.a, changesOf(would.Files), "the directory has no files")
	}
	made, err := p.client.ImportTemplate(ctx, form)
	p.bar.End()
	if err != nil {
		return exit.Explain(err, "template "+p.name+" was not created")
	}
	if p.options.Message != "" {
		p.a.Notef("the first version of a template has no message of its own; yours is not stored")
	}
	return p.a.Say(made, p.name, "template %s created with %s (%s), version %s", p.name, output.Counted(made.Files, "file"), kinds.Size(made.SizeBytes), kinds.Version(made.Hash))
}

// update stages the differences in a draft and publishes it.
func (p *push) update(ctx context.Context) error {
	if err := p.refuseDraft(ctx); err != nil {
		return err
	}
	remote, err := remoteTree(ctx, p.client, p.name, p.head.Hash)
	if err != nil {
		return err
	}
	if _, there := p.local[filetree.DefinitionsFile]; there {
		delete(p.local, filetree.DefinitionsFile)
		p.a.Notef("%s is not a file of a template; orrery template variables set changes the variables", filetree.DefinitionsFile)
	}
	if p.plan, err = filetree.Compare(p.root, p.local, remote); err != nil {
		return err
	}
	switch {
	case p.options.DryRun:
		return p.show()
	case len(p.plan.Remove)+len(p.plan.Write) == 0:
		return p.a.Say(p.head, p.name, "template %s has this content already, version %s", p.name, kinds.Version(p.head.Hash))
	}
	p.startBar()
	draft, err := p.stage(ctx)
	p.bar.End()
	if err != nil {
		return p.discard(ctx, err)
	}
	return p.publish(ctx, draft)
}

// refuseDraft fails if the user has edits that are not published: the push would publish them too.
func (p *push) refuseDraft(ctx context.Context) error {
	draft, err := p.client.GetTemplateDraft(ctx, p.name)
	if errors.Is(err, orrery.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = fmt.Errorf("you have a draft of template %s with %d edits, which the push would publish too", p.name, draft.Edits)
	return exit.With(exit.Conflict, err, fmt.Sprintf("publish it or discard it first: orrery template draft publish %s, orrery template draft discard %s", p.name, p.name))
}

var changeColumns = []output.Column{
	{Header: "CHANGE", Path: "change"},
	{Header: "OLD SIZE", Path: "oldSize"},
	{Header: "NEW SIZE", Path: "newSize"},
	{Header: "PATH", Path: "path"},
}

// show prints what a push would do.
func (p *push) show() error {
	return printChanges(p.a, p.plan.Changes, "template "+p.name+" has this content already")
}

// printChanges prints differences. An empty list is the sentence none for people.
func printChanges(a *app.App, changes []filetree.Change, none string) error {
	rows, err := app.Rows(changes)
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if len(rows) == 0 && printer.Format.ForPeople() {
		a.Notef("%s", none)
		return nil
	}
	return printer.List(changeColumns, "path", rows)
}

func (p *push) startBar() {
	p.bar = progress.NewTransfer(p.a, "uploading", p.plan.Bytes)
	if !p.a.Interactive && len(p.plan.Write) > 0 {
		p.a.Notef("uploading %s (%s)", output.Counted(int64(p.plan.WriteFiles), "file"), kinds.Size(p.plan.Bytes))
	}
}

// stage puts the differences into a draft and returns it.
func (p *push) stage(ctx context.Context) (*orrery.TemplateDraft, error) {
	for _, gone := range p.plan.Remove {
		p.staged++
		if err := p.client.DeleteTemplateFile(ctx, p.name, &orrery.DeleteTemplateFileParams{Path: gone, Rehash: new(false)}); err != nil {
			return nil, err
		}
	}
	sent := int64(0)
	for _, batch := range p.batches() {
		p.staged++
		form, params := p.form(batch.paths, sent), &orrery.UploadTemplateFilesParams{Extract: true, Rehash: new(false)}
		if batch.large {
			form, params = p.largeForm(batch.paths[0], sent), &orrery.UploadTemplateFilesParams{Path: filetree.Dir(batch.paths[0]), Rehash: new(false)}
		}
		if _, err := p.client.UploadTemplateFiles(ctx, p.name, form, params); err != nil {
			return nil, err
		}
		sent += batch.bytes
	}
	draft, err := p.client.GetTemplateDraft(ctx, p.name)
	switch {
	case err != nil:
		return nil, err
	case draft.Base != p.head.Hash:
		return nil, exit.With(exit.Conflict, fmt.Errorf("template %s got another version meanwhile", p.name), "look at it, then push again: orrery template diff "+p.name)
	case draft.Edits != p.staged:
		p.staged = 0 // it is not only ours
		return nil, exit.With(exit.Conflict, fmt.Errorf("another program with your login edits template %s at the same time", p.name), "look at the draft: orrery template draft show "+p.name)
	}
	return draft, nil
}

// publish makes the draft a version.
func (p *push) publish(ctx context.Context, draft *orrery.TemplateDraft) error {
	body := &orrery.PublishTemplateDraftRequest{}
	if p.options.Message != "" {
		body.Message = &p.options.Message
	}
	done, err := p.client.PublishTemplateDraft(ctx, p.name, body, &orrery.PublishTemplateDraftParams{IfMatch: draft.ETag})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, orrery.ErrUnreachable) {
		return exit.Hint(err, fmt.Sprintf("all files were sent, but it is not known whether they were published: orrery template versions %s", p.name))
	}
	if err != nil {
		return p.discard(ctx, err)
	}
	if done.Hash != draft.Hash {
		p.a.Notef("other files of the template were published meanwhile; the new version has them too")
	}
	return p.a.Say(done, p.name, "template %s is at version %s: %s written (%s), %d removed",
		p.name, kinds.Version(done.Hash), output.Counted(int64(p.plan.WriteFiles), "file"), kinds.Size(p.plan.Bytes), p.plan.RemoveFiles)
}

// discardTimeout bounds the cleaning up after a failure or Ctrl-C.
const discardTimeout = 10 * time.Second

// discard removes the draft after a failure, and says what was done.
func (p *push) discard(ctx context.Context, cause error) error {
	if p.staged == 0 {
		return exit.Explain(cause, "nothing was published")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	err := p.client.DeleteTemplateDraft(ctx, p.name, nil)
	if err == nil || errors.Is(err, orrery.ErrNotFound) {
		return exit.Explain(cause, "nothing was published, and the uploaded files were discarded")
	}
	return exit.Explain(cause, "nothing was published; the uploaded files are still in your draft: orrery template draft discard "+p.name)
}

const (
	// maxBatch bounds the content of one upload. The server unpacks at most 512 MiB.
	maxBatch = 256 << 20
	// maxPacked is the largest file that an archive may hold.
	maxPacked = 128 << 20
	// maxBatchFiles bounds the entries of one upload. The server unpacks at most 50,000.
	maxBatchFiles = 20_000
)

// batch is one upload.
type batch struct {
	paths []string
	bytes int64
	// large says that the only file is too large for an archive.
	large bool
}

// batches splits what is written into uploads that the server takes.
func (p *push) batches() []batch {
	var all []batch
	var current batch
	for _, name := range p.plan.Write {
		size := p.local[name].Size
		if size > maxPacked {
			all = append(all, batch{paths: []string{name}, bytes: size, large: true})
			continue
		}
		if len(current.paths) == maxBatchFiles || current.bytes+size > maxBatch {
			all, current = append(all, current), batch{}
		}
		current.paths = append(current.paths, name)
		current.bytes += size
	}
	if len(current.paths) > 0 {
		all = append(all, current)
	}
	return all
}

// form returns a form with an archive of some files. sent is how many bytes were sent before it.
func (p *push) form(paths []string, sent int64) *orrery.Form {
	return &orrery.Form{Files: []orrery.FormFile{{
		Field: "file", Name: "content.tar",
		Open: func() (io.ReadCloser, error) {
			reader, writer := io.Pipe()
			// The writer ends with the archive, or when the reader is closed.
			go func() { writer.CloseWithError(filetree.Pack(writer, p.root, p.local, paths)) }()
			return p.bar.Reader(reader, sent), nil
		},
	}}}
}

// largeForm returns a form with one file.
func (p *push) largeForm(name string, sent int64) *orrery.Form {
	if mode := p.local[name].Mode; mode != 0o644 {
		p.a.Notef("%s is larger than %d MiB and keeps the mode that the template has, or gets 644", name, maxPacked>>20)
	}
	return &orrery.Form{Files: []orrery.FormFile{{
		Field: "file", Name: path.Base(name),
		Open: func() (io.ReadCloser, error) {
			f, err := p.root.Open(name)
			if err != nil {
				return nil, err
			}
			return p.bar.Reader(f, sent), nil
		},
	}}}
}
