package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/suggest"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// MaxLines limits the output of one command.
	MaxLines = 10_000
	// maxLine limits the length of a command line, in bytes.
	maxLine = 16 << 10
	// goesOn limits how long an uncancelable command continues after its caller has gone. It is enough for
	// hundreds of agents and less than the shutdown timeout of a gateway.
	goesOn = 5 * time.Second
	// near is the maximum edit distance for suggestions.
	near = 2
)

// ErrLeave is returned by Run if the command leaves the console.
var ErrLeave = errors.New("leave the console")

// Config has what commands need. All fields are required.
type Config struct {
	Operations *ops.Operations
	Sources    *sourceops.Sources
	Auth       *auth.Service
	// ClusterName and ClusterID are shown by "cluster status".
	ClusterName, ClusterID string
	// Replica is this gateway's name. End shuts it down after the requests in progress, EndOther another
	// gateway. Errors of EndOther describe that gateway.
	Replica  string
	End      func()
	EndOther func(ctx context.Context, other *cluster.Session) error
	Now      func() time.Time
}

// Session is the caller of commands and the target of their output.
type Session struct {
	By  txn.Actor
	Who auth.Identity
	// Node is the node that "node info" shows; may be empty.
	Node fleet.NodeID
	// Say receives a line of output without line breaks. An error ends the command.
	Say func(line string) error
}

// Interpreter runs command lines. It is safe for concurrent use.
type Interpreter struct {
	cfg      Config
	commands []command
}

// New returns an Interpreter.
func New(cfg Config) *Interpreter {
	i := &Interpreter{cfg: cfg}
	i.commands = slices.Concat(i.clusterCommands(), i.instanceCommands(), i.configCommands(), i.templateCommands(), i.keyCommands(), i.consoleCommands())
	return i
}

// command is a row of the command table.
type command struct {
	// name has one or two words, with aliases of the last one.
	name  string
	other []string
	// args are the arguments as shown: <needed> [optional] <rest…>. The last one takes the rest of the line.
	args  []string
	about string
	// needs are the required permissions.
	needs []auth.Permission
	// changes is true if the command may change something.
	changes bool
	// through is true if the command continues after its caller has gone.
	through bool
	run     func(ctx context.Context, c *call) error
}

// usage returns the syntax of a command.
func (c *command) usage() string { return strings.Join(append([]string{c.name}, c.args...), " ") }

// first and last return the words of the name; last is "" for a single word.
func (c *command) first() string { first, _, _ := strings.Cut(c.name, " "); return first }
func (c *command) last() string  { _, last, _ := strings.Cut(c.name, " "); return last }

// allows reports whether a caller has the required permissions.
func (c *command) allows(who auth.Identity) bool {
	return !slices.ContainsFunc(c.needs, func(p auth.Permission) bool { return !who.Can(p) })
}

// Serves returns Denied if the caller may run only the commands open to all.
func (i *Interpreter) Serves(who auth.Identity) error {
	for n := range i.commands {
		if c := &i.commands[n]; len(c.needs) > 0 && c.allows(who) {
			return nil
		}
	}
	return errs.New(errs.Denied, "there is no command that you may run, but help: %s, for one", who.Lacks(auth.InstancesView))
}

// call is a running command.
type call struct {
	Session
	cfg  *Config
	args []string
	said int
	// snapshot is the fleet when the command began.
	snapshot *view.Snapshot
	// then runs after the audit; may be nil.
	then func()
}

// arg returns an argument, "" if it is absent.
func (c *call) arg(n int) string {
	if n < len(c.args) {
		return c.args[n]
	}
	return ""
}

// linebreaks replaces line breaks in output lines.
var linebreaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")

// say sends a line of output.
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

// Run runs a line and sends the output to s.Say. It returns Malformed or Invalid for a wrong line, NotFound
// for an unknown command and Denied without the permission. An empty line does nothing.
func (i *Interpreter) Run(ctx context.Context, s Session, line string) error {
	if len(line) > maxLine {
		return errs.Field("command", "must be at most %d bytes, has %d", maxLine, len(line))
	}
	if validate.HasControl(strings.TrimRight(line, "\r\n")) {
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
			// The command is done. An error would make users repeat it.
			err = c.say("(done, but the audit entry could not be written: %s)", errs.MessageOf(failed))
		}
	}
	if unheard != nil {
		return unheard
	}
	return err
}

// outlasting returns a context that ends some time after another.
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

// read parses the arguments.
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

// plurals are aliases of first words. Alone, they list.
var plurals = map[string]string{
	"instances": "instance", "configs": "config", "templates": "template", "extensions": "extension", "keys": "key",
}

// find reads a command's name. A NotFound error suggests similar names.
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

// unknown returns the error for an unknown first word.
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
	if meant := suggest.Within(typed, known, near); meant != "" {
		return errs.New(errs.NotFound, "there is no command %s: did you mean %s?", clip(typed), meant)
	}
	return errs.New(errs.NotFound, "there is no command %s: help lists them", clip(typed))
}

// unknownOf returns the error for an unknown second word after first.
func unknownOf(first, typed string, of []*command) error {
	var known []string
	for _, c := range of {
		known = append(append(known, c.last()), c.other...)
	}
	if meant := suggest.Within(typed, known, near); meant != "" {
		return errs.New(errs.NotFound, "there is no command %s %s: did you mean %s %s?", first, clip(typed), first, meant)
	}
	return errs.New(errs.NotFound, "there is no command %s %s: %s", first, clip(typed), listed(of))
}

// listed returns the commands as a sentence.
func listed(of []*command) string {
	var names []string
	for _, c := range of {
		names = append(names, c.name)
	}
	return "there are " + strings.Join(names, ", ")
}

// Explain returns the message of an error for users, without internal causes.
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

func (i *Interpreter) consoleCommands() []command {
	return []command{
		{name: "help", other: []string{"?"}, args: []string{"[command…]"}, about: "list the commands, or those that begin with the given words", run: i.help},
		{name: "stop", other: []string{"exit"}, about: "leave this console; the gateway is stopped where it was started", run: func(context.Context, *call) error { return ErrLeave }},
	}
}

// help lists the commands.
func (i *Interpreter) help(_ context.Context, c *call) error {
	about := strings.ToLower(strings.Join(strings.Fields(c.arg(0)), " "))
	var rows [][]string
	for n := range i.commands {
		cmd := &i.commands[n]
		if !strings.HasPrefix(cmd.name, about) {
			continue
		}
		usage := cmd.usage()
		if len(cmd.other) > 0 {
			usage += "  (or " + strings.Join(cmd.other, ", ") + ")"
		}
		rows = append(rows, []string{usage, cmd.about})
	}
	if len(rows) == 0 {
		return errs.New(errs.NotFound, "there is no command %s: help lists them", clip(about))
	}
	return c.table(rows)
}
