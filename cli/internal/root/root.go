// Package root puts the commands together and turns their errors into exit codes.
package root

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/verbs/access"
	"github.com/orreryhq/orrery/cli/internal/verbs/acting"
	"github.com/orreryhq/orrery/cli/internal/verbs/certificates"
	"github.com/orreryhq/orrery/cli/internal/verbs/cluster"
	"github.com/orreryhq/orrery/cli/internal/verbs/console"
	"github.com/orreryhq/orrery/cli/internal/verbs/content"
	"github.com/orreryhq/orrery/cli/internal/verbs/declaring"
	"github.com/orreryhq/orrery/cli/internal/verbs/diagnosis"
	"github.com/orreryhq/orrery/cli/internal/verbs/doctor"
	"github.com/orreryhq/orrery/cli/internal/verbs/groups"
	"github.com/orreryhq/orrery/cli/internal/verbs/importing"
	"github.com/orreryhq/orrery/cli/internal/verbs/live"
	"github.com/orreryhq/orrery/cli/internal/verbs/players"
	"github.com/orreryhq/orrery/cli/internal/verbs/reading"
	"github.com/orreryhq/orrery/cli/internal/verbs/rollouts"
	"github.com/orreryhq/orrery/cli/internal/verbs/shell"
	"github.com/orreryhq/orrery/cli/internal/verbs/starting"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates"
	"github.com/orreryhq/orrery/cli/internal/verbs/top"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// section is a heading of the help with its commands.
type section struct {
	id, title string
	commands  []*cobra.Command
}

func sections(a *app.App) []section {
	return []section{
		{"access", "Log in and choose a server", slices.Concat(access.Commands(a), shell.Commands(a), certificates.Commands(a))},
		{"read", "Look at things", reading.Commands(a)},
		{"declare", "Declare what shall run", slices.Concat(declaring.Commands(a), starting.Commands(a), importing.Commands(a))},
		{"act", "Act on things", slices.Concat(acting.Commands(a), cluster.Commands(a))},
		{"groups", "Run groups", slices.Concat(groups.Commands(a), rollouts.Commands(a), players.Commands(a))},
		{"diagnose", "Find out what is wrong and why", slices.Concat(diagnosis.Commands(a), doctor.Commands(a))},
		{"content", "Change what instances are made of", slices.Concat(templates.Commands(a), content.Commands(a))},
		{"live", "Follow what happens", append(live.Commands(a), console.Command(a), top.Command(a))},
	}
}

// New returns the command orrery with all commands below it.
func New(a *app.App) *cobra.Command {
	root := command.New(a, command.Spec{
		Use:   "orrery",
		Short: "Run fleets of long-lived processes on your own machines",
		Long: `A command is a verb, a kind and a name: orrery get instances, orrery scale group lobby --to 3.

It reads these variables of the environment:

  ORRERY_SERVER    URL of a gateway, like --server
  ORRERY_TOKEN     API token to use instead of the login of the context
  ORRERY_CODE      code of your authenticator for orrery login and orrery second-factor, like --code
  ORRERY_CONTEXT   name of the context to use, like --context
  ORRERY_CONFIG    file with the contexts, instead of orrery/config.yaml in the user's directory for settings
  VISUAL, EDITOR   editor of the edit commands
  NO_COLOR         disables colours if it is not empty

A flag is stronger than a variable, and ORRERY_SERVER is stronger than ORRERY_CONTEXT. If a context has the server that you
choose, its login is used.`,
		Example: `orrery login
orrery get instances
orrery logs lobby-1 -f`,
	})
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = app.Version()
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.With(exit.Usage, err, "see "+cmd.CommandPath()+" --help")
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	flags := root.PersistentFlags()
	flags.StringVar(&a.Flags.Context, "context", "", "`name` of the context to use instead of the current one")
	flags.StringVar(&a.Flags.Server, "server", "", "`URL` of a gateway to use instead of those of the context")
	flags.StringVar(&a.Flags.CA, "ca", "", "`file` in PEM with the authorities that sign certificates of gateways, instead of those of the context")
	flags.StringVarP(&a.Flags.Output, "output", "o", "", "`format`: "+strings.Join(output.Formats, ", "))
	flags.BoolVar(&a.Flags.NoInput, "no-input", false, "fail instead of asking")
	flags.BoolVar(&a.Flags.NoHeaders, "no-headers", false, "print tables without headings")
	command.Duration(flags, &a.Flags.Timeout, "timeout", "give up after this `duration`, for example 30s; 0 never does")
	command.CompleteFlag(root, "output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp))
	command.CompleteFlag(root, "context", access.CompleteContexts(a))
	command.CompleteFlag(root, "server", cobra.NoFileCompletions)
	command.CompleteFlag(root, "timeout", cobra.NoFileCompletions)
	for _, s := range sections(a) {
		root.AddGroup(&cobra.Group{ID: s.id, Title: s.title + ":"})
		for _, cmd := range s.commands {
			cmd.GroupID = s.id
			root.AddCommand(cmd)
		}
	}
	return root
}

// Run runs the command in args and returns the exit code. It prints the error.
func Run(ctx context.Context, a *app.App, args []string) int {
	a.Interrupted = ctx.Done()
	cmd := New(a)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exit.OK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = exit.With(exit.Interrupted, errors.New("interrupted"), exit.HintOf(err))
	}
	code := exit.CodeOf(err)
	if exit.IsBrokenPipe(err) {
		return code // the reader has what it wanted
	}
	if code == exit.TimedOut && a.Flags.Timeout > 0 && errors.Is(err, context.DeadlineExceeded) {
		err = exit.With(exit.TimedOut, fmt.Errorf("not finished within --timeout %s", a.Flags.Timeout), exit.HintOf(err))
	}
	text, hint := err.Error(), a.HintOf(err)
	if hint == "" && strange(err) {
		hint = "check that an Orrery gateway answers there: orrery context list shows the servers you know"
	}
	a.Notef("orrery: %s", text)
	if hint != "" {
		a.Notef("  %s", hint)
	}
	return code
}

// strange reports whether err is an answer that Orrery does not give.
func strange(err error) bool {
	var refusal *orrery.Error
	return errors.Is(err, orrery.ErrAnswer) || errors.As(err, &refusal) && refusal.Code == "" && refusal.Message == ""
}
