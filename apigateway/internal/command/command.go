package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/spelling"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// MaxLines bounds the lines one command says.
	MaxLines = 10_000
	// maxLine is the length of the longest command line, in bytes.
	maxLine = 16 << 10
	// goesOn is how long a command that is carried through goes on when who typed it has gone: time
	// for hundreds of agents that answer, and less than a gateway has to end, which may be why.
	goesOn = 5 * time.Second
	// near is how many letters a word may be wrong by for another to be suggested.
	near = 2
)

// ErrLeave is what Run returns when the command says that the caller leaves the console.
var ErrLeave = errors.New("leave the console")

// Config is what commands need; all of it is required.
type Config struct {
	Operations *operate.Operations
	Sources    *operate.Sources
	Auth       *auth.Service
	// ClusterName and ClusterID are told by "cluster status".
	ClusterName, ClusterID string
	// Replica is this gateway's name. End has it end once what is under way is answered, EndOther
	// asks another gateway to; its errors say what that one does.
	Replica  string
	End      func()
	EndOther func(ctx context.Context, other *fleet.Session) error
	Now      func() time.Time
}

// Session is who runs commands, and where.
type Session struct {
	By  operate.Actor
	Who auth.Identity
	// Node is the one that "node info" is about; "" when there is none.
	Node fleet.NodeID
	// Say takes a line of output, which holds no line break. An error ends the command.
	Say func(line string) error
}

// Interpreter runs command lines. It is safe for concurrent use.
type Interpreter struct {
	cfg      Config
	commands []command
}

// New wires the interpreter.
func New(cfg Config) *Interpreter {
	i := &Interpreter{cfg: cfg}
	i.commands = slices.Concat(i.clusterCommands(), i.instanceCommands(), i.configCommands(), i.templateCommands(), i.keyCommands(), i.consoleCommands())
	return i
}

// command is one row of the table.
type command struct {
	// name is the words it begins with, one or two, also other names for its last word.
	name  string
	other []string
	// args are its arguments as they are shown: <needed> [optional] <rest…>, of which the
	// last takes the rest of the line as it is.
	args  []string
	about string
	// needs are the permissions it demands, all of them.
	needs []auth.Permission
	// changes is true when it may change something.
	changes bool
	// through is true when it is carried through, though who typed it has gone.
	through bool
	run     func(ctx context.Context, c *call) error
}

// usage is how a command is written.
func (c *command) usage() string { return strings.Join(append([]string{c.name}, c.args...), " ") }

// first and last are the words of its name; last is "" of a name of one word.
func (c *command) first() string { first, _, _ := strings.Cut(c.name, " "); return first }
func (c *command) last() string  { _, last, _ := strings.Cut(c.name, " "); return last }

// allows reports whether somebody has all that the command demands.
func (c *command) allows(who auth.Identity) bool {
	return !slices.ContainsFunc(c.needs, func(p auth.Permission) bool { return !who.Can(p) })
}

// Serves is nil when there is a command for somebody that not everybody may run; Denied when
// there is none.
func (i *Interpreter) Serves(who auth.Identity) error {
	for n := range i.commands {
		if c := &i.commands[n]; len(c.needs) > 0 && c.allows(who) {
			return nil
		}
	}
	return errs.New(errs.Denied, "there is no command that you may run, but help: %s, for one", who.Lacks(auth.InstancesView))
}

// call is a command that is run.
type call struct {
	Session
	cfg  *Config
	args []string
	said int
	// snapshot is the fleet as it was when the command began.
	snapshot *view.Snapshot
	// then is done when all is noted; nil is nothing.
	then func()
}

// arg is an argument, "" when it was left out.
func (c *call) arg(n int) string {
	if n < len(c.args) {
		return c.args[n]
	}
	return ""
}

// linebreaks are not in lines.
var linebreaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")

// say says a line.
func (c *call) say(format string, values ...any) error {
	c.said++
	switch {
	case c.said > MaxLines:
		return nil
	case c.said == MaxLines:
		return c.Say("… more lines are left out")
	}
	return c.Say(linebreaks.Replace(fmt.Sprintf(format, values...)))
}

// Run runs a line. What the command has to say goes to s.Say; the error is why it was not
// done, for the caller to read: Malformed and Invalid for what cannot be read, NotFound for
// a command nobody knows, Denied for one the caller may not run. Nothing of an empty line.
func (i *Interpreter) Run(ctx context.Context, s Session, line string) error {
	if len(line) > maxLine {
		return errs.Field("command", "must be at most %d bytes, has %d", maxLine, len(line))
	}
	if fleet.HasControl(strings.TrimRight(line, "\r\n")) {
		return errs.Field("command", "must not contain control characters: send one line at a time")
	}
	in := &reader{line: strings.TrimSpace(line)}
	if in.line == "" {
		return nil
	}
	cmd, err := i.find(in)
	if err != nil {
		return err
	}
	for _, p := range cmd.needs {
		if !s.Who.Can(p) {
			return errs.New(errs.Denied, "%s needs the permission %s: %s", cmd.name, p, s.Who.Lacks(p))
		}
	}
	c := &call{Session: s, cfg: &i.cfg, snapshot: i.cfg.Operations.Snapshot()}
	if c.args, err = cmd.read(in); err != nil {
		return err
	}
	var unheard error
	if cmd.through {
		var done context.CancelFunc
		ctx, done = outlasting(ctx, goesOn)
		defer done()
		c.Say = func(line string) error {
			if unheard == nil {
				unheard = s.Say(line)
			}
			return nil
		}
	}
	err = cmd.run(ctx, c)
	if c.then != nil {
		defer c.then()
	}
	if err == nil && cmd.changes {
		if _, failed := i.cfg.Operations.Record(ctx, s.By, "command.execute", "command", cmd.name, clip(in.line)); failed != nil {
			// it is done: saying that it failed would make people do it again
			err = c.say("(done, but the audit could not be told: %s)", errs.MessageOf(failed))
		}
	}
	if unheard != nil {
		return unheard
	}
	return err
}

// outlasting is a context that ends so long after another has.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel() }
}

// read reads the arguments.
func (c *command) read(in *reader) (args []string, err error) {
	least, rest := 0, false
	for _, a := range c.args {
		rest = strings.Contains(a, "…")
		if a[0] == '<' {
			least++
		}
	}
	plain := len(c.args)
	if rest {
		plain--
	}
	for range plain {
		word, ok, err := in.word()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		args = append(args, word)
	}
	more := in.rest()
	if rest && more != "" {
		args, more = append(args, more), ""
	}
	switch {
	case len(args) < least:
		return nil, errs.New(errs.Malformed, "%s is missing: %s", c.args[len(args)], c.usage())
	case more != "":
		return nil, errs.New(errs.Malformed, "%q is too much: %s", clip(more), c.usage())
	}
	return args, nil
}

// plurals are what the first word of some commands may be called, too. Alone, they list.
var plurals = map[string]string{
	"instances": "instance", "configs": "config", "templates": "template", "extensions": "extension", "keys": "key",
}

// find reads the words of a command's name. NotFound says which may be meant.
func (i *Interpreter) find(in *reader) (*command, error) {
	typed, _, err := in.word()
	if err != nil {
		return nil, err
	}
	first := strings.ToLower(typed)
	singular, plural := plurals[first]
	if plural {
		first = singular
	}
	var of []*command
	for n := range i.commands {
		c := &i.commands[n]
		if c.first() != first && (c.last() != "" || !slices.Contains(c.other, first)) {
			continue
		}
		if c.last() == "" {
			return c, nil
		}
		of = append(of, c)
	}
	if len(of) == 0 {
		return nil, i.unknown(typed)
	}
	typed, ok, err := in.word()
	switch {
	case err != nil:
		return nil, err
	case !ok && plural:
		typed = "list"
	case !ok:
		return nil, errs.New(errs.Malformed, "%s what? %s", first, listed(of))
	}
	last := strings.ToLower(typed)
	for _, c := range of {
		if c.last() == last || slices.Contains(c.other, last) {
			return c, nil
		}
	}
	return nil, unknownOf(first, typed, of)
}

// unknown says that no command begins with a word.
func (i *Interpreter) unknown(typed string) error {
	var known []string
	for n := range i.commands {
		c := &i.commands[n]
		known = append(known, c.first())
		if c.last() == "" {
			known = append(known, c.other...)
		}
	}
	for p := range plurals {
		known = append(known, p)
	}
	slices.Sort(known)
	if meant := spelling.Within(typed, known, near); meant != "" {
		return errs.New(errs.NotFound, "there is no command %s: did you mean %s?", clip(typed), meant)
	}
	return errs.New(errs.NotFound, "there is no command %s: help lists them", clip(typed))
}

// unknownOf says that no command of those with a first word goes on with another.
func unknownOf(first, typed string, of []*command) error {
	var known []string
	for _, c := range of {
		known = append(append(known, c.last()), c.other...)
	}
	if meant := spelling.Within(typed, known, near); meant != "" {
		return errs.New(errs.NotFound, "there is no command %s %s: did you mean %s %s?", first, clip(typed), first, meant)
	}
	return errs.New(errs.NotFound, "there is no command %s %s: %s", first, clip(typed), listed(of))
}

// listed are commands as a sentence names them.
func listed(of []*command) string {
	var names []string
	for _, c := range of {
		names = append(names, c.name)
	}
	return "there are " + strings.Join(names, ", ")
}

// Explain says in a sentence why a command was not done: nothing of what failed inside.
func Explain(err error) string {
	reply := wire.Universe.ReplyTo("", err)
	text := reply.Message
	if reply.Field != "" && !strings.HasPrefix(text, reply.Field) {
		text = reply.Field + " " + text
	}
	return linebreaks.Replace(text)
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
