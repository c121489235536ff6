package declaring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func edit(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "edit KIND NAME", Short: "Change an object in an editor",
		Long: `It opens the document of the object in the editor of VISUAL or EDITOR, and applies it when the editor ends. If the server
refuses it, or somebody else changed the object meanwhile, the editor opens again and says why.`,
		Example: `orrery edit group lobby
orrery edit node node-1`,
		Args:     command.Between(2, 2, "a kind and a name, for example group lobby"),
		Complete: command.CompleteKindThenNames(a, hasDocuments),
		Run:      func(ctx context.Context, args []string) error { return runEdit(ctx, a, args) },
	})
}

// editing is the state of an edit between two times that the editor is open.
type editing struct {
	app *app.App
	objects.Remote
	objects.Ref
	// base is the object that the text began with.
	base *objects.Object
	// comments are shown at the top, and text below them.
	comments []string
	text     []byte
	// failure is why the last text could not be applied.
	failure error
	// merged says that text has the changes of another writer too, and was not accepted yet.
	merged bool
}

func runEdit(ctx context.Context, a *app.App, args []string) error {
	kind, err := documentKind(args[0])
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	e := &editing{app: a, Remote: objects.Remote{Client: client}, Ref: objects.Ref{Kind: kind, Name: args[1]}}
	if e.base, err = e.Existing(ctx, e.Ref); err != nil {
		return err
	}
	if e.text, err = e.document(e.base.Writable(kind)).YAML(); err != nil {
		return err
	}
	for {
		again, err := e.round(ctx)
		if !again {
			return err
		}
	}
}

func (e *editing) document(values objects.Fields) *manifest.Document {
	return &manifest.Document{Kind: e.Kind.Document, Name: e.Name, Fields: values}
}

// header is at the top of what the editor shows.
const header = `# Change the fields, save, and leave the editor. A field that you remove gets its default.
# Without a change nothing happens. Lines that begin with # are left out.
`

// round opens the editor once and applies the text. It reports true if the editor must open again.
func (e *editing) round(ctx context.Context) (bool, error) {
	shown := append([]byte(header), e.commentLines()...)
	shown = append(shown, e.text...)
	edited, err := e.app.Edit(ctx, e.Kind.Name+"-"+e.Name+".yaml", shown)
	if err != nil {
		return false, editorHint(e.Kind, e.Name, err)
	}
	text := withoutComments(edited)
	same := bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(withoutComments(e.text)))
	if e.merged && !bytes.Equal(edited, shown) {
		same = false // the user took out the line that asks
	}
	switch {
	case same && e.failure != nil:
		return false, e.giveUp(e.failure)
	case same || len(bytes.TrimSpace(text)) == 0:
		return false, e.app.Say(e.base.Fields, e.Name, "%s not changed", e.Ref)
	}
	e.text, e.comments, e.failure, e.merged = text, nil, nil, false
	values, err := e.parse(text)
	if err != nil {
		return true, e.reopen(err)
	}
	return e.apply(ctx, values)
}

// editorHint adds how to change the object without a terminal.
func editorHint(kind *kinds.Kind, name string, err error) error {
	if exit.CodeOf(err) != exit.Usage {
		return err
	}
	return exit.Hint(err, fmt.Sprintf("without a terminal: orrery export %s %s > FILE, change it, orrery apply -f FILE", kind.Name, name))
}

// giveUp keeps the text of the user and returns the error.
func (e *editing) giveUp(err error) error {
	e.app.KeepText(e.Kind.Name+"-"+e.Name+".yaml", e.text)
	return err
}

// reopen notes an error to be shown in the editor.
func (e *editing) reopen(err error) error {
	e.failure = err
	e.comments = append([]string{"It was not applied:"}, strings.Split(err.Error(), "\n")...)
	return nil
}

func (e *editing) commentLines() []byte {
	if len(e.comments) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("#\n")
	for _, line := range e.comments {
		fmt.Fprintf(&b, "# %s\n", output.Clean(line))
	}
	b.WriteString("#\n")
	return b.Bytes()
}

// withoutComments returns text without the lines that begin with #, so that they do not pile up.
func withoutComments(text []byte) []byte {
	var out [][]byte
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("#")) {
			out = append(out, line)
		}
	}
	return bytes.Join(out, nil)
}

// parse returns the fields of the edited document.
func (e *editing) parse(text []byte) (objects.Fields, error) {
	documents, err := manifest.Parse(e.Kind.Name+"-"+e.Name+".yaml", text)
	switch {
	case err != nil:
		return nil, err
	case len(documents) != 1:
		return nil, fmt.Errorf("the text has %d documents; edit changes one", len(documents))
	case documents[0].Kind != e.Kind.Document || documents[0].Name != e.Name:
		return nil, fmt.Errorf("kind and name cannot be changed: the document is now %s", &documents[0])
	}
	return documents[0].Fields, nil
}

// apply writes the edited fields. It reports true if the editor must open again.
func (e *editing) apply(ctx context.Context, values objects.Fields) (bool, error) {
	before := e.base.Writable(e.Kind)
	patch := manifest.Merge(before, before, values).Patch
	if len(patch) == 0 {
		return false, e.app.Say(e.base.Fields, e.Name, "%s not changed", e.Ref)
	}
	answer, err := e.Update(ctx, e.Ref, e.base, patch)
	switch {
	case err == nil:
		return false, e.app.Say(answer.Fields, e.Name, "%s changed", e.Ref)
	case errors.Is(err, orrery.ErrPreconditionFailed):
		return e.rebase(ctx, patch)
	case errors.Is(err, orrery.ErrInvalid), errors.Is(err, orrery.ErrConflict):
		return true, e.reopen(err)
	}
	return false, e.giveUp(err)
}

// rebase puts the changes of the user onto the object as another writer left it, and shows both.
func (e *editing) rebase(ctx context.Context, patch objects.Fields) (bool, error) {
	live, err := e.Get(ctx, e.Ref)
	if err == nil && live == nil {
		err = exit.With(exit.NotFound, fmt.Errorf("somebody deleted %s %s meanwhile", e.Kind.Name, e.Name), "")
	}
	if err != nil {
		return false, e.giveUp(err)
	}
	before, now := e.base.Writable(e.Kind), live.Writable(e.Kind)
	mine := manifest.ApplyPatch(before, patch)
	yours := map[string]string{}
	for _, change := range objects.Changes(before, mine) {
		yours[change.Field] = output.Change("you", change.From, change.To)
	}
	e.comments = []string{"Somebody changed it meanwhile, and the text below has both changes. To apply it as it is, remove this line:"}
	for _, change := range objects.Changes(before, now) {
		line := "  " + output.Change(change.Field, change.From, change.To)
		if w := e.WriterOf(ctx, e.Ref, live, change.Field); w.By != "" {
			line += " by " + w.By
		}
		if own, both := yours[change.Field]; both {
			line += "; " + own + ", which is in the text"
		}
		e.comments = append(e.comments, line)
	}
	text, err := e.document(manifest.ApplyPatch(now, patch)).YAML()
	if err != nil {
		return false, e.giveUp(err)
	}
	e.base, e.text, e.merged = live, text, true
	e.failure = exit.With(exit.Conflict, fmt.Errorf("%s was not changed: somebody else changed it meanwhile", e.Ref), "edit it again: orrery edit "+e.Kind.Name+" "+e.Name)
	return true, nil
}
