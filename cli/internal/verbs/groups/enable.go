package groups

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// enabling returns the commands enable and disable for a kind of object. fields is the SDK's type of the
// fields that a write of it takes.
func enabling(a *app.App, kind string, fields reflect.Type) []*cobra.Command {
	var cmds []*cobra.Command
	for _, on := range []bool{true, false} {
		verb, short := "enable", "Turn on "
		if !on {
			verb, short = "disable", "Turn off "
		}
		t := toggle{kind: kinds.Get(kind), fields: fields, on: on}
		cmd := command.New(a, command.Spec{
			Use: verb + " NAME...", Short: short + kinds.Get(kind).Plural,
			Example: "orrery " + kind + " " + verb + " nightly",
			Args:    command.Between(1, -1, "the name of one of the "+kinds.Get(kind).Plural), Complete: command.CompleteNames(a, kind),
			Run: func(ctx context.Context, names []string) error {
				return runEnable(ctx, a, t, names)
			},
		})
		command.DryRunFlag(a, cmd, &t.dryRun)
		cmds = append(cmds, cmd)
	}
	return cmds
}

// toggle turns objects on or off.
type toggle struct {
	kind   *kinds.Kind
	fields reflect.Type
	on     bool
	// dryRun asks the server what would change.
	dryRun bool
}

func runEnable(ctx context.Context, a *app.App, t toggle, names []string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	done := "turned on"
	if !t.on {
		done = "turned off"
	}
	return command.Each(ctx, a, names, func(name string) error {
		answer, err := t.set(ctx, client, name)
		if err != nil {
			return command.NotFound(ctx, client, err, t.kind.Name, name)
		}
		if t.dryRun {
			return showToggle(a, answer, name)
		}
		return a.Say(answer, name, "%s %s %s", t.kind.Name, name, done)
	})
}

// showToggle prints the answer to a dry run.
func showToggle(a *app.App, answer json.RawMessage, name string) error {
	var would struct{ Diff []orrery.FieldChange }
	if err := json.Unmarshal(answer, &would); err != nil {
		return err
	}
	return a.ShowDiff(answer, name, would.Diff)
}

// set changes the field enabled. A server that cannot change single fields of the kind gets the whole
// object.
func (t toggle) set(ctx context.Context, client *orrery.Client, name string) (json.RawMessage, error) {
	var answer json.RawMessage
	request := orrery.Request{Method: http.MethodPatch, Path: t.kind.ObjectPath("", name), Body: orrery.Patch{"enabled": t.on}}
	if t.dryRun {
		request.Query = url.Values{"dryRun": {"true"}}
	}
	err := client.Call(ctx, request, &answer)
	var refusal *orrery.Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusMethodNotAllowed {
		return answer, err
	}
	row, tag, err := app.Get(ctx, client, t.kind, "", name)
	if err != nil {
		return nil, err
	}
	if request.Body, err = t.whole(row); err != nil {
		return nil, err
	}
	request.Method, request.Header = http.MethodPut, http.Header{"If-Match": {tag}}
	err = client.Call(ctx, request, &answer)
	return answer, err
}

// whole returns an object that was read as the body of a write.
func (t toggle) whole(row []byte) (any, error) {
	body := reflect.New(t.fields).Interface()
	if err := json.Unmarshal(row, body); err != nil {
		return nil, err
	}
	reflect.ValueOf(body).Elem().FieldByName("Enabled").Set(reflect.ValueOf(&t.on))
	return body, nil
}
