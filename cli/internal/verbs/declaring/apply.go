package declaring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// applyOptions are the flags of apply.
type applyOptions struct {
	files []string
	// compareOnly lists conflicts and does not fail because of them.
	compareOnly                     bool
	dryRun, force, wait, prune, yes bool
	labels                          string
	// selector is what labels says.
	selector command.Selector
	// coming are the names of what the command makes before it applies the documents, and does not
	// make in a dry run.
	coming []string
}

func apply(a *app.App) *cobra.Command {
	var o applyOptions
	cmd := command.New(a, command.Spec{
		Use:   "apply -f FILE...",
		Short: "Make objects as documents declare them",
		Long: `A document is an object of the API with its kind and its name, as YAML or JSON: kind: Group, name: lobby, minInstances: 2.
A file may have several. A directory is read with everything below it; - is standard input.

Each object is compared three ways: what was applied last, what it is now, and what the document says. A field of the
document is set. A field that left the document gets its default. Fields that only others set stay. If another writer
changed a field of the document since it was applied, that is a conflict, and the object stays as it is: put the value into
the document, or overwrite it with --force. Secrets that no read shows, such as the credentials of a source, are set each
time, and stay when they leave the document.

A document of a node sets its labels and its room. It must have joined. The server does not store what was applied to nodes:
fields that leave the document stay, and there are no conflicts.

--prune deletes objects that were applied and are in no document any more, of the kinds that the documents have.`,
		Example: `orrery apply -f group.yaml
orrery apply -f group.yaml --dry-run
orrery apply -f group.yaml --prune --yes`,
		Args: cobra.ArbitraryArgs, Complete: completeDocuments,
		Run: func(ctx context.Context, args []string) error {
			o.files = append(o.files, args...)
			return runApply(ctx, a, o)
		},
	})
	fileFlag(cmd, &o.files)
	flags := cmd.Flags()
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.force, "force", false, "overwrite what other writers changed")
	flags.BoolVar(&o.wait, "wait", false, "wait until the groups have their instances running")
	flags.BoolVar(&o.prune, "prune", false, "delete objects that were applied and are in no document any more")
	flags.StringVarP(&o.labels, "selector", "l", "", "with --prune, delete only groups with these `labels`, for example team=duels,!keep")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask before --prune deletes")
	command.CompleteFlag(cmd, "selector", cobra.NoFileCompletions)
	return cmd
}

// fileFlag declares -f.
func fileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "`file` or directory with documents; - is standard input")
	command.CompleteFlag(cmd, "file", completeDocuments)
}

func completeDocuments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// readDocuments returns the documents of -f in the order in which they must be applied.
func readDocuments(a *app.App, files []string) ([]*manifest.Document, error) {
	if len(files) == 0 {
		return nil, command.UsageError("pass -f FILE; - is standard input", "no documents were given")
	}
	documents, err := manifest.Read(files, a.In)
	if err != nil {
		return nil, exit.With(exit.Failed, err, "")
	}
	for i := range documents {
		if d := &documents[i]; len(d.Ignored) > 0 {
			a.Notef("%s: %s: ignored, because it cannot be set: %s", d.Start(), d, strings.Join(d.Ignored, ", "))
		}
	}
	return manifest.Ordered(documents), nil
}

func runApply(ctx context.Context, a *app.App, o applyOptions) error {
	if !o.prune && o.labels != "" {
		return command.UsageError("add --prune", "--selector chooses what --prune deletes")
	}
	var err error
	if o.selector, err = command.ParseSelector(o.labels); err != nil {
		return err
	}
	documents, err := readDocuments(a, o.files)
	if err != nil {
		return err
	}
	return applyDocuments(ctx, a, o, documents)
}

// Options say how Apply applies documents.
type Options struct {
	// DryRun shows what would happen and changes nothing.
	DryRun bool
	// Force overwrites what other writers changed.
	Force bool
	// Coming are the names of objects that the caller makes before, and does not make in a dry run.
	Coming []string
}

// Apply applies documents in their order and prints what happened to each.
func Apply(ctx context.Context, a *app.App, o Options, documents []*manifest.Document) error {
	return applyDocuments(ctx, a, applyOptions{dryRun: o.DryRun, force: o.Force, coming: o.Coming}, documents)
}

// applyDocuments applies documents in their order.
func applyDocuments(ctx context.Context, a *app.App, o applyOptions, documents []*manifest.Document) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	run := &applier{app: a, Remote: objects.Remote{Client: client, DryRun: o.dryRun}, applyOptions: o, printer: printer, documents: documents}
	run.step = run.attempt
	var stale []*result
	if o.prune {
		if stale, err = run.confirmPrune(ctx); err != nil {
			return err
		}
	}
	err = run.all(ctx)
	if len(stale) > 0 && !o.dryRun {
		err = run.deleteAll(ctx, stale, err)
	}
	if o.dryRun {
		run.results = append(run.results, stale...)
	}
	if !printer.Format.ForPeople() {
		if printErr := printResults(printer, run.results); printErr != nil {
			return printErr
		}
	}
	if err == nil && o.wait && !o.dryRun {
		err = run.waitForGroups(ctx)
	}
	return err
}

// applier applies documents.
type applier struct {
	app *app.App
	objects.Remote
	applyOptions
	printer   output.Printer
	documents []*manifest.Document
	results   []*result
	failures  command.Failures
	// step reads, merges and writes the object of a document once.
	step func(ctx context.Context, d *manifest.Document, res *result) error
}

// all applies each document. One failure does not stop the rest.
func (r *applier) all(ctx context.Context) error {
	for i, d := range r.documents {
		if ctx.Err() != nil {
			return r.interrupted(ctx, i)
		}
		res := r.one(ctx, d)
		r.results = append(r.results, res)
		if err := r.report(ctx, d, res); err != nil {
			return err
		}
		if rest := len(r.documents) - i - 1; rest > 0 && isHopeless(res.err) {
			r.app.Notef("the other %d documents were not tried", rest)
			break
		}
	}
	if ctx.Err() != nil {
		return r.interrupted(ctx, len(r.documents))
	}
	return r.failures.Err()
}

// isHopeless reports whether the next request will fail like this one.
func isHopeless(err error) bool {
	return errors.Is(err, orrery.ErrUnreachable) || errors.Is(err, orrery.ErrUnauthenticated)
}

// interrupted returns the error of a context that ended, with what was applied before and what was not.
func (r *applier) interrupted(ctx context.Context, next int) error {
	names := map[string][]string{}
	for _, res := range r.results {
		names[res.Action] = append(names[res.Action], res.String())
	}
	for _, d := range r.documents[next:] {
		names["rest"] = append(names["rest"], d.String())
	}
	var parts []string
	for _, part := range []struct{ action, text string }{
		{created, "created"},
		{configured, "configured"},
		{unchanged, "unchanged"},
		{conflicted, "in conflict"},
		{failed, "failed"},
		{uncertain, "applied or not, which is unknown"},
		{"rest", "not applied"},
	} {
		if list := names[part.action]; len(list) > 0 {
			parts = append(parts, part.text+": "+strings.Join(list, ", "))
		}
	}
	return exit.Hint(ctx.Err(), strings.Join(parts, "; ")+"; apply again to finish")
}

// report prints the result of one object.
func (r *applier) report(ctx context.Context, d *manifest.Document, res *result) error {
	err := res.err
	if err != nil {
		res.Error = err.Error()
	}
	if r.printer.Format.ForPeople() {
		if printErr := r.printOne(res); printErr != nil {
			return printErr
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil // interrupted tells it
	}
	r.failures.Add(r.app, prefixOf(d)+res.String(), err)
	return nil
}

// prefixOf returns the position of a document with a colon.
func prefixOf(d *manifest.Document) string {
	if start := d.Start(); start.File != "" {
		return start.String() + ": "
	}
	return ""
}

func (r *applier) printOne(res *result) error {
	if r.dryRun && res.err == nil && res.Action != unchanged {
		return describe(r.app, res)
	}
	return r.app.Linef("%s %s", res, res.Action)
}

// maxAttempts is how often an object is read, merged and written if others change it meanwhile, or if the
// gateway dies that was asked to write it.
const maxAttempts = 2

// one applies one document.
func (r *applier) one(ctx context.Context, d *manifest.Document) *result {
	res := &result{Kind: d.Object().Name, Name: d.Name, File: d.Start().String()}
	var lost string // the action of a write that may have succeeded
	for attempt := 1; ; attempt++ {
		err := r.step(ctx, d, res)
		switch {
		case err == nil:
			if res.written = false; lost != "" && res.Action == unchanged {
				res.Action = lost
			}
			return res
		case isStale(err) && attempt < maxAttempts:
			continue
		case (errors.Is(err, orrery.ErrUnreachable) || errors.Is(err, orrery.ErrAnswerLost)) && res.Action != "" && attempt < maxAttempts:
			// The next gateway is asked. What the write did is read first, so it is not done twice.
			if res.Action != unchanged {
				lost = res.Action
			}
			res.Action = ""
			continue
		}
		res.err = locate(d, err)
		if r.compareOnly && errors.Is(err, orrery.ErrDenied) {
			res.err = exit.Hint(res.err, "diff asks the server for a dry run of the change, and the server allows that to users who may make it")
		}
		switch {
		case res.written:
		case ctx.Err() != nil:
			res.Action = uncertain
		case len(res.Conflicts) > 0:
			res.Action = conflicted
		default:
			res.Action = failed
		}
		return res
	}
}

// takenError is the refusal of a creation that may be due to an object that was created meanwhile.
type takenError struct{ error }

// Unwrap returns the refusal.
func (e takenError) Unwrap() error { return e.error }

// isStale reports whether a write failed because others changed the object since it was read.
func isStale(err error) bool {
	var taken takenError
	return errors.Is(err, orrery.ErrPreconditionFailed) || errors.As(err, &taken)
}

// attempt reads, merges and writes the object once.
func (r *applier) attempt(ctx context.Context, d *manifest.Document, res *result) error {
	live, err := r.Get(ctx, ref(d))
	if err != nil {
		return err
	}
	if live == nil {
		return r.createOne(ctx, d, res)
	}
	last, err := r.Applied(ctx, ref(d))
	if err != nil {
		return err
	}
	merged := manifest.Merge(last, live.Fields, d.Fields)
	for _, left := range merged.Left {
		res.Notes = append(res.Notes, left+" left the document, but stays: another writer changed it")
	}
	if len(merged.Conflicts) > 0 && !r.force {
		return r.conflict(ctx, live, merged.Conflicts, res)
	}
	if len(merged.Patch) == 0 {
		res.Action = unchanged
		return r.record(ctx, d, state{live, last}, res)
	}
	answer, err := r.Update(ctx, ref(d), live, merged.Patch)
	res.Action = configured
	if err != nil {
		return r.orLater(err, res)
	}
	if r.dryRun {
		res.effects(d.Object(), live, answer)
		return nil
	}
	res.Changes = objects.Changes(live.Writable(d.Object()), answer.Writable(d.Object()))
	if answer.ETag != "" && answer.ETag == live.ETag {
		res.Action = unchanged
	}
	return r.record(ctx, d, state{answer, last}, res)
}

// createOne creates the object of a document.
func (r *applier) createOne(ctx context.Context, d *manifest.Document, res *result) error {
	answer, err := r.Create(ctx, ref(d), d.Fields)
	if errors.Is(err, orrery.ErrConflict) {
		return takenError{err}
	}
	res.Action = created
	if err != nil {
		return r.orLater(err, res)
	}
	if r.dryRun {
		res.effects(d.Object(), &objects.Object{}, answer)
		return nil
	}
	res.Changes = objects.Changes(nil, d.Fields)
	return r.record(ctx, d, state{live: answer}, res)
}

// orLater returns nil for the refusal of a dry run that is about an object that this run would
// create, which the server does not know. Other errors stay as they are.
func (r *applier) orLater(err error, res *result) error {
	if !r.dryRun || !r.comes(err.Error()) {
		return err
	}
	res.Notes = append(res.Notes, "the server cannot check it before the others exist: "+err.Error())
	return nil
}

// comes reports whether a message is about an object that this run would create.
func (r *applier) comes(message string) bool {
	words := strings.FieldsFunc(message, func(c rune) bool { return strings.ContainsRune(" \n\"';:,()", c) })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(r.coming, word) || slices.ContainsFunc(r.results, func(earlier *result) bool {
			return earlier.Action == created && earlier.Name == word
		})
	})
}

// ref names the object of a document.
func ref(d *manifest.Document) objects.Ref { return objects.Ref{Kind: d.Object(), Name: d.Name} }

// state is an object and what was applied for it last; nil if nothing was.
type state struct {
	live    *objects.Object
	applied objects.Fields
}

// record stores what was applied: the values as the server stores them, so that the next merge does
// not take its spelling for a change.
func (r *applier) record(ctx context.Context, d *manifest.Document, now state, res *result) error {
	document := manifest.Project(now.live.Fields, d.Fields)
	if r.dryRun || now.applied != nil && manifest.Equal(now.applied, document) {
		return nil
	}
	if err := r.Remember(ctx, ref(d), document); err != nil {
		res.written = true
		return exit.Hint(fmt.Errorf("it is %s, but the server did not store what was applied: %w", res.Action, err), "apply again; until then fields that leave the document stay")
	}
	return nil
}

// conflict returns the error of conflicts, and notes who made them.
func (r *applier) conflict(ctx context.Context, live *objects.Object, conflicts []manifest.Conflict, res *result) error {
	res.Conflicts = nil
	var texts []string
	for _, c := range conflicts {
		found := conflict{c, r.WriterOf(ctx, objects.Ref{Kind: kinds.Get(res.Kind), Name: res.Name}, live, c.Field)}
		res.Conflicts = append(res.Conflicts, found)
		texts = append(texts, found.String())
	}
	if r.compareOnly {
		res.Action = conflicted
		return nil
	}
	err := errors.New("another writer changed what the document sets:\n  " + strings.Join(texts, "\n  "))
	return exit.With(exit.Conflict, err, "put the value into the document, or overwrite it: orrery apply --force")
}

// locate adds positions to a refusal that names fields of the document.
func locate(d *manifest.Document, err error) error {
	var refusal *orrery.Error
	if !errors.As(err, &refusal) || !errors.Is(err, orrery.ErrInvalid) {
		return err
	}
	var lines []string
	for _, part := range strings.Split(refusal.Message, "; ") {
		field, _, _ := strings.Cut(part, " ")
		if position, ok := d.Find(strings.TrimSuffix(field, ":")); ok {
			part = position.String() + ": " + part
		}
		lines = append(lines, part)
	}
	located := *refusal
	located.Message = strings.Join(lines, "\n  ")
	return exit.Hint(&located, exit.HintOf(err))
}

// effects takes over what the answer to a dry run says. Some kinds answer with the object as it would
// be, others with a list of changes.
func (res *result) effects(kind *kinds.Kind, live, answer *objects.Object) {
	if answer == nil {
		return
	}
	if _, ok := answer.Fields["diff"].([]any); !ok {
		after := answer
		if inner, ok := answer.Fields[kind.Name].(objects.Fields); ok {
			after = &objects.Object{Fields: inner}
		}
		res.Changes = objects.Changes(live.Writable(kind), after.Writable(kind))
		if res.Action == created {
			res.Changes = slices.DeleteFunc(res.Changes, isEmpty)
		}
	} else {
		res.dryRun(answer)
	}
	if len(res.Changes) == 0 && res.Action == configured {
		res.Action = unchanged
	}
}

// isEmpty reports whether a field of a new object has no value.
func isEmpty(c orrery.FieldChange) bool {
	return slices.Contains([]string{`""`, "0", "false", "[]", "{}", "null"}, string(c.To))
}

// dryRun takes over a list of changes and their effects.
func (res *result) dryRun(answer *objects.Object) {
	var dry orrery.GroupDryRun // it has the fields of the dry runs of all kinds
	if err := json.Unmarshal(objects.Encode(answer.Fields), &dry); err != nil {
		res.Notes = append(res.Notes, "the server's answer to the dry run was not understood: "+err.Error())
		return
	}
	res.Changes = objects.Flattened(dry.Diff)
	res.Start, res.Stop, res.Placements = dry.Start, dry.Stop, dry.Placements
	res.Notes = append(res.Notes, dry.Notes...)
	if dry.Message != "" {
		res.Notes = append(res.Notes, dry.Message)
	}
}

// waitForGroups waits until the groups that were applied run.
func (r *applier) waitForGroups(ctx context.Context) error {
	var targets []progress.Target
	for _, res := range r.results {
		if res.Kind == "group" && res.Action != deleted {
			targets = append(targets, progress.Target{Kind: kinds.Get("group"), Name: res.Name, Until: progress.GroupReady()})
		}
	}
	if len(targets) == 0 {
		return nil
	}
	outcomes, err := progress.All(ctx, r.app, r.Client, progress.Options{Targets: targets, Goal: "ready", Afterwards: "everything was applied, and the instances continue to start"})
	if err != nil {
		return err
	}
	var failures command.Failures
	for _, outcome := range outcomes {
		failures.Add(r.app, outcome.Target.String(), outcome.Err)
	}
	return failures.Err()
}
