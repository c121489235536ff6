package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// changeOptions are the flags of the commands that make a version.
type changeOptions struct {
	reason string
	dryRun bool
}

func (o *changeOptions) declare(a *app.App, cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` for the history")
	command.CompleteFlag(cmd, "reason", cobra.NoFileCompletions)
	command.DryRunFlag(a, cmd, &o.dryRun)
}

func set(a *app.App) *cobra.Command {
	o := &changeOptions{}
	cmd := command.New(a, command.Spec{
		Use: "set KEY=VALUE... KEY-...", Short: "Set and remove settings",
		Long: `KEY=VALUE sets a setting of all gateways, and KEY- removes it: each gateway uses its own again. A list may have commas.
A change that would shut you out is refused.`,
		Example: `orrery config set security.lockout.maxFailures=10 --reason 'fewer lockouts'
orrery config set http.cors.allowedOrigins=https://panel.example.org --dry-run
orrery config set security.lockout.maxFailures-`,
		Args: command.Between(1, -1, "KEY=VALUE or KEY-"), Complete: completeKeys(a),
		Run: func(ctx context.Context, args []string) error {
			return o.change(ctx, a, func(now map[string]any) (map[string]any, error) { return assignments(now, args) })
		},
	})
	o.declare(a, cmd)
	return cmd
}

func addOrRemove(a *app.App, adds bool) *cobra.Command {
	o := &changeOptions{}
	verb, short := "remove", "Remove entries from a list"
	if adds {
		verb, short = "add", "Add entries to a list"
	}
	cmd := command.New(a, command.Spec{
		Use: verb + " KEY VALUE...", Short: short,
		Long:    "The other entries stay: those of the cluster, or of the gateway that answers if the cluster does not set the list.",
		Example: "orrery config " + verb + " http.cors.allowedOrigins https://panel.example.org\norrery config " + verb + " network.trustedProxies 10.0.0.0/8 --dry-run",
		Args:    command.Between(2, -1, "a setting and entries of its list"), Complete: completeKeys(a),
		Run: func(ctx context.Context, args []string) error {
			return o.change(ctx, a, func(now map[string]any) (map[string]any, error) { return entries(now, args[0], args[1:], adds) })
		},
	})
	o.declare(a, cmd)
	return cmd
}

// completeKeys completes the keys of settings.
func completeKeys(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), command.CompletionTimeout)
		defer cancel()
		client, err := a.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		config, err := client.GetClusterConfig(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(flat(config.Effective))), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// assignments returns the patch that arguments such as KEY=VALUE and KEY- describe. now has the values in effect, whose
// types say how a text is read.
func assignments(now map[string]any, args []string) (map[string]any, error) {
	changes, others, err := command.Assignments(args, "")
	switch {
	case err != nil:
		return nil, err
	case len(others) > 0:
		return nil, command.UsageError("orrery config show lists the keys", "%q is not KEY=VALUE or KEY-", others[0])
	}
	patch := map[string]any{}
	for key, text := range changes {
		if patch[key] = nil; text != nil {
			patch[key] = parse(now[key], *text)
		}
	}
	return patch, nil
}

// parse reads the value of a setting. The server checks it.
func parse(now any, text string) any {
	if _, isList := now.([]any); isList && !strings.HasPrefix(text, "[") {
		return slices.DeleteFunc(strings.Split(text, ","), func(entry string) bool { return entry == "" })
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// entries returns the patch that adds entries to a list or removes them.
func entries(now map[string]any, key string, change []string, adds bool) (map[string]any, error) {
	have, isList := now[key].([]any)
	if _, known := now[key]; !known {
		err := fmt.Errorf("there is no setting %q", key)
		return nil, exit.With(exit.NotFound, err, app.DidYouMean(key, slices.Sorted(maps.Keys(now)), "orrery config show lists the keys"))
	} else if !isList {
		return nil, exit.With(exit.Failed, fmt.Errorf("%s is not a list", key), "orrery config set "+key+"=VALUE sets it")
	}
	list := []string{}
	for _, entry := range have {
		if text, ok := entry.(string); ok && (adds || !slices.Contains(change, text)) {
			list = append(list, text)
		}
	}
	if adds {
		list = append(list, slices.DeleteFunc(slices.Clone(change), func(entry string) bool { return slices.Contains(list, entry) })...)
	} else if len(list) == len(have) {
		return nil, exit.With(exit.NotFound, fmt.Errorf("%s has no entry %s", key, strings.Join(change, ", ")), "orrery config show lists the entries")
	}
	return map[string]any{key: list}, nil
}

// change makes a version of the settings. patchOf returns what to change of the values in effect.
func (o *changeOptions) change(ctx context.Context, a *app.App, patchOf func(now map[string]any) (map[string]any, error)) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	config, err := client.GetClusterConfig(ctx)
	if err != nil {
		return err
	}
	patch, err := patchOf(flat(config.Effective))
	if err != nil {
		return err
	}
	request := &orrery.ClusterConfigUpdate{ParentVersion: config.ActiveVersion, Patch: patch}
	if o.reason != "" {
		request.Reason = &o.reason
	}
	if o.dryRun {
		planned, err := client.UpdateClusterConfigDryRun(ctx, request)
		if err != nil {
			return nameSetting(err)
		}
		return a.ShowDiff(planned, "config", planned.Diff)
	}
	answer, err := client.UpdateClusterConfig(ctx, request)
	switch {
	case errors.Is(err, orrery.ErrConflict):
		return exit.Hint(err, "somebody else changed the settings meanwhile: run the command again")
	case err != nil:
		return nameSetting(err)
	case answer.Version == config.ActiveVersion:
		return a.Say(answer, strconv.FormatInt(answer.Version, 10), "nothing changes: version %d is active", answer.Version)
	}
	return a.Say(answer, strconv.FormatInt(answer.Version, 10), "version %d of the settings is active", answer.Version)
}

func rollback(a *app.App) *cobra.Command {
	o := &changeOptions{}
	cmd := command.New(a, command.Spec{
		Use: "rollback VERSION", Short: "Go back to an earlier version of the settings",
		Long: "Version 0 has no settings: each gateway uses its own.",
		Example: `orrery config rollback 3 --dry-run
orrery config rollback 0`,
		Args: command.Between(1, 1, "a version"),
		Run: func(ctx context.Context, args []string) error {
			version, err := parseVersion(args[0])
			if err != nil {
				return err
			}
			return o.rollback(ctx, a, version)
		},
	})
	o.declare(a, cmd)
	return cmd
}

func (o *changeOptions) rollback(ctx context.Context, a *app.App, version int64) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	request := &orrery.ClusterConfigRollbackRequest{TargetVersion: version}
	if o.reason != "" {
		request.Reason = &o.reason
	}
	if o.dryRun {
		planned, err := client.RollbackClusterConfigDryRun(ctx, request)
		if err != nil {
			return err
		}
		return a.ShowDiff(planned, "config", planned.Diff)
	}
	answer, err := client.RollbackClusterConfig(ctx, request)
	if err != nil {
		return err
	}
	return a.Say(answer, strconv.FormatInt(answer.ActiveVersion, 10), "version %d of the settings is active", answer.ActiveVersion)
}

// nameSetting names the setting in a refusal as users write it: without the name of the field of the API that holds it.
func nameSetting(err error) error {
	var refusal *orrery.Error
	if !errors.As(err, &refusal) {
		return err
	}
	named := *refusal
	named.Message = strings.TrimPrefix(refusal.Message, "patch.")
	return &named
}
