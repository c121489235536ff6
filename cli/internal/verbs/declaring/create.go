package declaring

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/verbs/creating"
	"github.com/spf13/cobra"
)

func create(a *app.App) *cobra.Command {
	var files []string
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use:   "create -f FILE... | KIND NAME",
		Short: "Create objects",
		Long:  "It fails if an object exists. apply creates and changes objects.",
		Example: `orrery create -f group.yaml
orrery create group lobby --command 'java -jar server.jar nogui' --memory 2G --min 1
orrery create api-token ci --expires 30d`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && len(files) == 0 {
				return noSuchKind(args[0])
			}
			return nil
		},
		Complete: completeDocuments,
		Run: func(ctx context.Context, args []string) error {
			return createFromFiles(ctx, a, append(files, args...), dryRun)
		},
	})
	fileFlag(cmd, &files)
	command.DryRunFlag(a, cmd, &dryRun)
	cmd.AddCommand(createGroup(a))
	for _, name := range []string{"schedule", "overlay", "network", "quota", "role", "binding", "notice", "source"} {
		cmd.AddCommand(createDocument(a, kinds.Get(name)))
	}
	cmd.AddCommand(creating.Commands(a)...)
	return cmd
}

// creatable are the kinds that create has commands for.
var creatable = []string{
	"group", "schedule", "overlay", "network", "quota", "role", "binding", "notice", "source", "user", "service-account", "api-token", "join-token", "template",
}

func noSuchKind(name string) error {
	return command.UsageError(app.DidYouMean(name, creatable, "create takes "+strings.Join(creatable, ", ")), "create does not know the kind %q", name)
}

// createFromFiles creates the objects of documents. One failure does not stop the rest.
func createFromFiles(ctx context.Context, a *app.App, files []string, dryRun bool) error {
	documents, err := readDocuments(a, files)
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	run := &applier{app: a, Remote: objects.Remote{Client: client, DryRun: dryRun}, applyOptions: applyOptions{dryRun: dryRun}, printer: printer, documents: documents}
	run.step = run.createNew
	err = run.all(ctx)
	if !printer.Format.ForPeople() {
		if printErr := printResults(printer, run.results); printErr != nil {
			return printErr
		}
	}
	return err
}

// createNew is the step of create: it changes no object that exists.
func (r *applier) createNew(ctx context.Context, d *manifest.Document, res *result) error {
	answer, err := r.Create(ctx, ref(d), d.Fields)
	if err != nil {
		return exit.Hint(err, createHint(d.Object(), d.Name, err))
	}
	res.Action = created
	if r.dryRun {
		res.effects(d.Object(), &objects.Object{}, answer)
		return nil
	}
	res.Changes = objects.Changes(nil, d.Fields)
	return nil
}

// createHint returns the next step after a creation that failed because the object exists.
func createHint(kind *kinds.Kind, name string, err error) string {
	if exit.CodeOf(err) == exit.Conflict {
		return "to change it: orrery edit " + kind.Name + " " + name + ", or orrery apply"
	}
	return exit.HintOf(err)
}

// createOptions are the flags of create KIND.
type createOptions struct {
	set    []string
	dryRun bool
}

// declare adds the flags that all kinds with documents have.
func (o *createOptions) declare(a *app.App, cmd *cobra.Command, kind *kinds.Kind) {
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "set a field of the API: `field=value`; repeat it for more")
	command.DryRunFlag(a, cmd, &o.dryRun)
	command.CompleteFlag(cmd, "set", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, name := range manifest.FieldNames(kind) {
			out = append(out, name+"=")
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// run creates the object that assignments describe.
func (o *createOptions) run(ctx context.Context, a *app.App, kind *kinds.Kind, name string, more []string) error {
	d := &manifest.Document{Kind: kind.Document, Name: name, Fields: objects.Fields{}}
	for _, assignment := range append(more, o.set...) {
		if err := d.Set(assignment); err != nil {
			return exit.With(exit.Usage, err, "orrery create "+kind.Name+" --help")
		}
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	answer, err := objects.Remote{Client: client, DryRun: o.dryRun}.Create(ctx, ref(d), d.Fields)
	if err != nil {
		return exit.Hint(err, createHint(kind, name, err))
	}
	if !o.dryRun {
		return a.Say(answer.Fields, name, "%s %s created", kind.Name, name)
	}
	return a.Show(answer.Fields, name, func(output.Printer) error {
		res := &result{Kind: kind.Name, Name: name, Action: created}
		res.effects(kind, &objects.Object{}, answer)
		return describe(a, res)
	})
}

// setExamples has an example of create for each kind.
var setExamples = map[string]string{
	"schedule": "orrery create schedule nightly --set group=lobby --set action=restart --set cron='0 4 * * *'",
	"overlay":  `orrery create overlay evening --set groups=lobby --set cron='0 18 * * *' --set durationSeconds=14400 --set overlay.minInstances=4`,
	"network":  "orrery create network main --set lobbyGroup=lobby --set memberGroups=duels,bedwars --set proxyGroups=proxy",
	"quota":    "orrery create quota test --set selector.stage=test --set limit.memoryMb=8192",
	"role":     "orrery create role MODERATOR --set permissions=instances.view,instances.command",
	"binding":  "orrery create binding bedwars --set role=MODERATOR --set selector=game=bedwars --set subjects=mara",
	"notice":   `orrery create notice crashes --set url=https://chat.example/hook --set events=GROUP_CRASH_LOOP`,
	"source":   "orrery create source plugins --set type=git --set url=https://git.example/plugins.git --set template=plugins",
}

func createDocument(a *app.App, kind *kinds.Kind) *cobra.Command {
	var o createOptions
	cmd := command.New(a, command.Spec{
		Use: kind.Name + " NAME", Short: "Create " + kinds.Article(kind.Name) + " " + kind.Name,
		Long:    setHelp(kind),
		Example: setExamples[kind.Name],
		Args:    command.Between(1, 1, "the name of the new "+kind.Name),
		Run:     func(ctx context.Context, args []string) error { return o.run(ctx, a, kind, args[0], nil) },
	})
	o.declare(a, cmd, kind)
	return cmd
}

func setHelp(kind *kinds.Kind) string {
	return "The fields for --set are " + strings.Join(manifest.FieldNames(kind), ", ") +
		".\nA text needs no quotes, a list of texts may have commas, and other values are JSON. limits.processes=5 sets a field of an object."
}

// groupOptions are the short forms for common fields of a group.
type groupOptions struct {
	command, memory, platform string
	least, most               int64
	templates                 []string
}

func createGroup(a *app.App) *cobra.Command {
	var o createOptions
	var g groupOptions
	kind := kinds.Get("group")
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: "group NAME", Short: "Create a group",
		Long: setHelp(kind),
		Example: `orrery create group lobby --platform PAPER --memory 2G --min 1 --max 5 --template lobby
orrery create group bot --command './bot --port %PORT%' --memory 256M --min 1 --set static=true`,
		Args: command.Between(1, 1, "the name of the new group"),
		Run: func(ctx context.Context, args []string) error {
			assignments, err := g.assignments(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return o.run(ctx, a, kind, args[0], assignments)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&g.command, "command", "", "`command` line to run")
	flags.StringVar(&g.memory, "memory", "", "memory of an instance, as a `size` such as 512M or 2G")
	flags.StringVar(&g.platform, "platform", "", "server software, as the catalog `names` it")
	command.Number(flags, &g.least, "min", 0, "`number` of instances to keep running")
	command.Number(flags, &g.most, "max", 0, "highest `number` of instances; 0 is no limit")
	flags.StringArrayVar(&g.templates, "template", nil, "`template` to apply; repeat it for more, in their order")
	for _, name := range []string{"command", "memory", "platform", "min", "max"} {
		command.CompleteFlag(cmd, name, cobra.NoFileCompletions)
	}
	command.CompleteFlag(cmd, "template", command.CompleteNames(a, "template"))
	o.declare(a, cmd, kind)
	return cmd
}

// assignments returns the fields that the given flags set.
func (g *groupOptions) assignments(given func(flag string) bool) ([]string, error) {
	var out []string
	for _, f := range []struct{ flag, field, value string }{
		{"command", "command", g.command},
		{"platform", "platform", g.platform},
		{"min", "minInstances", strconv.FormatInt(g.least, 10)},
		{"max", "maxInstances", strconv.FormatInt(g.most, 10)},
		{"template", "templates", string(objects.Encode(g.templates))},
	} {
		if given(f.flag) {
			out = append(out, f.field+"="+f.value)
		}
	}
	if !given("memory") {
		return out, nil
	}
	memory, err := parseMiB(g.memory)
	return append(out, fmt.Sprintf("memoryMb=%d", memory)), err
}

// parseMiB parses a size such as 512M, 2G, 1.5GiB or 512, in MiB.
func parseMiB(text string) (int64, error) {
	number := strings.TrimRight(strings.ToUpper(text), "IB")
	factor := 1.0
	switch {
	case strings.HasSuffix(number, "T"):
		factor = 1 << 20
	case strings.HasSuffix(number, "G"):
		factor = 1 << 10
	case strings.HasSuffix(number, "K"):
		factor = 1.0 / (1 << 10)
	}
	n, err := strconv.ParseFloat(strings.TrimRight(number, "TGMK"), 64)
	size := n * factor
	if err != nil || size < 0 || size > 1<<40 || size != float64(int64(size)) {
		return 0, command.UsageError("", "--memory %q is not a size such as 512M or 2G", text)
	}
	return int64(size), nil
}
