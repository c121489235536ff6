package content

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func sourceCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "source", Aliases: []string{"sources"},
		Short: "Synchronize templates from git, archives and buckets",
		Long:  "orrery get sources lists the sources with the result of the last synchronization. orrery apply creates and changes them.",
		Example: `orrery source sync plugins --wait
orrery source pause plugins`,
	})
	cmd.AddCommand(sourceSync(a), sourcePause(a, "pause", "Stop synchronizing a source", true), sourcePause(a, "resume", "Synchronize a source again", false), sourceCredentials(a), sourceWebhook(a))
	return cmd
}

type syncOptions struct {
	all, wait bool
	confirm   string
}

func sourceSync(a *app.App) *cobra.Command {
	var o syncOptions
	cmd := command.New(a, command.Spec{
		Use: "sync NAME...|--all", Short: "Synchronize sources now",
		Long: `Without --wait it returns when the server has begun. If a synchronization would remove templates or groups, it stops and
the source is HELD: --confirm with the text of "held" lets it remove them.`,
		Example: `orrery source sync plugins --wait
orrery source sync --all`,
		Args: command.Between(0, -1, ""), Complete: command.CompleteNames(a, "source"),
		Run: func(ctx context.Context, args []string) error {
			if o.all == (len(args) > 0) || o.confirm != "" && len(args) != 1 {
				return command.UsageError("name sources, or pass --all; --confirm is for one source", "source sync does not know what to synchronize")
			}
			return syncSources(ctx, a, o, args)
		},
	})
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "all sources that are not paused")
	flags.BoolVar(&o.wait, "wait", false, "return when the synchronization has ended, and fail if it failed")
	flags.StringVar(&o.confirm, "confirm", "", "`text` of status.held of the source, to confirm the removals that it names")
	command.CompleteFlag(cmd, "confirm", cobra.NoFileCompletions)
	return cmd
}

func syncSources(ctx context.Context, a *app.App, o syncOptions, names []string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if o.all {
		for s, err := range client.AllTemplateSources(ctx, nil) {
			if err != nil {
				return err
			}
			if !s.Paused {
				names = append(names, s.Name)
			}
		}
		if len(names) == 0 {
			a.Notef("no sources found")
			return nil
		}
	}
	return command.Each(ctx, a, names, func(name string) error {
		return command.OnObject(ctx, a, "source", name, func(client *orrery.Client) error { return syncSource(ctx, a, client, o, name) })
	})
}

func syncSource(ctx context.Context, a *app.App, client *orrery.Client, o syncOptions, name string) error {
	body := &orrery.SyncTemplateSourceRequest{}
	if o.confirm != "" {
		body.Confirm = &o.confirm
	}
	done, err := client.SyncTemplateSource(ctx, name, body)
	if err != nil {
		return err
	}
	if !o.wait {
		return a.Say(done, name, "source %s is being synchronized", name)
	}
	row, err := progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("source"), Name: name, Until: progress.Existing(synchronized)}}, Goal: "synchronized",
		Afterwards: "the synchronization continues on the server", Refresh: sourceRefresh,
	})
	if err != nil {
		return err
	}
	return a.Say(row, name, "source %s is synchronized", name)
}

// sourceRefresh is how often a source is read while it is synchronized: the end has no event.
const sourceRefresh = time.Second

// synchronized judges a source whose synchronization was requested.
func synchronized(_ context.Context, row output.Row) progress.Step {
	state, message := gjson.GetBytes(row, "status.state").String(), gjson.GetBytes(row, "status.message").String()
	switch state {
	case "IN_SYNC", "PAUSED":
		return progress.Step{Done: true}
	case "FAILED":
		return progress.Step{Err: fmt.Errorf("source %s: %s", gjson.GetBytes(row, "name"), message)}
	case "HELD":
		held := gjson.GetBytes(row, "status.held").String()
		err := fmt.Errorf("source %s is held: %s", gjson.GetBytes(row, "name"), message)
		return progress.Step{Err: exit.With(exit.Conflict, err, fmt.Sprintf("confirm the removals: orrery source sync %s --confirm %s", gjson.GetBytes(row, "name"), held))}
	}
	return progress.Step{Text: state}
}

func sourcePause(a *app.App, verb, short string, paused bool) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: verb + " NAME...", Short: short, Example: "orrery source " + verb + " plugins",
		Args: command.Between(1, -1, "the name of a source"), Complete: command.CompleteNames(a, "source"),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args, func(name string) error {
				done, err := changeSource(ctx, a, name, dryRun, func(fields map[string]any) error { fields["paused"] = paused; return nil })
				if err != nil {
					return err
				}
				return a.Say(done, name, "source %s %sd", name, wouldBe(dryRun)+verb)
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

// builtInSource is the kind of the source that reads the directory of templates on the server.
const builtInSource = "directory"

// changeSource reads a source, changes it and writes it back. It sends fields that this version does
// not know, too, because a write replaces all fields.
func changeSource(ctx context.Context, a *app.App, name string, dryRun bool, f func(fields map[string]any) error) (json.RawMessage, error) {
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	kind := kinds.Get("source")
	row, tag, err := app.Get(ctx, client, kind, "", name)
	if err != nil {
		return nil, err
	}
	if gjson.GetBytes(row, "kind").String() == builtInSource {
		return nil, exit.With(exit.Conflict, fmt.Errorf("source %s is built in and cannot be changed", name), "")
	}
	fields := map[string]any{}
	if err := json.Unmarshal(row, &fields); err != nil {
		return nil, err
	}
	if err := f(fields); err != nil {
		return nil, err
	}
	request := orrery.Request{Method: http.MethodPut, Path: kind.ObjectPath("", name), Body: fields, Header: http.Header{"If-Match": {tag}}}
	if dryRun {
		request.Query = map[string][]string{"dryRun": {"true"}}
	}
	var written json.RawMessage
	err = client.Call(ctx, request, &written)
	return written, err
}

// wouldBe returns the words before a participle in a dry run; nothing otherwise.
func wouldBe(dryRun bool) string {
	if dryRun {
		return "would be "
	}
	return ""
}

// credential is a credential of a source and the flags that give it.
type credential struct {
	name, flag, usage, value string
}

func sourceCredentials(a *app.App) *cobra.Command {
	var user string
	var replace, dryRun bool
	all := []credential{
		{name: "token", flag: "token-file", usage: "`file` with the token or password for http and git"},
		{name: "sshKey", flag: "ssh-key-file", usage: "`file` with a private key in PEM format without a passphrase"},
		{name: "accessKey", flag: "access-key-file", usage: "`file` with the access key of a bucket"},
		{name: "secretKey", flag: "secret-key-file", usage: "`file` with the secret key of a bucket"},
		{name: "webhook", flag: "webhook-file", usage: "`file` with the secret that signs the calls of a git host"},
	}
	cmd := command.New(a, command.Spec{
		Use: "set-credentials NAME", Short: "Replace the credentials of a source",
		Long: `Without flags it asks for a token. All credentials are replaced: it is refused to drop one that the source has, unless
--replace is given. They are stored encrypted and never shown.`,
		Example: `orrery source set-credentials plugins --token-file token.txt
orrery source set-credentials plugins --user git --ssh-key-file id_ed25519 --webhook-file webhook.txt`,
		Args: command.Between(1, 1, "the name of a source"), Complete: command.CompleteFirst(a, "source", nil),
		Run: func(ctx context.Context, args []string) error {
			values, err := readCredentials(a, args[0], user, all)
			if err != nil {
				return err
			}
			done, err := changeSource(ctx, a, args[0], dryRun, func(fields map[string]any) error {
				fields["credentials"] = values
				return keepsCredentials(args[0], fields["credentialNames"], values, replace)
			})
			if err != nil {
				return err
			}
			return a.Say(done, args[0], "the credentials of source %s %sset", args[0], cmp.Or(wouldBe(dryRun), "are "))
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&user, "user", "", "`name` of the user for git")
	for i := range all {
		flags.StringVar(&all[i].value, all[i].flag, "", all[i].usage+"; - is standard input")
	}
	flags.BoolVar(&replace, "replace", false, "also drop credentials that are not given")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "user", cobra.NoFileCompletions)
	return cmd
}

// readCredentials returns the credentials that the flags name, or a token that it asks for.
func readCredentials(a *app.App, source, user string, all []credential) (map[string]string, error) {
	values := map[string]string{}
	for _, c := range all {
		if c.value == "" {
			continue
		}
		secret, err := a.ReadSecret(c.value, "", "")
		if err != nil {
			return nil, err
		}
		if values[c.name] = secret; c.name == "sshKey" {
			values[c.name] += "\n" // PEM ends with a line break
		}
	}
	if len(values) == 0 {
		token, err := a.AskSecret("token of "+source, "--token-file FILE")
		if err != nil {
			return nil, err
		}
		values["token"] = token
	}
	if user != "" {
		values["user"] = user
	}
	return values, nil
}

// keepsCredentials fails if a credential that the source has is not among those that are given.
func keepsCredentials(source string, present any, values map[string]string, replace bool) error {
	var had, given []string
	names, _ := present.([]any) // absent without credentials
	for _, name := range names {
		had = append(had, fmt.Sprint(name))
	}
	for name := range values {
		given = append(given, name)
	}
	return keepsKeys("source "+source, had, given, replace)
}

func sourceWebhook(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "webhook NAME", Short: "Show the URL that a git host calls after a push",
		Long:    "The git host signs its calls with the secret that orrery source set-credentials NAME --webhook-file sets.",
		Example: "orrery source webhook plugins",
		Args:    command.Between(1, 1, "the name of a source"), Complete: command.CompleteFirst(a, "source", nil),
		Run: func(ctx context.Context, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			kind := kinds.Get("source")
			row, _, err := app.Get(ctx, client, kind, "", args[0])
			if err != nil {
				return err
			}
			address := client.Address() + kind.ObjectPath("", args[0]) + "/webhook"
			signed := gjson.GetBytes(row, `credentialNames.#(=="webhook")`).Exists()
			if !signed {
				a.Notef("the source has no webhook secret, so calls are refused: orrery source set-credentials %s --webhook-file FILE", args[0])
			}
			return a.Say(map[string]any{"url": address, "hasSecret": signed}, address, "%s", address)
		},
	})
}
