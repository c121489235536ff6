package content

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func catalogCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "catalog", Short: "Manage the software that groups run, by platform and version",
		Example: `orrery catalog list
orrery catalog add paper 1.21.4 --url https://example.org/paper-1.21.4.jar --sha256 5ffef465eeeb5f2a3c23a24419d97c51afd7dbb4923ff42df9a3f58bba1ccfba`,
	})
	cmd.AddCommand(catalogList(a), catalogAdd(a), catalogSet(a), catalogRecommend(a), catalogRemove(a))
	return cmd
}

func catalogList(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "list [PLATFORM]", Aliases: []string{"ls"}, Short: "List the versions",
		Example: "orrery catalog list paper",
		Args:    command.Between(0, 1, "a platform"), Complete: completePlatforms(a),
		Run: func(ctx context.Context, args []string) error {
			query := url.Values{}
			if len(args) == 1 {
				query.Set("platform", args[0])
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			kind := kinds.Get("artifact")
			rows, err := app.List(ctx, client, kind, "", query)
			if err != nil {
				return err
			}
			return command.PrintRows(a, kind, rows)
		},
	})
}

// completePlatforms completes a platform and then its versions.
func completePlatforms(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		client, err := a.Client()
		if err != nil || len(args) > 1 {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), command.CompletionTimeout)
		defer cancel()
		rows, err := app.List(ctx, client, kinds.Get("artifact"), "", nil)
		if err != nil {
			return nil, none
		}
		var names []string
		for _, row := range rows {
			switch platform := gjson.GetBytes(row, "platform").String(); {
			case len(args) == 0:
				names = append(names, platform)
			case platform == args[0]:
				names = append(names, gjson.GetBytes(row, "version").String())
			}
		}
		return names, none
	}
}

const platformAndVersion = "a platform and a version"

// artifactFlags are the flags for the fields of a version.
type artifactFlags struct{ url, sum, category, format *string }

// declare adds the flags to a command.
func (f *artifactFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, flag := range []struct {
		target      **string
		name, usage string
	}{
		{&f.url, "url", "`URL` of the file"},
		{&f.sum, "sha256", "`digest` of the file"},
		{&f.category, "category", "`name` of the category, for example server or proxy"},
		{&f.format, "config-format", "`name` of the format of the platform's configuration"},
	} {
		command.OptionalText(flags, flag.target, flag.name, flag.usage, nil)
		command.CompleteFlag(cmd, flag.name, cobra.NoFileCompletions)
	}
}

func catalogAdd(a *app.App) *cobra.Command {
	var f artifactFlags
	cmd := command.New(a, command.Spec{
		Use: "add PLATFORM VERSION --url URL", Short: "Add a version",
		Long:    "Nodes download the file when an instance needs it. With --sha256 they refuse any other file.",
		Example: "orrery catalog add paper 1.21.4 --url https://example.org/paper-1.21.4.jar",
		Args:    command.Between(2, 2, platformAndVersion), Complete: completePlatforms(a),
		Run: func(ctx context.Context, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			added, err := client.CreateArtifact(ctx, args[0], &orrery.ArtifactFields{
				Version: &args[1], DownloadURL: f.url, SHA256: f.sum, Category: f.category, ConfigFormat: f.format,
			})
			if err != nil {
				return err
			}
			return a.Say(added, args[1], "%s %s added", args[0], args[1])
		},
	})
	f.declare(cmd)
	if err := cmd.MarkFlagRequired("url"); err != nil {
		panic(err) // the flag is not declared
	}
	return cmd
}

func catalogSet(a *app.App) *cobra.Command {
	var f artifactFlags
	var version *string
	cmd := command.New(a, command.Spec{
		Use: "set PLATFORM VERSION", Short: "Change a version",
		Long: `Fields without a flag stay as they are. Without --sha256, another --url gets the digest of the file that is downloaded
from it. A version that groups name cannot be renamed.`,
		Example: `orrery catalog set paper 1.21.4 --url https://example.org/paper-1.21.4-2.jar
orrery catalog set paper 1.21.4 --rename 1.21.4-2`,
		Args: command.Between(2, 2, platformAndVersion), Complete: completePlatforms(a),
		Run: func(ctx context.Context, args []string) error {
			patch := orrery.Patch{}
			for field, value := range map[string]*string{"version": version, "downloadUrl": f.url, "sha256": f.sum, "category": f.category, "configFormat": f.format} {
				if value != nil {
					patch[field] = *value
				}
			}
			if len(patch) == 0 {
				return command.UsageError("orrery catalog set --help lists the flags", "no flag says what to change")
			}
			return onArtifact(ctx, a, args, func(client *orrery.Client) error {
				done, err := client.UpdateArtifact(ctx, args[0], args[1], patch, nil)
				if err != nil {
					return err
				}
				return a.Say(done, done.Version, "%s %s changed", args[0], done.Version)
			})
		},
	})
	f.declare(cmd)
	command.OptionalText(cmd.Flags(), &version, "rename", "new `name` of the version", nil)
	command.CompleteFlag(cmd, "rename", cobra.NoFileCompletions)
	return cmd
}

func catalogRecommend(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "recommend PLATFORM VERSION", Short: "Make a version the default for groups without a version",
		Example: "orrery catalog recommend paper 1.21.4",
		Args:    command.Between(2, 2, platformAndVersion), Complete: completePlatforms(a),
		Run: func(ctx context.Context, args []string) error {
			return onArtifact(ctx, a, args, func(client *orrery.Client) error {
				done, err := client.SetRecommendedArtifact(ctx, args[0], args[1], nil)
				if err != nil {
					return err
				}
				return a.Say(done, args[1], "%s %s is recommended", args[0], args[1])
			})
		},
	})
}

func catalogRemove(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "rm PLATFORM VERSION", Aliases: []string{"delete"}, Short: "Remove a version",
		Example: "orrery catalog rm paper 1.20.1",
		Args:    command.Between(2, 2, platformAndVersion), Complete: completePlatforms(a),
		Run: func(ctx context.Context, args []string) error {
			return onArtifact(ctx, a, args, func(client *orrery.Client) error {
				if err := client.DeleteArtifact(ctx, args[0], args[1], nil); err != nil {
					return err
				}
				return a.Say(map[string]any{"id": args[1], "platform": args[0]}, args[1], "%s %s removed", args[0], args[1])
			})
		},
	})
}

// onArtifact runs an act on a version of a platform. If it does not exist, the error names a similar
// one.
func onArtifact(ctx context.Context, a *app.App, args []string, act func(*orrery.Client) error) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	err = act(client)
	if !errors.Is(err, orrery.ErrNotFound) {
		return err
	}
	var known []string
	rows, listErr := app.List(ctx, client, kinds.Get("artifact"), "", nil)
	if listErr != nil {
		return err
	}
	for _, row := range rows {
		known = append(known, fmt.Sprintf("%s %s", gjson.GetBytes(row, "platform"), gjson.GetBytes(row, "version")))
	}
	return exit.With(exit.NotFound, err, app.DidYouMean(args[0]+" "+args[1], known, "orrery catalog list lists the versions"))
}
