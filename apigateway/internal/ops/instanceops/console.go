package instanceops

import (
	"context"
	"unicode/utf8"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// MaxCommand is the maximum length of a console line, in characters.
	MaxCommand = 1000
	// MaxLogLines limits the lines of output in one response.
	MaxLogLines = 100_000
	// MaxOutput limits the bytes of output in one response.
	MaxOutput = 1 << 20
)

// Via is the channel on which a command is sent to a server.
type Via string

// The ways. Empty is the remote console where the instance has one, else the console.
const (
	ViaConsole Via = "console" // types a line
	ViaRCON    Via = "rcon"    // RCON, which answers
)

// Sent is the result of sending a command.
type Sent struct {
	Via Via
	// Answer is the answer of RCON. The plain console does not answer.
	Answer string
	// Incomplete is true if the server accepted the command but its answer was cut.
	Incomplete bool
}

// Command sends a command to an instance's server. Errors are those of SendCommand, Invalid for an
// unknown channel, and Conflict when the channel does not reach the server.
func (o *Instances) Command(ctx context.Context, by txn.Actor, ref, line string, via Via) (Sent, error) {
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
		return Sent{}, errs.Field("via", "must be console or rcon; %q is not", txn.Clip(string(via)))
	}
	if err := o.sendable(ctx, by, i, line); err != nil {
		return Sent{}, err
	}
	var answer client.RemoteAnswer
	err = o.give(ctx, by, i, line, func() (err error) {
		answer, err = o.agents.RCON(ctx, i, line)
		return err
	})
	if err != nil {
		return Sent{}, err
	}
	return Sent{Via: via, Answer: answer.Answer, Incomplete: answer.Incomplete}, nil
}

// SendCommand writes a line to an instance's console. Invalid when the line is too long or has
// control characters other than tab, Conflict when the instance does not run or does not read its
// console, Unavailable when its node's agent does not answer.
func (o *Instances) SendCommand(ctx context.Context, by txn.Actor, ref, line string) error {
	i, err := o.Find(ref)
	if err != nil {
		return err
	}
	if err := o.sendable(ctx, by, i, line); err != nil {
		return err
	}
	return o.give(ctx, by, i, line, func() error { return o.agents.Console(ctx, i, line) })
}

// line returns Invalid for text that is not one line of a console.
func line(text string) error {
	if n := utf8.RuneCountInString(text); n > MaxCommand {
		return errs.Field("command", "must be at most %d characters, has %d", MaxCommand, n)
	}
	if validate.HasControl(text) || !utf8.ValidString(text) {
		return errs.Field("command", "must not contain control characters: send one line at a time")
	}
	return nil
}

// sendable is takesLine for a line that is to be sent now. It wakes a sleeping instance.
func (o *Instances) sendable(ctx context.Context, by txn.Actor, i *fleet.Instance, text string) error {
	if err := line(text); err != nil {
		return err
	}
	if i.State() == fleet.Sleeping {
		// The command is refused, so its Idempotency-Key stays unused.
		if _, err := o.WakeInstance(txn.WithoutOnce(ctx), by, string(i.Intent.ID), false); err != nil {
			return err
		}
		return errs.New(errs.Unavailable, "instance %s was asleep and wakes now: send the command again once it runs", i.Intent.Name)
	}
	return takesLine(i, text)
}

// takesLine returns the error of a line that cannot be sent, or of an instance that takes none.
func takesLine(i *fleet.Instance, text string) error {
	if err := line(text); err != nil {
		return err
	}
	if i.State() == fleet.Sleeping {
		return errs.New(errs.Unavailable, "instance %s is asleep: a command wakes it, and must be sent again once it runs", i.Intent.Name)
	}
	if !i.State().Running() {
		return errs.New(errs.Conflict, "instance %s %s: only a running one has a console", i.Intent.Name, i.State().Text())
	}
	return nil
}

// give sends a command and audits it, also when sending failed and the command may not have
// arrived. Errors are those of send.
func (o *Instances) give(ctx context.Context, by txn.Actor, i *fleet.Instance, line string, send func() error) error {
	return o.Outside(ctx, by, txn.Entry{Action: "instance.command", Resource: "instance", ID: string(i.Intent.ID), Details: txn.Clip(line)}, send)
}

// Logs returns a page of an instance's output, empty before it was placed. Unavailable when its
// node's agent does not answer, Invalid when the pattern is no regular expression.
func (o *Instances) Logs(ctx context.Context, ref string, q client.Query) (client.Log, error) {
	i, err := o.Find(ref)
	if err != nil {
		return client.Log{}, err
	}
	q.Lines = min(max(q.Lines, 1), MaxLogLines)
	return o.agents.Log(ctx, i, q)
}

// Output returns at most limit bytes of an instance's output from a byte offset on, and the offset
// after them. Unavailable when its node's agent does not answer.
func (o *Instances) Output(ctx context.Context, ref string, offset int64, limit int) (data []byte, next int64, err error) {
	i, err := o.Find(ref)
	if err != nil {
		return nil, 0, err
	}
	return o.agents.Output(ctx, i, max(offset, 0), min(max(limit, 1), MaxOutput))
}

// Follow streams an instance's output from a place on; see upstream.Agents.
func (o *Instances) Follow(ctx context.Context, i *fleet.Instance, at client.Place) (*client.Stream[client.Frame], error) {
	return o.agents.Follow(ctx, i, at)
}

// Heartbeat passes an instance's heartbeat to the agent of its node. Conflict when the instance has
// finished or has no node yet, AlreadyExists when its sequence is not higher than the one before.
func (o *Instances) Heartbeat(ctx context.Context, ref string, h client.Heartbeat) error {
	i, err := o.Find(ref)
	if err != nil {
		return err
	}
	if i.Terminal() {
		return errs.New(errs.Conflict, "instance %s %s: a heartbeat does not change that", i.Intent.Name, i.State().Text())
	}
	return o.agents.Heartbeat(ctx, i, h)
}

// Measured returns the figures that an instance last reported, as a proxy or as a server. NotFound
// when the instance does not exist or reported none in its present run, Unavailable when its node's
// agent does not answer.
func (o *Instances) Measured(ctx context.Context, ref string, proxy bool) (*fleet.Instance, client.Measured, error) {
	i, err := o.Find(ref)
	if err != nil {
		return nil, client.Measured{}, err
	}
	if !i.State().Running() {
		return nil, client.Measured{}, errs.New(errs.NotFound, "instance %s %s: it tells no metrics", i.Intent.Name, i.State().Text())
	}
	m, err := o.agents.Measured(ctx, i)
	if err == nil && m.Proxy != proxy {
		err = errs.New(errs.NotFound, "instance %s has told no such metrics in its present run", i.Intent.Name)
	}
	return i, m, err
}

// Live returns figures of an instance that are less than a second old. Errors are those of
// upstream.Agents.Live.
func (o *Instances) Live(ctx context.Context, i *fleet.Instance) (upstream.Live, error) {
	return o.agents.Live(ctx, i)
}
