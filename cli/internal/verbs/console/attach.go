// Package console has the command that opens the console of a server.
package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	"github.com/spf13/cobra"
)

// attachOptions are the flags of attach.
type attachOptions struct {
	lines  int
	once   bool
	linger time.Duration
}

const (
	// automaticLines means interactiveLines on a terminal, and none elsewhere.
	automaticLines   = -1
	interactiveLines = 50
	// defaultLinger is how long a script waits for output after its last line.
	defaultLinger = time.Second
	// restartTimeout is how long a session waits for a server that ended to start again.
	restartTimeout = time.Minute
	// maxTyped is the longest line of standard input, in bytes.
	maxTyped = 1 << 20
)

// Command returns the command attach.
func Command(a *app.App) *cobra.Command {
	o := attachOptions{lines: automaticLines, linger: defaultLinger}
	cmd := command.New(a, command.Spec{
		Use: "attach [instance] NAME", Aliases: []string{"console"},
		Short: "Open the console of a server, to read and to type",
		Long: `Lines that you type go to the server. Cursor up and down find earlier lines; Tab completes them, and the commands that the
server listed when you typed help. Lines are remembered for each group; one that begins with a space is not. Ctrl-D or
Ctrl-C, or ~. on a line of its own, leaves; the server keeps running.

When the server ends, the session waits a minute for it to start again, unless --once is given.

Without a terminal, each line of standard input is typed, and the output is printed until --linger after the last line.`,
		Example: `orrery attach lobby-1
orrery console lobby-1 -n 0 --once`,
		Args:      command.Between(1, 2, "the name of a server"),
		Complete:  command.CompleteTargets(a, "instance"),
		Following: true,
		OnlyText:  true,
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "instance")
			if err != nil {
				return err
			}
			return runAttach(ctx, a, name, o)
		},
	})
	flags := cmd.Flags()
	command.NumberP(flags, &o.lines, "lines", "n", automaticLines, "`number` of stored lines to begin with; -1 means 50 on a terminal and none elsewhere")
	flags.BoolVar(&o.once, "once", false, "end with the server, instead of waiting for it to start again")
	command.Duration(flags, &o.linger, "linger", "without a terminal: `duration` to print output after the last line")
	command.CompleteFlag(cmd, "lines", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "linger", cobra.NoFileCompletions)
	return cmd
}

// Attach opens the console of an instance on the terminal, for other commands.
func Attach(ctx context.Context, a *app.App, name string) error {
	return runAttach(ctx, a, name, attachOptions{lines: automaticLines, linger: defaultLinger})
}

func runAttach(ctx context.Context, a *app.App, name string, o attachOptions) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	row, _, err := app.Get(ctx, client, kinds.Get("instance"), "", name)
	if err != nil {
		return err
	}
	s := &session{a: a, client: client, options: o}
	s.is(row)
	in, inOK := a.In.(*os.File)
	out, outOK := a.Out.(*os.File)
	if a.Interactive && a.Width > 0 && inOK && outOK {
		return s.interactive(ctx, in, out)
	}
	return s.script(ctx)
}

// errLeft is the cause of a session that the user or the end of the input ended.
var errLeft = errors.New("left")

// interactive runs a session on a terminal.
func (s *session) interactive(ctx context.Context, in, out *os.File) error {
	history, err := s.history()
	if err != nil {
		s.a.Notef("%v", err)
	}
	s.words = &terminal.Words{}
	editor, err := terminal.NewEditor(in, out, history, s.words)
	if err != nil {
		return err
	}
	s.out, s.notes, s.colours = editor, editor, s.a.Style().Colour
	if s.options.lines == automaticLines {
		s.options.lines = interactiveLines
	}
	s.note("attached to %s; Ctrl-D or ~. leaves, and the server keeps running", s.name)
	s.notePermission(ctx)
	ctx, leave := context.WithCancelCause(ctx)
	lines, done := make(chan string), make(chan struct{})
	go func() {
		defer close(done)
		defer leave(errLeft)
		for {
			line, err := editor.ReadLine()
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = s.run(ctx, lines)
	leave(nil)
	editor.Cancel()
	<-done
	_, _ = out.WriteString("\r\n") // the shell continues on a line of its own
	return errors.Join(err, editor.Close())
}

// history returns the lines that were typed into the group before.
func (s *session) history() (*terminal.History, error) {
	dir, err := terminal.StateDir(s.a.Env)
	if err != nil {
		return &terminal.History{}, err
	}
	target, err := s.a.Target()
	if err != nil {
		return &terminal.History{}, err
	}
	server := target.Context
	if server == "" {
		server = target.Servers[0]
	}
	return terminal.OpenHistory(filepath.Join(dir, "history", url.PathEscape(s.group+"@"+server)))
}

// notePermission says whether the user may only read.
func (s *session) notePermission(ctx context.Context) {
	const all, needed = "*", "instances.command"
	me, err := s.client.GetCurrentUser(ctx)
	if err == nil && !slices.Contains(me.Permissions, all) && !slices.Contains(me.Permissions, needed) {
		s.note("you may read this console but not type: that needs the permission %s", needed)
	}
}

// script runs a session whose lines come from standard input.
func (s *session) script(ctx context.Context) error {
	s.out, s.notes, s.options.once = s.a.Out, s.a.Err, true
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(s.a.In)
		in.Buffer(nil, maxTyped)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
		if in.Err() != nil && ctx.Err() == nil {
			leave(fmt.Errorf("cannot read standard input: %w", in.Err()))
		}
	}()
	s.onSent = func(ctx context.Context) {
		timer := time.NewTimer(s.options.linger)
		defer timer.Stop()
		select {
		case <-timer.C:
			leave(errLeft)
		case <-ctx.Done():
		}
	}
	return s.run(ctx, lines)
}
