// Package progress follows objects until something is true of them, and shows meanwhile how far they are.
package progress

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// Target is an object to follow.
type Target struct {
	Kind *kinds.Kind
	// Group is the group of the object, for kinds that belong to one.
	Group string
	Name  string
	// ID is read instead of Name if it is not empty. Use the uid of an instance if another instance that gets
	// its name does not count.
	ID string
	// Until says when to stop following.
	Until Condition
	// Related reports whether another event is a reason to read the object again. It may be nil.
	Related func(event orrery.Event) bool
}

// String returns the kind and the name.
func (t Target) String() string {
	switch {
	case t.Kind.Singleton:
		return t.Kind.Name
	case t.Kind.InGroup():
		return t.Kind.Name + " " + t.Name + " of group " + t.Group
	}
	return t.Kind.Name + " " + t.Name
}

// Condition judges an object. row is nil if the object does not exist.
type Condition func(ctx context.Context, row output.Row) Step

// Step is what a Condition says about an object.
type Step struct {
	// Done ends the wait with success.
	Done bool
	// Err ends the wait, because the condition can no longer become true.
	Err error
	// Text says how far the object is, for example "STARTING: it waits for its port".
	Text string
}

func (s Step) final() bool { return s.Done || s.Err != nil }

// Options say what to follow.
type Options struct {
	Targets []Target
	// Goal names what is waited for, for example "running".
	Goal string
	// Afterwards says what happens after the wait was given up, for example "the restart continues". It is empty if
	// nothing does.
	Afterwards string
	// Refresh is how often an object is read again only to show figures that have no events; 0 is never.
	Refresh time.Duration
}

// Outcome is how following an object ended.
type Outcome struct {
	Target Target
	// Row is the object as it was last read; nil if it does not exist.
	Row output.Row
	// Err says why the condition can no longer become true.
	Err error
}

// One follows one object and returns it as it is when the condition is true. The error says why it cannot become
// true, or that ctx ended before; then its hint has the last state.
func One(ctx context.Context, a *app.App, client *orrery.Client, o Options) (output.Row, error) {
	outcomes, err := All(ctx, a, client, o)
	if err == nil {
		err = outcomes[0].Err
	}
	return outcomes[0].Row, err
}

// All follows objects and returns an outcome for each, in the order of the targets. It subscribes to events, reads
// the objects, and reads an object again when an event is about it. The error says why it could not follow to the end.
func All(ctx context.Context, a *app.App, client *orrery.Client, o Options) ([]Outcome, error) {
	f := &follower{
		client: client, options: o, line: NewLine(a), left: len(o.Targets), wake: make(chan struct{}, 1),
		outcomes: make([]Outcome, len(o.Targets)), steps: make([]Step, len(o.Targets)),
		names: make([]string, len(o.Targets)), changed: map[int]bool{},
	}
	for i, t := range o.Targets {
		f.outcomes[i].Target, f.names[i] = t, t.Name
	}
	defer f.line.Clear()
	return f.outcomes, f.run(ctx)
}

// follower follows objects. The goroutine that listens to events only marks what changed.
type follower struct {
	client   *orrery.Client
	options  Options
	line     *Line
	outcomes []Outcome
	steps    []Step
	left     int

	wake    chan struct{}
	mu      sync.Mutex
	names   []string     // under mu: the names in events
	changed map[int]bool // under mu: targets to read again
	lost    error        // under mu: why there are no events now
}

func (f *follower) run(ctx context.Context) error {
	if f.left == 0 {
		return nil
	}
	listening, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.listen(listening) }()
	err := f.readUntilDone(ctx, ended)
	cancel()
	<-ended
	return f.explain(ctx, err)
}

func (f *follower) readUntilDone(ctx context.Context, ended chan error) error {
	var refresh <-chan time.Time
	if f.options.Refresh > 0 {
		ticker := time.NewTicker(f.options.Refresh)
		defer ticker.Stop()
		refresh = ticker.C
	}
	for {
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-refresh:
			f.markAll()
		case <-f.wake:
			if err := f.readChanged(ctx); err != nil || f.left == 0 {
				return err
			}
			f.show()
		}
	}
}

// firstAttempts is the number of attempts to subscribe before the first connection.
const firstAttempts = 4

// listen marks the targets that events are about. It ends with an error.
func (f *follower) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var unreachable error
	connected, failures := false, 0
	options := orrery.EventsOptions{
		Group:     f.group(),
		OnConnect: func() { connected = true; f.setLost(nil) },
		OnReconnect: func(err error) {
			var refusal *orrery.Error
			failures++
			if !connected && (failures >= firstAttempts || errors.As(err, &refusal) && refusal.RetryAfter > 0) {
				unreachable = err
				cancel()
			}
			if connected {
				f.setLost(err)
			}
		},
	}
	for event, err := range f.client.Events(ctx, options) {
		switch {
		case err != nil && unreachable != nil:
			return unreachable
		case err != nil:
			return err
		case event.Type == orrery.ResyncRequired:
			f.markAll()
		default:
			f.mark(event)
		}
	}
	return ctx.Err()
}

// group returns the group of all targets, if they have one.
func (f *follower) group() string {
	group := f.options.Targets[0].Group
	for _, t := range f.options.Targets {
		if t.Group != group {
			return ""
		}
	}
	return group
}

func (f *follower) mark(event orrery.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, t := range f.options.Targets {
		if t.Kind.Mentions(event.Type, event.Data, f.names[i]) || t.Related != nil && t.Related(event) {
			f.changed[i] = true
		}
	}
	f.signal()
}

func (f *follower) markAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.markAllLocked()
	f.signal()
}

func (f *follower) markAllLocked() {
	for i := range f.options.Targets {
		f.changed[i] = true
	}
}

// setLost notes that there are no events until the server is reached again. nil ends that, and marks all targets,
// because events may have been missed.
func (f *follower) setLost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost = err; err == nil {
		f.markAllLocked()
	}
	f.signal()
}

// signal wakes the reader if it sleeps.
func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// takeChanged returns the targets that must be read and are not finished.
func (f *follower) takeChanged() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []int
	for i := range f.options.Targets {
		if f.changed[i] && !f.steps[i].final() {
			found = append(found, i)
		}
	}
	clear(f.changed)
	return found
}

const (
	// listFrom is from how many objects on a list is read instead of each object.
	listFrom = 20
	// retryPause is how long after a failed read the object is read again.
	retryPause = time.Second
)

// readChanged reads and judges what changed. While the server cannot be reached it tries again later.
func (f *follower) readChanged(ctx context.Context) error {
	found := f.takeChanged()
	listed, err := f.listed(ctx, found)
	for n := 0; n < len(found) && err == nil; n++ {
		err = f.read(ctx, found[n], listed)
	}
	if errors.Is(err, orrery.ErrUnavailable) || errors.Is(err, orrery.ErrUnreachable) {
		time.AfterFunc(retryPause, f.markAll)
		return nil
	}
	return err
}

// listed returns the objects by name and uid if so many changed that one list is cheaper; otherwise nil.
func (f *follower) listed(ctx context.Context, found []int) (map[string]output.Row, error) {
	if len(found) < listFrom {
		return nil, nil
	}
	t := f.options.Targets[found[0]]
	for _, i := range found {
		if other := f.options.Targets[i]; other.Kind != t.Kind || other.Group != t.Group {
			return nil, nil
		}
	}
	query := url.Values{}
	if t.Kind.TakesFilter("all") {
		query.Set("all", "true")
	}
	rows, err := app.List(ctx, f.client, t.Kind, t.Group, query)
	if err != nil {
		return nil, err
	}
	byName := map[string]output.Row{}
	for _, row := range rows {
		byName[gjson.GetBytes(row, t.Kind.NameField).String()] = row
	}
	for _, row := range rows { // after the names, because a uid is the surer one
		if uid := gjson.GetBytes(row, "uid").String(); uid != "" {
			byName[uid] = row
		}
	}
	return byName, nil
}

// read reads a target and judges it.
func (f *follower) read(ctx context.Context, i int, listed map[string]output.Row) error {
	t := f.options.Targets[i]
	name := t.ID
	if name == "" {
		name = t.Name
	}
	row, known := listed[name]
	var missing error
	if !known {
		var err error
		if row, _, err = app.Get(ctx, f.client, t.Kind, t.Group, name); errors.Is(err, orrery.ErrNotFound) || exit.CodeOf(err) == exit.NotFound {
			row, missing = nil, err
		} else if err != nil {
			return err
		}
	}
	first := f.outcomes[i].Row == nil
	if row != nil {
		f.rename(i, gjson.GetBytes(row, t.Kind.NameField).String())
		f.outcomes[i].Row = row
	}
	step := t.Until(ctx, row)
	switch {
	case !errors.Is(step.Err, errDeleted):
	case first && missing != nil:
		step.Err = missing // it was never there: the error names similar ones
	default:
		step.Err = exit.With(exit.NotFound, fmt.Errorf("%s was deleted", t), "")
	}
	f.steps[i], f.outcomes[i].Err = step, step.Err
	if step.Done && row == nil {
		f.outcomes[i].Row = nil
	}
	if step.final() {
		f.left--
	}
	return nil
}

// rename notes the name by which events call a target, which may have been given by its id.
func (f *follower) rename(i int, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" {
		f.names[i] = name
	}
}

// show shows how far the targets are.
func (f *follower) show() {
	f.mu.Lock()
	lost := f.lost
	f.mu.Unlock()
	if lost == nil {
		f.line.Show(f.summary())
		return
	}
	f.line.Show("connection lost; it is tried again: " + lost.Error())
}

// summary describes the targets that are not finished.
func (f *follower) summary() string {
	for i, step := range f.steps {
		if step.final() {
			continue
		}
		t := f.options.Targets[i]
		text := step.Text
		if text == "" {
			text = "not " + f.options.Goal + " yet"
		}
		if len(f.steps) == 1 {
			return t.String() + ": " + text
		}
		return fmt.Sprintf("%d of %d %s; %s: %s", len(f.steps)-f.left, len(f.steps), f.options.Goal, t.Name, text)
	}
	return ""
}

// explain adds to the end of ctx what the targets were last like, and what continues.
func (f *follower) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	hint := "nothing was read yet"
	if last := f.summary(); last != "" {
		hint = "the last state: " + last
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost != nil {
		hint += ", before the connection was lost"
	}
	if f.options.Afterwards != "" {
		hint += "; " + f.options.Afterwards
	}
	return exit.Hint(ctx.Err(), hint)
}

// StateText returns the state of an object and why it has it, for the Text of a Step.
func StateText(row output.Row) string {
	state := gjson.GetBytes(row, "state").String()
	if state == "" {
		state = gjson.GetBytes(row, "status").String()
	}
	if message := gjson.GetBytes(row, "message").String(); message != "" && state != "" {
		return state + ": " + message
	}
	return state
}
