// Package templates has the commands of templates.
package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{templateCommand(a)} }

func templateCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "template", Aliases: []string{"templates", "tpl"},
		Short: "Change what instances are made of",
		Long:  "orrery get templates lists the templates, and orrery describe template NAME shows one.",
		Example: `orrery template push lobby ./lobby
orrery template pull lobby
orrery template edit lobby server.properties`,
	})
	cmd.AddCommand(
		templatePush(a), templatePull(a), templateSave(a), templateEdit(a), templateDiff(a), templateFiles(a), templateCat(a),
		templateVersions(a), templateRollback(a), templateSync(a), templateVariables(a), templateDraft(a),
	)
	return cmd
}

func versionsOf() *kinds.Kind {
	return command.Part("versions", "/api/v1/templates/{group}/versions", "hash", []output.Column{
		{Header: "VERSION", Path: "hash", Text: kinds.VersionCell},
		{Header: "CURRENT", Path: "current"},
		{Header: "FILES", Path: "files"},
		{Header: "SIZE", Path: "sizeBytes", Text: kinds.SizeCell},
		{Header: "PUBLISHED", Path: "publishedAt", Text: kinds.MomentCell},
		{Header: "AUTHOR", Path: "author"},
		{Header: "MESSAGE", Path: "message"},
	})
}

func templateVersions(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "versions NAME", Short: "List the versions of a template",
		Example: "orrery template versions lobby",
		Args:    command.Between(1, 1, "the name of a template"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			return command.PrintPart(ctx, a, versionsOf(), kinds.Get("template"), args[0], nil)
		},
	})
}

// completeVersions completes the versions of the template that is the first argument.
func completeVersions(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return command.NamesIn(cmd.Context(), a, versionsOf(), args[0]), cobra.ShellCompDirectiveNoFileComp
	}
}

func templateRollback(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "rollback NAME [VERSION]", Short: "Make an older version of a template the current one",
		Long: "The default is the version before the current one. Running instances keep their version until they are restarted.",
		Example: `orrery template rollback lobby --dry-run
orrery template rollback lobby 7b1acdba6af048c2`,
		Args: command.Between(1, 2, "the name of a template, and a version"),
		Complete: command.CompleteFirst(a, "template", func(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
			return completeVersions(a)(cmd, cmd.Flags().Args(), s)
		}),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error { return rollback(ctx, a, client, args, dryRun) })
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func rollback(ctx context.Context, a *app.App, client *orrery.Client, args []string, dryRun bool) error {
	body := &orrery.RollbackTemplateRequest{}
	if len(args) > 1 {
		body.Hash = &args[1]
	}
	if dryRun {
		would, err := client.RollbackTemplateDryRun(ctx, args[0], body, nil)
		if err != nil {
			return err
		}
		return printChanges(a, changesOf(would.Files), "nothing would change")
	}
	done, err := client.RollbackTemplate(ctx, args[0], body, nil)
	if err != nil {
		return err
	}
	return a.Say(done, args[0], "template %s is at version %s again", args[0], kinds.Version(done.Hash))
}

func changesOf(files []orrery.TemplateFileChange) []filetree.Change {
	var all []filetree.Change
	for _, f := range files {
		all = append(all, filetree.Change{Path: f.Path, Change: f.Change, OldSize: f.OldSize, NewSize: f.NewSize})
	}
	return all
}

func templateSync(a *app.App) *cobra.Command {
	var nodes []string
	var all, dryRun bool
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: "sync NAME|--all", Short: "Download the current version of a template to nodes ahead of time",
		Long: "Instances are not changed, but their next start need not wait for the download.",
		Example: `orrery template sync lobby
orrery template sync --all --node node-1 --dry-run`,
		Args: command.Between(0, 1, "the name of a template or --all"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			if all == (len(args) == 1) {
				return command.UsageError("the usage is: "+cmd.UseLine(), "template sync needs the name of a template or --all")
			}
			return syncTemplates(ctx, a, append(args, "*")[0], nodes, dryRun)
		},
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&nodes, "node", nil, "`name` of a node; repeat it for more; the default is all nodes")
	flags.BoolVar(&all, "all", false, "all templates")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "node", command.CompleteNames(a, "node"))
	return cmd
}

var syncColumns = []output.Column{
	{Header: "NODE", Path: "node"},
	{Header: "STATUS", Path: "status", State: true},
	{Header: "DOWNLOADED", Path: "bytes", Text: kinds.SizeCell},
	{Header: "MESSAGE", Path: "error"},
}

func syncTemplates(ctx context.Context, a *app.App, pattern string, nodes []string, dryRun bool) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	sync := client.SyncTemplates
	if dryRun {
		sync = client.SyncTemplatesDryRun
	}
	done, err := sync(ctx, &orrery.SyncTemplatesRequest{Pattern: pattern, Nodes: nodes})
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("template"), "", pattern)
	}
	if len(done.Templates) == 0 && pattern != "*" {
		missing := &orrery.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no template %q", pattern)}
		return app.Suggest(ctx, client, missing, kinds.Get("template"), "", pattern)
	}
	return printSync(a, done)
}

// printSync prints the result of each node, and fails if a node failed.
func printSync(a *app.App, done *orrery.TemplateSyncResponse) error {
	failed := slices.ContainsFunc(done.Nodes, func(n orrery.NodeSyncResult) bool { return n.Error != "" })
	rows, err := app.Rows(done.Nodes)
	if err != nil {
		return err
	}
	err = a.Show(done, done.Pattern, func(output.Printer) error {
		if done.Message != "" {
			a.Notef("%s", done.Message)
		}
		return command.PrintRows(a, &kinds.Kind{Plural: "nodes", NameField: "node", Columns: syncColumns}, rows)
	})
	if err == nil && failed {
		err = command.ErrSomeFailed
	}
	return err
}

func templateFiles(a *app.App) *cobra.Command {
	var version string
	var draft bool
	cmd := command.New(a, command.Spec{
		Use: "files NAME [DIRECTORY]", Aliases: []string{"ls"}, Short: "List the files of a template",
		Example: `orrery template files lobby
orrery template files lobby plugins --version 7b1acdba6af048c2`,
		Args: command.Between(1, 2, "the name of a template, and a directory of it"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			query := readQuery(version, draft)
			query.Set("path", append(args, "")[1])
			return command.PrintPart(ctx, a, filesOf(), kinds.Get("template"), args[0], query)
		},
	})
	readFlags(cmd, a, &version, &draft)
	return cmd
}

func filesOf() *kinds.Kind {
	return command.Part("files", "/api/v1/templates/{group}/files", "path", []output.Column{
		{Header: "MODE", Path: "mode"},
		{Header: "SIZE", Path: "size", Text: kinds.SizeCell},
		{Header: "SHA-256", Path: "sha256", Text: kinds.VersionCell, Wide: true},
		{Header: "PATH", Path: "path"},
		{Header: "DIRECTORY", Path: "isDirectory"},
		{Header: "LINK TO", Path: "link"},
	})
}

// readFlags declares --version and --draft.
func readFlags(cmd *cobra.Command, a *app.App, version *string, draft *bool) {
	cmd.Flags().StringVar(version, "version", "", "`hash` of a version, or its first 16 digits; the default is the current one")
	cmd.Flags().BoolVar(draft, "draft", false, "read your draft")
	cmd.MarkFlagsMutuallyExclusive("version", "draft")
	command.CompleteFlag(cmd, "version", completeVersions(a))
}

func readQuery(version string, draft bool) url.Values {
	query := url.Values{}
	if version != "" {
		query.Set("version", version)
	}
	if draft {
		query.Set("draft", "true")
	}
	return query
}

func templateCat(a *app.App) *cobra.Command {
	var version string
	var draft bool
	cmd := command.New(a, command.Spec{
		Use: "cat NAME FILE", Short: "Print a file of a template", OnlyText: true,
		Example: "orrery template cat lobby server.properties",
		Args:    command.Between(2, 2, "the name of a template and a file of it"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error {
				params := &orrery.DownloadTemplateFileParams{Path: args[1], Version: version, Draft: draft}
				content, err := client.DownloadTemplateFile(ctx, args[0], params)
				if err != nil {
					return err
				}
				defer content.Body.Close()
				_, err = io.Copy(a.Out, content.Body)
				return err
			})
		},
	})
	readFlags(cmd, a, &version, &draft)
	return cmd
}

func templateEdit(a *app.App) *cobra.Command {
	var message string
	cmd := command.New(a, command.Spec{
		Use: "edit NAME FILE", Short: "Change a text file of a template in an editor",
		Long:    "The change is published as a version. If another user changed the file meanwhile, nothing is published, and both texts are kept on this machine.",
		Example: "orrery template edit lobby server.properties",
		Args:    command.Between(2, 2, "the name of a template and a file of it"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error {
				return editTemplate(ctx, a, client, args[0], args[1], message)
			})
		},
	})
	cmd.Flags().StringVarP(&message, "message", "m", "", "`text` that describes the version")
	command.CompleteFlag(cmd, "message", cobra.NoFileCompletions)
	return cmd
}

func editTemplate(ctx context.Context, a *app.App, client *orrery.Client, name, file, message string) error {
	old, err := client.GetTemplateFileContent(ctx, name, &orrery.GetTemplateFileContentParams{Path: file})
	if err != nil {
		return err
	}
	edited, err := a.EditText(ctx, file, old.Content)
	if err != nil || edited == nil {
		return err
	}
	body := &orrery.ReplaceTemplateFileContentRequest{Content: string(edited)}
	done, err := client.ReplaceTemplateFileContent(ctx, name, body, &orrery.ReplaceTemplateFileContentParams{Path: file, Message: message, IfMatch: old.ETag})
	if err != nil {
		a.KeepEdited(err, path.Base(file), edited, func() (string, error) {
			now, err := client.GetTemplateFileContent(ctx, name, &orrery.GetTemplateFileContentParams{Path: file})
			if err != nil {
				return "", err
			}
			return now.Content, nil
		})
		return err
	}
	return a.Say(done, name, "template %s is at version %s", name, kinds.Version(done.Hash))
}

func templateDraft(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "draft", Short: "Show, publish or discard your unpublished changes of a template",
		Example: "orrery template draft show lobby",
	})
	show := command.New(a, draftSpec(a, "show", "List the files that your draft changes", func(ctx context.Context, client *orrery.Client, name string) error {
		draft, err := client.GetTemplateDraft(ctx, name)
		if err != nil {
			return noDraft(err, name)
		}
		return printChanges(a, changesOf(draft.Files), "the draft changes no file")
	}))
	cmd.AddCommand(draftPublish(a), show, draftDiscard(a))
	return cmd
}

func draftPublish(a *app.App) *cobra.Command {
	var message string
	var dryRun bool
	cmd := command.New(a, draftSpec(a, "publish", "Publish your draft as a version", func(ctx context.Context, client *orrery.Client, name string) error {
		body := &orrery.PublishTemplateDraftRequest{}
		if message != "" {
			body.Message = &message
		}
		if dryRun {
			would, err := client.PublishTemplateDraftDryRun(ctx, name, body, nil)
			return showDraft(a, would, err, name, "publishing the draft would change no file")
		}
		done, err := client.PublishTemplateDraft(ctx, name, body, nil)
		if err != nil {
			return err
		}
		return a.Say(done, name, "template %s is at version %s", name, kinds.Version(done.Hash))
	}))
	cmd.Flags().StringVarP(&message, "message", "m", "", "`text` that describes the version")
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "message", cobra.NoFileCompletions)
	return cmd
}

func draftDiscard(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, draftSpec(a, "discard", "Discard your draft", func(ctx context.Context, client *orrery.Client, name string) error {
		if dryRun {
			would, err := client.DeleteTemplateDraftDryRun(ctx, name, nil)
			return showDraft(a, would, err, name, "the draft changes no file")
		}
		if err := client.DeleteTemplateDraft(ctx, name, nil); err != nil {
			return noDraft(err, name)
		}
		return a.Say(map[string]any{"id": name}, name, "the draft of template %s is discarded", name)
	}))
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

// showDraft prints the answer to a dry run about a draft.
func showDraft(a *app.App, would *orrery.TemplateEditDryRun, err error, name, none string) error {
	if err != nil {
		return noDraft(err, name)
	}
	return printChanges(a, changesOf(would.Files), none)
}

func draftSpec(a *app.App, verb, what string, act func(context.Context, *orrery.Client, string) error) command.Spec {
	return command.Spec{
		Use: verb + " NAME", Short: what, Example: "orrery template draft " + verb + " lobby",
		Args: command.Between(1, 1, "the name of a template"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error { return act(ctx, client, args[0]) })
		},
	}
}

// noDraft explains a 404 of a draft without the words of the API.
func noDraft(err error, name string) error {
	var refusal *orrery.Error
	if errors.As(err, &refusal) && errors.Is(err, orrery.ErrNotFound) && strings.Contains(refusal.Message, "draft") {
		return exit.With(exit.NotFound, fmt.Errorf("you have no draft of template %s", name), "")
	}
	return err
}

// onTemplate runs an act on one template. If the template does not exist, the error names similar
// ones.
func onTemplate(ctx context.Context, a *app.App, name string, act func(client *orrery.Client) error) error {
	return command.OnObject(ctx, a, "template", name, act)
}
