package operate

import (
	"context"
	"unicode/utf8"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// MaxCommand is the length of a console line, in characters.
	MaxCommand = 1000
	// MaxLogLines bounds one answer with output.
	MaxLogLines = 100_000
	// MaxOutput bounds one answer with a piece of output, in bytes.
	MaxOutput = 1 << 20
)

// Via is a way for commands to a server.
type Via string

// The ways. Empty is the remote console where the instance has one, else the console.
const (
	ViaConsole Via = "console" // a line is typed
	ViaRCON    Via = "rcon"    // the remote console, which answers
)

// Sent is how a command was sent.
type Sent struct {
	Via Via
	// Answer is the remote console's; a console gives none.
	Answer string
	// Incomplete is true when the server has the command but did not say all of its answer.
	Incomplete bool
}

// Command gives a command to an instance's server. Errors as of SendCommand; Invalid
// also for a way nobody knows, Conflict where it does not lead to the server.
func (o *Operations) Command(ctx context.Context, by Actor, ref, line string, via Via) (Sent, error) {
	i, err := o.Find(ref)
	if err != nil {
		return Sent{}, err
	}
	if via == "" {
		via = ViaConsole
		if stored, ok := o.Snapshot().Plans.Get(i.Intent.Plan); ok && stored.Plan.RCON.Port != "" {
			via = ViaRCON
		}
	}
	switch via {
	case ViaConsole:
		return Sent{Via: via}, o.SendCommand(ctx, by, ref, line)
	case ViaRCON:
	default:
		return Sent{}, errs.Field("via", "must be console or rcon; %q is not", clip(string(via)))
	}
	if err := sendable(i, line); err != nil {
		return Sent{}, err
	}
	var answer client.RemoteAnswer
	err = o.give(ctx, by, i, line, func() (err error) {
		answer, err = o.cfg.Agents.RCON(ctx, i, line)
		return err
	})
	if err != nil {
		return Sent{}, err
	}
	return Sent{Via: via, Answer: answer.Answer, Incomplete: answer.Incomplete}, nil
}

// SendCommand writes a line to an instance's console. Invalid when it is too long
// or has control characters other than tab, Conflict when the instance does not
// run or does not read, Unavailable when its node's agent does not answer.
func (o *Operations) SendCommand(ctx context.Context, by Actor, ref, line string) error {
	i, err := o.Find(ref)
	if err != nil {
		return err
	}
	if err := sendable(i, line); err != nil {
		return err
	}
	return o.give(ctx, by, i, line, func() error { return o.cfg.Agents.Console(ctx, i, line) })
}

// sendable refuses what no server can be sent.
func sendable(i *fleet.Instance, line string) error {
	if n := utf8.RuneCountInString(line); n > MaxCommand {
		return errs.Field("command", "must be at most %d characters, has %d", MaxCommand, n)
	}
	if fleet.HasControl(line) || !utf8.ValidString(line) {
		return errs.Field("command", "must not contain control characters: send one line at a time")
	}
	if !i.State().Running() {
		return errs.New(errs.Conflict, "instance %s %s: only a running one has a console", i.Intent.Name, i.State().Text())
	}
	return nil
}

// give sends a command, and notes who sent what, and when it failed that it may not have come
// there. Errors as of send.
func (o *Operations) give(ctx context.Context, by Actor, i *fleet.Instance, line string, send func() error) error {
	return o.outside(ctx, by, entry{action: "instance.command", resource: "instance", id: string(i.Intent.ID), details: clip(line)}, send)
}

// outside does what can be in no transaction, such as what an agent is asked for. A request
// that is carried out once is claimed before, and yielded when the agent refused or was surely
// not reached; of one that it may have heard nobody knows. It is audited either way, and what was
// done has not failed where only that could not be: saying so would make people do it again.
// Errors as of do.
func (o *Operations) outside(ctx context.Context, by Actor, said entry, do func() error) error {
	if err := o.claim(ctx, said); err != nil {
		return err
	}
	failed := do()
	if failed != nil {
		if upstream.NotDone(failed) {
			o.yield(ctx)
		}
		said.failure = clip(errs.MessageOf(failed))
		ctx = elsewhere(context.WithoutCancel(ctx)) // who gave up has asked for it
	}
	if _, err := o.record(ctx, by, said); err != nil {
		o.cfg.Log.Warn("audit entry not written", "action", said.action, said.resource, said.id, "error", err)
	}
	return failed
}

// Logs are a page of an instance's output; none before it was placed. Unavailable when
// its node's agent does not answer, Invalid when what is to match is no expression.
func (o *Operations) Logs(ctx context.Context, ref string, q client.Query) (upstream.Log, error) {
	i, err := o.Find(ref)
	if err != nil {
		return upstream.Log{}, err
	}
	q.Lines = min(max(q.Lines, 1), MaxLogLines)
	return o.cfg.Agents.Log(ctx, i, q)
}

// Output is what an instance printed from a byte offset on, at most limit bytes, and
// the offset after it. Unavailable when its node's agent does not answer.
func (o *Operations) Output(ctx context.Context, ref string, offset int64, limit int) (data []byte, next int64, err error) {
	i, err := o.Find(ref)
	if err != nil {
		return nil, 0, err
	}
	return o.cfg.Agents.Output(ctx, i, max(offset, 0), min(max(limit, 1), MaxOutput))
}

// Follow streams an instance's output from a place on; see upstream.Agents.
func (o *Operations) Follow(ctx context.Context, i *fleet.Instance, at client.Place) (*client.Stream[client.Frame], error) {
	return o.cfg.Agents.Follow(ctx, i, at)
}

// Heartbeat hands over what an instance says of itself. Conflict when it has
// finished, or has no node yet: nothing said revives it. AlreadyExists when its
// sequence is not higher than the one before.
func (o *Operations) Heartbeat(ctx context.Context, ref string, h client.Heartbeat) error {
	i, err := o.Find(ref)
	if err != nil {
		return err
	}
	if i.Terminal() {
		return errs.New(errs.Conflict, "instance %s %s: a heartbeat does not change that", i.Intent.Name, i.State().Text())
	}
	return o.cfg.Agents.Heartbeat(ctx, i, h)
}

// Measured are the figures that an instance last told of itself, as a proxy or as a server. NotFound when there is
// no such instance, or it told none in its present run; Unavailable when its node's agent
// does not answer.
func (o *Operations) Measured(ctx context.Context, ref string, proxy bool) (*fleet.Instance, client.Measured, error) {
	i, err := o.Find(ref)
	if err != nil {
		return nil, client.Measured{}, err
	}
	if !i.State().Running() {
		return nil, client.Measured{}, errs.New(errs.NotFound, "instance %s %s: it tells no metrics", i.Intent.Name, i.State().Text())
	}
	m, err := o.cfg.Agents.Measured(ctx, i)
	if err == nil && m.Proxy != proxy {
		err = errs.New(errs.NotFound, "instance %s has told no such metrics in its present run", i.Intent.Name)
	}
	return i, m, err
}

// Live are an instance's figures as they were less than a second ago. Errors as of
// upstream.Agents.Live.
func (o *Operations) Live(ctx context.Context, i *fleet.Instance) (upstream.Live, error) {
	return o.cfg.Agents.Live(ctx, i)
}
