package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Selection says on which objects a verb acts: names in the arguments, or flags.
type Selection struct {
	// Names are those of the arguments. Take sets them.
	Names []string
	// Labels is an expression over labels.
	Labels string
	Groups []string
	Node   string
	All    bool
	// Yes skips the question.
	Yes bool
	// DryRun shows what would happen and changes nothing.
	DryRun bool
	// Parallel is on how many objects the server acts at once; 0 is its default.
	Parallel int
}

// InstanceFlags declares the flags that select instances.
func (s *Selection) InstanceFlags(a *app.App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&s.Labels, "selector", "l", "", "instances of groups with these `labels`, for example mode=duels,region!=us or 'mode in (duels, skywars)'")
	flags.StringSliceVar(&s.Groups, "group", nil, "instances of this `group`; several are separated by commas")
	flags.StringVar(&s.Node, "node", "", "instances on this `node`")
	s.commonFlags(a, cmd, "instances")
	s.ParallelFlag(cmd, "instances")
	CompleteFlag(cmd, "group", CompleteNames(a, "group"))
	CompleteFlag(cmd, "node", CompleteNames(a, "node"))
}

// NodeFlags declares the flags that select nodes.
func (s *Selection) NodeFlags(a *app.App, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.Labels, "selector", "l", "", "nodes with these `labels`, for example zone=a,!gpu or 'zone in (a, b)'")
	s.commonFlags(a, cmd, "nodes")
}

func (s *Selection) commonFlags(a *app.App, cmd *cobra.Command, plural string) {
	flags := cmd.Flags()
	flags.BoolVar(&s.All, "all", false, "all "+plural)
	flags.BoolVarP(&s.Yes, "yes", "y", false, "do not ask")
	DryRunFlag(a, cmd, &s.DryRun)
	CompleteFlag(cmd, "selector", cobra.NoFileCompletions)
}

// ParallelFlag declares --parallel, for verbs whose request names many objects.
func (s *Selection) ParallelFlag(cmd *cobra.Command, plural string) {
	Number(cmd.Flags(), &s.Parallel, "parallel", 0, "act on this `number` of "+plural+" at once; 0 is the default of the server")
	CompleteFlag(cmd, "parallel", cobra.NoFileCompletions)
}

// ByFlags reports whether flags select the objects. Then the verb asks before it acts.
func (s *Selection) ByFlags() bool {
	return s.All || s.Labels != "" || len(s.Groups) > 0 || s.Node != ""
}

// maxParallel is how many objects the server acts on at once at most.
const maxParallel = 64

// Take sets the names and checks that names and flags fit together.
func (s *Selection) Take(kind *kinds.Kind, names []string) error {
	s.Names = names
	flags := s.flagsInUse()
	switch {
	case len(names) > 0 && s.ByFlags():
		return UsageError("leave out one of them", "names and %s cannot be combined", flags[0])
	case s.All && len(flags) > 1:
		return UsageError("leave out one of them", "--all and %s cannot be combined", flags[0])
	case len(names) == 0 && !s.ByFlags():
		return UsageError("orrery get "+kind.Plural+" lists the names", "the command needs names of %s, or flags that select them", kind.Plural)
	case s.Parallel < 0 || s.Parallel > maxParallel:
		return UsageError("", "--parallel must be a number from 1 to %d, not %d", maxParallel, s.Parallel)
	}
	for _, name := range append(append([]string{}, names...), s.Groups...) {
		if name == "" {
			return UsageError("", "a name is empty")
		}
	}
	return nil
}

// flagsInUse returns the flags that select, with --all at the end.
func (s *Selection) flagsInUse() []string {
	var flags []string
	for _, f := range []struct {
		name string
		used bool
	}{{"--selector", s.Labels != ""}, {"--group", len(s.Groups) > 0}, {"--node", s.Node != ""}, {"--all", s.All}} {
		if f.used {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// Instances returns the request that acts on the selected instances.
func (s *Selection) Instances(action string) *orrery.BulkInstancesRequest {
	request := &orrery.BulkInstancesRequest{Action: action, IDs: s.Names, Groups: s.Groups, Labels: given(s.Labels), Node: given(s.Node)}
	if s.All {
		request.All = &s.All
	}
	return request
}

// Nodes returns the request that acts on the selected nodes.
func (s *Selection) Nodes(action string) *orrery.BulkNodesRequest {
	request := &orrery.BulkNodesRequest{Action: action, IDs: s.Names, Labels: given(s.Labels)}
	if s.All {
		request.All = &s.All
	}
	return request
}

func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// shownNames is how many names FirstNames shows.
const shownNames = 3

// Describe returns the number of objects, how they were selected, and the first names:
// "12 instances of group lobby (lobby-1, lobby-2, lobby-3, …)".
func (s *Selection) Describe(kind *kinds.Kind, names []string) string {
	text := fmt.Sprintf("%d %s", len(names), kind.Plural)
	if len(names) == 1 {
		text = "1 " + kind.Name
	}
	if s.All && len(names) > 1 {
		text = "all " + text
	}
	if len(s.Groups) > 0 {
		text += " of group " + strings.Join(s.Groups, ", ")
	}
	if s.Node != "" {
		text += " on node " + s.Node
	}
	if s.Labels != "" {
		text += " with labels " + s.Labels
	}
	return text + " (" + FirstNames(names) + ")"
}

// FirstNames returns the first few names: "lobby-1, lobby-2, lobby-3, …".
func FirstNames(names []string) string {
	different := slices.Compact(slices.Clone(names)) // records of one instance that ended share its name
	shown := strings.Join(different[:min(len(different), shownNames)], ", ")
	if len(different) > shownNames {
		shown += ", …"
	}
	return shown
}

// Confirm asks whether to act on the objects of those names, unless --yes was given or names selected them.
func (s *Selection) Confirm(a *app.App, verb string, kind *kinds.Kind, names []string) error {
	if s.Yes || !s.ByFlags() {
		return nil
	}
	return a.Confirm(verb+" "+s.Describe(kind, names)+"?", "--yes")
}

// Failures collects the failures of a command that acts on several objects.
type Failures struct {
	total, failed int
	code          int
}

// Add notes how acting on an object ended, and prints the failure if err is not nil.
func (f *Failures) Add(a *app.App, name string, err error) {
	f.total++
	if err == nil {
		return
	}
	code := exit.CodeOf(err)
	if f.failed > 0 && code != f.code {
		code = exit.Failed
	}
	f.failed, f.code = f.failed+1, code
	a.Notef("%s: %v", name, err)
	if hint := a.HintOf(err); hint != "" {
		a.Notef("  %s", hint)
	}
}

// Err returns the error of the command: nil without failures. Its code is that of the failures if they all have the
// same one.
func (f *Failures) Err() error {
	if f.failed == 0 {
		return nil
	}
	return exit.With(f.code, fmt.Errorf("%w: %d of %d", ErrSomeFailed, f.failed, f.total), "")
}

// BulkError returns the failure of one object in the answer to a request about several; nil if ok.
func BulkError(ok bool, detail *orrery.ErrorDetail, message string) error {
	switch {
	case ok:
		return nil
	case detail == nil:
		return errors.New(message)
	}
	return &orrery.Error{Status: int(detail.Status), Code: detail.Code, Message: strings.TrimSuffix(detail.Message, ".")}
}

// Missing turns the refusal of a request for selected objects into one that names what does not exist. Other errors stay
// as they are.
func (s *Selection) Missing(ctx context.Context, client *orrery.Client, err error) error {
	var refusal *orrery.Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusUnprocessableEntity {
		return err
	}
	for _, group := range s.Groups {
		if missing := app.Missing(ctx, client, kinds.Get("group"), group); missing != nil {
			return missing
		}
	}
	if s.Node == "" {
		return err
	}
	if missing := app.Missing(ctx, client, kinds.Get("node"), s.Node); missing != nil {
		return missing
	}
	return err
}
