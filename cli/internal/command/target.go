package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Targets returns the kind and the names in the arguments of a verb. The kind may be left out: then
// it is the first of allowed. stop lobby-1 and stop instance lobby-1 are the same, and so is
// stop instance/lobby-1.
func Targets(args []string, allowed ...string) (*kinds.Kind, []string, error) {
	if len(args) == 0 {
		return kinds.Get(allowed[0]), nil, nil
	}
	kind, names := kinds.Get(allowed[0]), args
	prefix, name, slash := strings.Cut(args[0], "/")
	switch found := kinds.Find(prefix); {
	case slash && found != nil:
		kind, names = found, append([]string{name}, args[1:]...)
		for i, other := range args[1:] {
			names[i+1] = strings.TrimPrefix(other, prefix+"/")
		}
	case found != nil && !slash:
		kind, names = found, args[1:]
	}
	for _, name := range allowed {
		if kind.Name == name {
			return kind, names, nil
		}
	}
	err := fmt.Errorf("this command does not act on %s", kind.Plural)
	return nil, nil, exit.With(exit.Usage, err, "it acts on "+strings.Join(allowed, " and ")+"; an object with the name of a kind is written "+allowed[0]+"/NAME")
}

// One returns the only name in the arguments, whose kind may be left out if it is the first of
// allowed.
func One(args []string, allowed ...string) (*kinds.Kind, string, error) {
	kind, names, err := Targets(args, allowed...)
	if err != nil {
		return nil, "", err
	}
	if len(names) != 1 {
		return nil, "", exit.With(exit.Usage, fmt.Errorf("the command takes the name of one %s", kind.Name), "")
	}
	return kind, names[0], nil
}

// NotFound adds similar names to a 404 about an object that does not belong to a group. Other errors
// stay as they are, also nil.
func NotFound(ctx context.Context, client *orrery.Client, err error, kind, name string) error {
	return app.Suggest(ctx, client, err, kinds.Get(kind), "", name)
}

// KindOf returns the kind of a name that the user typed.
func KindOf(name string) (*kinds.Kind, error) {
	if kind := kinds.Find(name); kind != nil {
		return kind, nil
	}
	hint := app.DidYouMean(name, kinds.Names(nil), "the kinds are "+strings.Join(kinds.Names(nil), ", "))
	return nil, exit.With(exit.Usage, fmt.Errorf("there is no kind %q", name), hint)
}

// KindAndNames returns the kind and the names in the arguments of a verb that acts on many kinds: group lobby arena, or
// group/lobby.
func KindAndNames(args []string) (*kinds.Kind, []string, error) {
	first, _, _ := strings.Cut(args[0], "/")
	kind, err := KindOf(first)
	if err != nil {
		return nil, nil, err
	}
	return Targets(args, kind.Name)
}

// GroupOf returns the group of the objects of a kind that belongs to one: that of --group, or that of the context.
func GroupOf(a *app.App, kind *kinds.Kind, flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	target, err := a.Target()
	if err != nil {
		return "", err
	}
	if target.Group == "" {
		return "", UsageError("pass --group NAME", "%s belong to a group", kind.Plural)
	}
	return target.Group, nil
}

// CompleteTargets completes the arguments of a verb that takes names of the kinds in allowed.
func CompleteTargets(a *app.App, allowed ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		kind, _, err := Targets(args, allowed...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := names(cmd, a, kind, toComplete)
		if len(args) == 0 && len(allowed) > 1 {
			found = append(found, allowed...)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteKindThenNames completes a kind that keep reports true for, then names of that kind.
func CompleteKindThenNames(a *app.App, keep func(*kinds.Kind) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return kinds.Names(keep), cobra.ShellCompDirectiveNoFileComp
		}
		kind := kinds.Find(args[0])
		if kind == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, a, kind, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNames completes names of one kind, for arguments and for flags such as --group.
func CompleteNames(a *app.App, kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, a, kinds.Get(kind), toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletionTimeout bounds how long a shell waits for names.
const CompletionTimeout = 2 * time.Second

// names returns the names of a kind that begin with prefix, and none when the server does not answer in time.
func names(cmd *cobra.Command, a *app.App, kind *kinds.Kind, prefix string) []string {
	group := ""
	if flag := cmd.Flag("group"); flag != nil {
		group = flag.Value.String()
	}
	return slices.DeleteFunc(NamesIn(cmd.Context(), a, kind, group), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// NamesIn returns the names of a kind in a group for completion, and none when the server does not
// answer in time.
func NamesIn(ctx context.Context, a *app.App, kind *kinds.Kind, group string) []string {
	ctx, cancel := context.WithTimeout(ctx, CompletionTimeout)
	defer cancel()
	client, err := a.Client()
	if err != nil || kind.Singleton {
		return nil
	}
	found, err := app.Names(ctx, client, kind, group)
	if err != nil {
		return nil
	}
	return found
}

// CompleteFlag sets how the value of a flag is completed.
func CompleteFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is not declared
	}
}
