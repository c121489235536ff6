package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func templateVariables(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "variables", Aliases: []string{"variable", "vars"},
		Short:   "List, set and find the variables of a template",
		Example: "orrery template variables list lobby",
	})
	cmd.AddCommand(variablesList(a), variablesSet(a), variablesRemove(a), variablesScan(a))
	return cmd
}

func variablesOf() *kinds.Kind {
	return command.Part("variables", "/api/v1/templates/{group}/variables", "key", []output.Column{
		{Header: "KEY", Path: "key"},
		{Header: "TYPE", Path: "type"},
		{Header: "DEFAULT", Path: "defaultValue"},
		{Header: "REQUIRED", Path: "required"},
		{Header: "SCOPE", Path: "scope"},
		{Header: "VISIBILITY", Path: "visibility", Wide: true},
		{Header: "DESCRIPTION", Path: "description"},
	})
}

func variablesList(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List the variables of a template",
		Example: "orrery template variables list lobby",
		Args:    command.Between(1, 1, "the name of a template"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			return command.PrintPart(ctx, a, variablesOf(), kinds.Get("template"), args[0], nil)
		},
	})
}

func variablesScan(a *app.App) *cobra.Command {
	var version string
	var draft bool
	columns := []output.Column{
		{Header: "KEY", Path: "key"},
		{Header: "DEFINED", Path: "defined"},
		{Header: "BUILT IN", Path: "builtIn"},
		{Header: "FILES", Path: "files", Text: locations},
	}
	cmd := command.New(a, command.Spec{
		Use: "scan NAME", Short: "List the placeholders in the files of a template",
		Example: "orrery template variables scan lobby",
		Args:    command.Between(1, 1, "the name of a template"), Complete: command.CompleteFirst(a, "template", nil),
		Run: func(ctx context.Context, args []string) error {
			scan := command.Part("placeholders", "/api/v1/templates/{group}/variables/scan", "key", columns)
			return command.PrintPart(ctx, a, scan, kinds.Get("template"), args[0], readQuery(version, draft))
		},
	})
	readFlags(cmd, a, &version, &draft)
	return cmd
}

// locations shows where a placeholder is, for example server.properties:3.
func locations(f gjson.Result) string {
	var all []string
	for _, l := range f.Array() {
		all = append(all, l.Get("path").String()+":"+l.Get("line").String())
	}
	return strings.Join(all, ", ")
}

type variableOptions struct {
	typ, scope, visibility, description string
	required                            bool
	bounds                              orrery.VariableValidation
	dryRun                              bool
}

func variablesSet(a *app.App) *cobra.Command {
	var o variableOptions
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: "set NAME KEY=DEFAULT...", Short: "Define variables of a template, or change their defaults",
		Long: `KEY alone defines a variable without a default. Other variables stay as they are. The flags are for all variables that
are named; a flag for a bound replaces that bound only. Secrets do not belong here: the command line is stored in the history
of the shell. See orrery secret set.`,
		Example: `orrery template variables set lobby motd="Welcome" --description "shown in the server list"
orrery template variables set lobby slots=20 --type INT --min 1 --max 100 --dry-run
orrery template variables set lobby map=hub --scope INSTANCE --regex '[a-z0-9-]+'`,
		Args: command.Between(2, -1, "the name of a template, and KEY=DEFAULT"), Complete: completeVariables(a),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error {
				return changeVariables(ctx, a, client, args[0], o.dryRun, func(all []orrery.VariableFields) ([]orrery.VariableFields, error) {
					for _, arg := range args[1:] {
						all = define(all, arg, o, cmd.Flags().Changed)
					}
					return all, nil
				})
			})
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&o.typ, "type", "", "`type`: STRING, TEXT, INT, BOOL, ENUM or SECRET")
	flags.StringVar(&o.scope, "scope", "", "`scope` in which the value may be set: TEMPLATE, GROUP or INSTANCE")
	flags.StringVar(&o.visibility, "visibility", "", "`role` that sees the value; empty shows it to everyone who sees the template")
	flags.StringVar(&o.description, "description", "", "`text` for people")
	flags.BoolVar(&o.required, "required", false, "an instance needs a value")
	command.OptionalText(flags, &o.bounds.Regex, "regex", "`expression` (RE2) that the whole value must match", nil)
	command.OptionalNumber(flags, &o.bounds.Min, "min", "smallest `number` of an INT, or of characters of a text")
	command.OptionalNumber(flags, &o.bounds.Max, "max", "largest `number` of an INT, or of characters of a text")
	flags.StringSliceVar(&o.bounds.EnumValues, "values", nil, "`values` of an ENUM, separated by commas")
	command.DryRunFlag(a, cmd, &o.dryRun)
	command.CompleteFlag(cmd, "type", cobra.FixedCompletions([]string{"STRING", "TEXT", "INT", "BOOL", "ENUM", "SECRET"}, cobra.ShellCompDirectiveNoFileComp))
	command.CompleteFlag(cmd, "scope", cobra.FixedCompletions([]string{"TEMPLATE", "GROUP", "INSTANCE"}, cobra.ShellCompDirectiveNoFileComp))
	command.CompleteFlag(cmd, "visibility", command.CompleteNames(a, "role"))
	command.NoCompletions(cmd)
	return cmd
}

// define sets the variable of an argument KEY=DEFAULT.
func define(all []orrery.VariableFields, arg string, o variableOptions, changed func(string) bool) []orrery.VariableFields {
	key, value, hasDefault := strings.Cut(arg, "=")
	i := slices.IndexFunc(all, func(v orrery.VariableFields) bool { return v.Key == key })
	if i < 0 {
		all = append(all, orrery.VariableFields{Key: key})
		i = len(all) - 1
	}
	v := &all[i]
	if hasDefault {
		v.DefaultValue = &value
	}
	for flag, field := range map[string]struct {
		to    **string
		value string
	}{
		"type": {&v.Type, o.typ}, "scope": {&v.Scope, o.scope}, "visibility": {&v.Visibility, o.visibility}, "description": {&v.Description, o.description},
	} {
		if changed(flag) {
			*field.to = new(field.value)
		}
	}
	if changed("required") {
		v.Required = &o.required
	}
	bound(v, o.bounds)
	return all
}

// bound sets the bounds that are given.
func bound(v *orrery.VariableFields, given orrery.VariableValidation) {
	if v.Validation == nil {
		v.Validation = &orrery.VariableValidation{}
	}
	if given.Regex != nil {
		v.Validation.Regex = given.Regex
	}
	if given.Min != nil {
		v.Validation.Min = given.Min
	}
	if given.Max != nil {
		v.Validation.Max = given.Max
	}
	if given.EnumValues != nil {
		v.Validation.EnumValues = given.EnumValues
	}
}

func variablesRemove(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "rm NAME KEY...", Aliases: []string{"delete"}, Short: "Remove variables of a template",
		Example: "orrery template variables rm lobby motd",
		Args:    command.Between(2, -1, "the name of a template, and a key"), Complete: completeVariables(a),
		Run: func(ctx context.Context, args []string) error {
			return onTemplate(ctx, a, args[0], func(client *orrery.Client) error {
				return changeVariables(ctx, a, client, args[0], dryRun, func(all []orrery.VariableFields) ([]orrery.VariableFields, error) {
					return undefine(all, args[0], args[1:])
				})
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func undefine(all []orrery.VariableFields, name string, keys []string) ([]orrery.VariableFields, error) {
	var known []string
	for _, v := range all {
		known = append(known, v.Key)
	}
	for _, key := range keys {
		i := slices.IndexFunc(all, func(v orrery.VariableFields) bool { return v.Key == key })
		if i < 0 {
			return nil, exit.With(exit.NotFound, fmt.Errorf("template %s has no variable %q", name, key), app.DidYouMean(key, known, "orrery template variables list "+name))
		}
		all = slices.Delete(all, i, i+1)
	}
	return all, nil
}

// completeVariables completes a template and then its variables.
func completeVariables(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return command.CompleteNames(a, "template")(cmd, args, s)
		}
		return command.NamesIn(cmd.Context(), a, variablesOf(), args[0]), cobra.ShellCompDirectiveNoFileComp
	}
}

// changeVariables replaces the variables of a template by what f makes of them.
func changeVariables(ctx context.Context, a *app.App, client *orrery.Client, name string, dryRun bool, f func([]orrery.VariableFields) ([]orrery.VariableFields, error)) error {
	head, err := client.GetTemplate(ctx, name) // before its variables, so that a later change of them is a conflict
	if err != nil {
		return err
	}
	present, err := client.ListTemplateVariables(ctx, name)
	if err != nil {
		return err
	}
	all, err := f(fieldsOf(present))
	if err != nil {
		return err
	}
	params := &orrery.ReplaceTemplateVariablesParams{IfMatch: head.ETag}
	if dryRun {
		would, err := client.ReplaceTemplateVariablesDryRun(ctx, name, all, params)
		if err != nil {
			return nameVariable(err, all)
		}
		return a.Say(would, name, "template %s would have %s", name, output.Counted(int64(len(all)), "variable"))
	}
	done, err := client.ReplaceTemplateVariables(ctx, name, all, params)
	if err != nil {
		return nameVariable(err, all)
	}
	return a.Say(done, name, "template %s has %s", name, output.Counted(int64(len(done)), "variable"))
}

// nameVariable replaces the index of a variable in a refusal by its key: [1].defaultValue of all becomes slots: defaultValue.
func nameVariable(err error, all []orrery.VariableFields) error {
	var refusal *orrery.Error
	if !errors.As(err, &refusal) {
		return err
	}
	index, rest, found := strings.Cut(strings.TrimPrefix(refusal.Message, "["), "].")
	i, notNumber := strconv.Atoi(index)
	if !found || notNumber != nil || i < 0 || i >= len(all) {
		return err
	}
	named := *refusal
	named.Message = fmt.Sprintf("variable %q: %s", all[i].Key, rest)
	return &named
}

// fieldsOf returns variables as they are written.
func fieldsOf(present []orrery.Variable) []orrery.VariableFields {
	all := make([]orrery.VariableFields, 0, len(present)+1)
	for _, v := range present {
		all = append(all, orrery.VariableFields{
			Key: v.Key, Type: &v.Type, DefaultValue: v.DefaultValue, Required: &v.Required, Validation: &v.Validation,
			Scope: &v.Scope, Visibility: &v.Visibility, Description: &v.Description,
		})
	}
	return all
}
