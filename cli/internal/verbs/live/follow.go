package live

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	"github.com/orreryhq/orrery/cli/internal/verbs/console"
	orrery "github.com/orreryhq/orrery/sdk"
)

// gatewayLines is how many of the last lines a console begins with at most.
const gatewayLines = 100_000

// follower follows the consoles of a command.
type follower struct {
	client *orrery.Client
	o      logsOptions
	out    *printer
	notes  *notes
}

// beginning is where a console begins.
type beginning struct {
	orrery.ConsoleOptions
	// at is when the first line was written; zero if that is not known. skip leaves it out.
	at   time.Time
	skip bool
}

// begin prints the stored lines that a console does not begin with, and returns where it begins.
func (f *follower) begin(ctx context.Context, uid string, out *named) (b beginning, err error) {
	filtered := !f.o.from.IsZero() || f.o.timestamps || f.o.pattern != nil || f.o.lines > gatewayLines
	switch {
	case f.o.lines == 0:
		b.Lines = -1
		return b, nil
	case f.o.lines < 0 && f.o.from.IsZero() && !f.o.timestamps:
		b.Offset = new(int64)
		return b, nil
	case !filtered:
		b.Lines = f.o.lines
		return b, nil
	}
	// The console begins with the last stored line, so that no line is lost or repeated in between.
	last, err := readPage(ctx, f.client, logsOptions{}, uid, 0, 1)
	if err != nil {
		return b, err
	}
	if b.Offset = new(int64); len(last.Lines) == 0 {
		return b, nil
	}
	*b.Offset, b.at = last.Lines[0].Offset, last.Lines[0].TS
	b.skip = b.at.Before(f.o.from)
	stored := f.o
	if stored.lines > 0 {
		stored.lines--
	}
	if *b.Offset == 0 {
		return b, nil
	}
	return b, printStored(ctx, f.client, stored, uid, *b.Offset, out)
}

// follow prints the output of an instance until it ends. It returns the offset after the last line.
func (f *follower) follow(ctx context.Context, i instance, b beginning) (offset int64, err error) {
	out := f.out.named(i.name)
	b.OnReconnect = func(err error) { f.notes.lost(err) }
	b.OnIdle = func() { _ = f.out.flush() } // the next line returns the error
	for e, err := range f.client.Console(ctx, i.uid, b.ConsoleOptions) {
		if err != nil {
			return offset, err
		}
		offset = e.Offset
		switch e.Kind {
		case orrery.ConsoleOutput:
			at := b.at
			if b.at = (time.Time{}); at.IsZero() && f.o.timestamps {
				at = time.Now()
			}
			if b.skip {
				b.skip = false
				continue
			}
			if err := out.print(at, e.Line); err != nil {
				return offset, err
			}
		case orrery.ConsoleSuppressed:
			f.notes.say(i.name, console.SkippedText(e))
		case orrery.ConsoleWaiting:
			f.notes.say(i.name, "waiting: "+e.Message)
		case orrery.ConsoleEnded:
			f.notes.say(i.name, console.EndText(e.End))
		case orrery.ConsoleRefused:
		}
	}
	return offset, nil
}

// notes prints notes about consoles to standard error, between the lines.
type notes struct {
	a   *app.App
	out *printer
	// last is the text of the last note about a lost connection, which all consoles report.
	last string
}

// say prints a note about a server.
func (n *notes) say(name, text string) {
	_ = n.out.flush() // the next line returns the error
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	n.last = ""
	n.a.Notef("%s: %s", terminal.Clean(name), terminal.Clean(text))
}

// lost says that a connection was lost.
func (n *notes) lost(err error) {
	_ = n.out.flush()
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	if text := err.Error(); text != n.last {
		n.last = text
		n.a.Notef("connection lost: %s; reconnecting", terminal.Clean(text))
	}
}

// maxFollowed is how many consoles are followed at once.
const maxFollowed = 64

// followAll prints the output of instances until all have ended.
func followAll(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, out *printer, all []instance) error {
	c := newCrowd(ctx, a, client, o, out)
	defer c.stop()
	for _, i := range all {
		c.add(i)
	}
	for len(c.running) > 0 {
		if err := c.remove(<-c.ended, len(all) == 1); err != nil {
			return err
		}
	}
	return nil
}

// followSelection prints the output of the instances that flags select, also of those that start later.
func followSelection(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, out *printer) error {
	out.prefixes = true
	c := newCrowd(ctx, a, client, o, out)
	defer c.stop()
	events, stop, err := app.Watch(ctx, client, orrery.EventsOptions{Types: []string{"INSTANCE_STATE_CHANGED"}, Group: o.group, OnReconnect: c.notes.lost})
	if err != nil {
		return err
	}
	defer stop()
	if err := c.addSelected(ctx); err != nil {
		return err
	}
	if len(c.running) == 0 {
		a.Notef("no server is selected yet; waiting for one to start")
	}
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return stop()
			}
			if err := c.changed(ctx, event); err != nil {
				return err
			}
		case r := <-c.ended:
			if err := c.remove(r, false); err != nil {
				return err
			}
		}
	}
}

// crowd is the set of consoles that are followed at once. It belongs to one goroutine.
type crowd struct {
	follower
	a *app.App
	//nolint:containedctx // ctx bounds the goroutines, which stop waits for
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan result
	// running has the instances that are followed. offsets has where those that ended would continue.
	running map[string]instance
	offsets map[string]int64
	// left says that there were too many instances.
	left bool
}

// result is how following an instance ended.
type result struct {
	instance
	offset int64
	err    error
}

func newCrowd(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, out *printer) *crowd {
	c := &crowd{
		follower: follower{client, o, out, &notes{a: a, out: out}}, a: a,
		ended: make(chan result, maxFollowed), running: map[string]instance{}, offsets: map[string]int64{},
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// stop ends all consoles and waits for them.
func (c *crowd) stop() {
	c.cancel()
	for range c.running {
		<-c.ended
	}
}

// add follows an instance, unless it is followed already.
func (c *crowd) add(i instance) {
	if _, ok := c.running[i.uid]; ok {
		return
	}
	if len(c.running) == maxFollowed {
		if !c.left {
			c.a.Notef("%d servers are shown at once; %s and others are left out", maxFollowed, terminal.Clean(i.name))
		}
		c.left = true
		return
	}
	c.running[i.uid] = i
	offset, continued := c.offsets[i.uid]
	go func() {
		r := result{instance: i}
		defer func() { c.ended <- r }()
		b := beginning{ConsoleOptions: orrery.ConsoleOptions{Offset: &offset}}
		if !continued {
			if b, r.err = c.begin(c.ctx, i.uid, c.out.named(i.name)); r.err != nil {
				return
			}
		}
		r.offset, r.err = c.follow(c.ctx, i, b)
	}()
}

// remove takes an instance that ended out. Unless it was alone, its failure is a note, and only that of the login,
// of the context or of standard output is returned.
func (c *crowd) remove(r result, alone bool) error {
	delete(c.running, r.uid)
	c.offsets[r.uid] = r.offset
	switch {
	case r.err == nil:
		return nil
	case alone, errors.Is(r.err, orrery.ErrUnauthenticated), c.ctx.Err() != nil, c.out.flush() != nil:
		return r.err
	}
	c.notes.say(r.name, r.err.Error())
	return nil
}

// addSelected follows the instances that flags select and that have not ended.
func (c *crowd) addSelected(ctx context.Context) error {
	found, err := c.o.selection.find(ctx, c.client)
	if err != nil {
		return err
	}
	for _, i := range found {
		if !kinds.IsOver(i.state) {
			c.add(i)
		}
	}
	return nil
}

// changed follows an instance that an event is about if flags select it.
func (c *crowd) changed(ctx context.Context, event orrery.Event) error {
	if event.Type == orrery.ResyncRequired {
		return c.addSelected(ctx)
	}
	i := instanceOfEvent(event)
	if kinds.IsOver(i.state) || i.uid == "" {
		return nil
	}
	if _, ok := c.running[i.uid]; ok || c.left && len(c.running) == maxFollowed {
		return nil
	}
	groups, err := c.o.selection.groups(ctx, c.client)
	switch {
	case errors.Is(err, orrery.ErrNotFound): // the group or the node is gone
		return nil
	case err != nil:
		return err
	case !c.o.selection.has(i, groups):
		return nil
	}
	if _, known := c.offsets[i.uid]; !known {
		c.offsets[i.uid] = 0 // it started just now: all its lines are new
	}
	c.add(i)
	return nil
}

// errLeft is the cause of a context that a key ended.
var errLeft = errors.New("left")

// Follow shows the output of an instance on the terminal until a key ends it, for other commands.
func Follow(ctx context.Context, a *app.App, name string) error {
	in, inOK := a.In.(*os.File)
	out, outOK := a.Out.(*os.File)
	if !inOK || !outOK {
		return errors.New("there is no terminal")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	viewer, err := terminal.NewViewer(in, out, func() { leave(errLeft) })
	if err != nil {
		return err
	}
	shown := *a
	shown.Out, shown.Err = viewer, viewer
	shown.Notef("-- the output of %s; q leaves", terminal.Clean(name))
	o := logsOptions{selection: selection{names: []string{name}}, follow: true, lines: defaultLines}
	p := newPrinter(&shown, o)
	err = namedLogs(ctx, &shown, client, o, p)
	if err == nil { // it ended: what it printed stays on the screen
		err = p.flush()
		shown.Notef("-- q leaves")
		<-ctx.Done()
	}
	if errors.Is(context.Cause(ctx), errLeft) {
		err = nil
	}
	return errors.Join(err, viewer.Close())
}
