// Package command has the parts that the commands share: how they are declared, what their
// arguments mean, how they select objects, and what completion offers.
package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/spf13/cobra"
)

// Spec declares a command.
type Spec struct {
	// Use is the usage line without "orrery", for example "scale [group] GROUP --to NUMBER".
	Use string
	// Aliases are other names of the command.
	Aliases []string
	// Short is the first sentence of the help, in the imperative and without a period.
	Short string
	// Long is the rest of the help. It may be empty.
	Long string
	// Example has one command a line. Each is run against failing servers by a test.
	Example string
	// Args checks the arguments; nil accepts none.
	Args cobra.PositionalArgs
	// Complete completes the arguments. It may be nil.
	Complete cobra.CompletionFunc
	// Local says that the command does not talk to a server.
	Local bool
	// Following says that the command runs until it is stopped. FollowFlags are flags that make it do so.
	Following   bool
	FollowFlags []string
	// OnlyText says that the command prints a text that has no other format, so it takes no -o.
	OnlyText bool
	// EmptyArgs says that an argument may be empty.
	EmptyArgs bool
	// Run runs the command; nil if it only has subcommands.
	Run func(ctx context.Context, args []string) error
}

// New returns the command of spec. Its context ends with --timeout and with Ctrl-C.
func New(a *app.App, spec Spec) *cobra.Command {
	cmd := &cobra.Command{
		Use: spec.Use, Aliases: spec.Aliases, Short: spec.Short, Example: indent(spec.Example),
		Args: spec.Args, ValidArgsFunction: spec.Complete, DisableFlagsInUseLine: true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.Long = spec.Short + "."
	if spec.Long != "" {
		cmd.Long += "\n\n" + strings.TrimSpace(spec.Long)
	}
	cmd.Annotations = map[string]string{}
	if spec.Local {
		cmd.Annotations[localAnnotation] = "true"
	}
	if spec.Following {
		cmd.Annotations[followAnnotation] = "*"
	} else if len(spec.FollowFlags) > 0 {
		cmd.Annotations[followAnnotation] = strings.Join(spec.FollowFlags, " ")
	}
	if spec.Args == nil {
		cmd.Args = None
	}
	if spec.Complete == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if spec.Run != nil {
		cmd.Args = withFlags(a, spec.OnlyText, spec.EmptyArgs, cmd.Args)
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.Context(cmd.Context())
			defer cancel()
			return spec.Run(ctx, args)
		}
		return cmd
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return noSubcommand(cmd, args) }
	return cmd
}

// withFlags checks -o, required flags and flags that exclude each other before the arguments, so before the command does
// something. Otherwise cobra does so later, with an error that is not one of usage.
func withFlags(a *app.App, onlyText, emptyArgs bool, args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, values []string) error {
		if _, err := a.Printer(); err != nil {
			return err
		}
		if onlyText && a.Flags.Output != "" {
			return UsageError("leave -o out", "%s prints a text that has no other format", cmd.CommandPath())
		}
		for _, err := range []error{cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()} {
			if err != nil {
				return exit.With(exit.Usage, err, "see "+cmd.CommandPath()+" --help")
			}
		}
		if err := args(cmd, values); err != nil {
			return err
		}
		if slices.Contains(values, "") && !emptyArgs {
			return UsageError("a variable of the shell may have no value", "an argument is empty")
		}
		return nil
	}
}

func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if verbFirst := kindFirst(cmd, args); verbFirst != "" {
		hint = "the verb comes first: " + verbFirst
	} else if similar := cmd.SuggestionsFor(args[0]); args[0] != "" && len(similar) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + similar[0] + "?"
	}
	return exit.With(exit.Usage, fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), hint)
}

// kindFirst returns the command that was meant by arguments that begin with a kind, such as crash list or group delete
// lobby; empty if there is none.
func kindFirst(cmd *cobra.Command, args []string) string {
	words := args
	if cmd.HasParent() {
		words = append([]string{cmd.Name()}, args...)
	}
	kind := kinds.Find(words[0])
	if kind == nil {
		return ""
	}
	verb, names := "get", words[1:]
	if len(names) > 0 {
		found, _, err := cmd.Root().Find(names[:1])
		switch {
		case err == nil && found.HasParent():
			verb, names = found.Name(), names[1:]
		case cmd.HasParent():
			return ""
		}
	}
	if verb == "get" && len(names) == 0 {
		return "orrery get " + kind.Plural
	}
	return strings.Join(append([]string{"orrery", verb, kind.Name}, names...), " ")
}

func indent(example string) string {
	lines := strings.Split(strings.TrimSpace(example), "\n")
	for i, line := range lines {
		lines[i] = "  " + strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

// None accepts no arguments.
func None(cmd *cobra.Command, args []string) error { return Between(0, 0, "")(cmd, args) }

// Between accepts from least to most arguments; most -1 means any number. what names them in the
// error, for example "the name of a group".
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := "the usage is: orrery " + strings.TrimPrefix(cmd.UseLine(), "orrery ")
		switch {
		case len(args) < least:
			return exit.With(exit.Usage, fmt.Errorf("%s needs %s", cmd.CommandPath(), what), hint)
		case most >= 0 && len(args) > most && most == 0:
			return exit.With(exit.Usage, fmt.Errorf("%s takes no arguments, not %q", cmd.CommandPath(), args[0]), hint)
		case most >= 0 && len(args) > most:
			return exit.With(exit.Usage, fmt.Errorf("%s takes %s, not also %q", cmd.CommandPath(), what, args[most]), hint)
		}
		return nil
	}
}

// UsageError returns an error with exit code 2.
func UsageError(hint, format string, args ...any) error {
	return exit.With(exit.Usage, fmt.Errorf(format, args...), hint)
}

// ErrSomeFailed is the error of a command that acted on several objects and printed the failures.
var ErrSomeFailed = errors.New("some of them failed")

// The annotations that keep Spec.Local, Spec.Following and Spec.FollowFlags.
const (
	localAnnotation  = "local"
	followAnnotation = "follow"
)

// IsLocal reports whether a command does not talk to a server.
func IsLocal(cmd *cobra.Command) bool { return cmd.Annotations[localAnnotation] != "" }

// Follows reports whether a command with these arguments runs until it is stopped.
func Follows(cmd *cobra.Command, args []string) bool {
	flags := cmd.Annotations[followAnnotation]
	return flags == "*" || slices.ContainsFunc(strings.Fields(flags), func(flag string) bool { return slices.Contains(args, flag) })
}
