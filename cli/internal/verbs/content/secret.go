package content

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func secretCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "secret", Aliases: []string{"secrets"},
		Short:   "Set and remove secrets, and rotate the key that seals them",
		Long:    "orrery get secrets lists the names. Values are never shown.",
		Example: "orrery secret set database",
	})
	cmd.AddCommand(secretSet(a), secretRemove(a), secretRotateKey(a))
	return cmd
}

type secretOptions struct {
	valueFile string
	fromFile  []string
	ask       []string
	replace   bool
	groups    *string
	dryRun    bool
}

func secretSet(a *app.App) *cobra.Command {
	var o secretOptions
	cmd := command.New(a, command.Spec{
		Use: "set NAME", Short: "Create a secret or replace its values",
		Long: `Values are typed or read from files. They are not arguments, because the command line is stored in the history of the
shell. Without flags it asks for one value. All values of the secret are replaced: it is refused to drop a key that the secret
has, unless --replace is given. The line break at the end of a file is not part of the value.

--groups names the labels of the groups that may use the secret. Alone it keeps the values, and "" lets all groups use it.`,
		Example: `orrery secret set database
orrery secret set database --value-file password.txt
orrery secret set mail --from-file user=user.txt --from-file password=password.txt
orrery secret set mail --groups game=bedwars`,
		Args: command.Between(1, 1, "the name of a secret"), Complete: command.CompleteFirst(a, "secret", nil),
		Run: func(ctx context.Context, args []string) error { return setSecret(ctx, a, o, args[0]) },
	})
	flags := cmd.Flags()
	flags.StringVar(&o.valueFile, "value-file", "", "`file` with the value; - is standard input")
	flags.StringArrayVar(&o.fromFile, "from-file", nil, "`KEY=FILE` with the value of a key; repeat it for more")
	flags.StringArrayVar(&o.ask, "key", nil, "`name` of a key; the command asks for its value; repeat it for more")
	flags.BoolVar(&o.replace, "replace", false, "also drop keys that are not given")
	flags.Func("groups", "`labels` of the groups that may use it, such as game=bedwars", func(labels string) error {
		o.groups = &labels
		return nil
	})
	command.DryRunFlag(a, cmd, &o.dryRun)
	cmd.MarkFlagsMutuallyExclusive("value-file", "from-file")
	cmd.MarkFlagsMutuallyExclusive("value-file", "key")
	command.CompleteFlag(cmd, "key", cobra.NoFileCompletions)
	return cmd
}

func setSecret(ctx context.Context, a *app.App, o secretOptions, name string) error {
	body, keys, err := readValues(a, o, name)
	if err != nil {
		return err
	}
	body.Selector = o.groups
	client, err := a.Client()
	if err != nil {
		return err
	}
	present, err := client.GetSecret(ctx, name)
	if err != nil && !errors.Is(err, orrery.ErrNotFound) {
		return err
	}
	params := &orrery.ReplaceSecretParams{IfNoneMatch: "*"}
	if present != nil {
		if body.Value != nil || body.Values != nil {
			if err := keepsKeys("secret "+name, present.Keys, keys, o.replace); err != nil {
				return err
			}
		}
		params = &orrery.ReplaceSecretParams{IfMatch: present.ETag}
	}
	if o.dryRun {
		would, err := client.ReplaceSecretDryRun(ctx, name, body, params)
		if err != nil {
			return err
		}
		return a.Say(would, name, "secret %s would be set", name)
	}
	done, err := client.ReplaceSecret(ctx, name, body, params)
	if err != nil {
		return err
	}
	return a.Say(done, name, "secret %s set, version %d", name, done.Version)
}

// keepsKeys fails if a key that an object has is not among those that are given.
func keepsKeys(of string, present, given []string, replace bool) error {
	for _, key := range present {
		if !replace && !slices.Contains(given, key) {
			err := fmt.Errorf("%s has %s, which would be lost", of, keyName(key))
			return exit.With(exit.Conflict, err, "give all values, or pass --replace")
		}
	}
	return nil
}

func keyName(key string) string {
	if key == "" {
		return "a value without a key"
	}
	return "the key " + key
}

// readValues returns the values that the flags name, or one that it asks for, and their keys. With
// --groups alone it returns no values.
func readValues(a *app.App, o secretOptions, name string) (*orrery.SecretFields, []string, error) {
	if o.groups != nil && o.valueFile == "" && len(o.fromFile)+len(o.ask) == 0 {
		return &orrery.SecretFields{}, nil, nil
	}
	if len(o.fromFile)+len(o.ask) == 0 {
		value, err := a.ReadSecret(o.valueFile, "value of "+name, "--value-file FILE or --from-file KEY=FILE")
		return &orrery.SecretFields{Value: &value}, []string{""}, err
	}
	body := &orrery.SecretFields{Values: map[string]string{}}
	var keys []string
	for _, pair := range o.fromFile {
		key, file, ok := strings.Cut(pair, "=")
		if !ok || key == "" || file == "" {
			return nil, nil, command.UsageError("an example is --from-file password=password.txt", "--from-file %s is not KEY=FILE", pair)
		}
		value, err := a.ReadSecret(file, "", "")
		if err != nil {
			return nil, nil, err
		}
		body.Values[key], keys = value, append(keys, key)
	}
	for _, key := range o.ask {
		value, err := a.AskSecret("value of "+key, "--from-file "+key+"=FILE")
		if err != nil {
			return nil, nil, err
		}
		body.Values[key], keys = value, append(keys, key)
	}
	return body, keys, nil
}

func secretRemove(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Delete secrets with all their values",
		Example: "orrery secret rm database --dry-run",
		Args:    command.Between(1, -1, "the name of a secret"), Complete: command.CompleteNames(a, "secret"),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args, func(name string) error {
				return command.OnObject(ctx, a, "secret", name, func(client *orrery.Client) error { return removeSecret(ctx, a, client, name, dryRun) })
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func removeSecret(ctx context.Context, a *app.App, client *orrery.Client, name string, dryRun bool) error {
	if dryRun {
		would, err := client.DeleteSecretDryRun(ctx, name, nil)
		if err != nil {
			return err
		}
		return a.Say(would, name, "secret %s would be deleted", name)
	}
	if err := client.DeleteSecret(ctx, name, nil); err != nil {
		return err
	}
	return a.Say(map[string]any{"id": name}, name, "secret %s deleted", name)
}
