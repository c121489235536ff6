package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

// eventsOptions are the flags of events.
type eventsOptions struct {
	types        []string
	group, after string
}

func events(a *app.App) *cobra.Command {
	var o eventsOptions
	cmd := command.New(a, command.Spec{
		Use:   "events",
		Short: "Print what happens in the cluster",
		Long: `It prints one line for each event, and continues after restarts of the gateway. With -o json each line is the event as the
server sent it. --since takes the id of an event that -o json printed: the events after it come first.`,
		Example: `orrery events
orrery events --type INSTANCE_STATE_CHANGED,INSTANCE_CRASHED --group lobby
orrery events -o json`,
		Following: true,
		Run:       func(ctx context.Context, _ []string) error { return runEvents(ctx, a, o) },
	})
	flags := cmd.Flags()
	flags.StringSliceVar(&o.types, "type", nil, "only events of these `types`, for example NODE_CONNECTED; several are separated by commas")
	flags.StringVar(&o.group, "group", "", "only events of this `group`")
	flags.StringVar(&o.after, "since", "", "begin after the event with this `id`")
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	command.CompleteFlag(cmd, "since", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "type", cobra.FixedCompletions(eventTypes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// eventTypes are offered by completion. The server accepts all that it knows.
var eventTypes = []string{
	"DEPLOYMENT_COMPLETED", "DEPLOYMENT_CREATED", "DEPLOYMENT_PROGRESS", "GROUP_AGGREGATES_UPDATED", "GROUP_CRASH_LOOP", "GROUP_CREATED",
	"GROUP_DELETED", "GROUP_SCALED", "GROUP_UPDATED", "INSTANCE_CRASHED", "INSTANCE_DRAINING", "INSTANCE_METRICS", "INSTANCE_MOVE_ENDED",
	"INSTANCE_MOVE_STARTED", "INSTANCE_REMOVED", "INSTANCE_STATE_CHANGED", "NODE_CONNECTED", "NODE_CORDON_CHANGED", "NODE_DISCONNECTED",
	"NODE_DRAIN_COMPLETED", "NODE_DRAIN_REQUESTED", "NODE_STATUS", "PLAYER_CONNECTED", "PLAYER_DISCONNECTED", "PLAYER_TRANSFER",
	"RESOURCE_CHANGED", "SCHEDULE_RUN_ENDED", "SCHEDULE_RUN_STARTED", "TEMPLATE_UPDATED",
}

func runEvents(ctx context.Context, a *app.App, o eventsOptions) error {
	for i, t := range o.types {
		o.types[i] = strings.ToUpper(strings.TrimSpace(t))
	}
	p, err := a.Printer()
	if err != nil {
		return err
	}
	if !p.Format.ForPeople() && p.Format.Name != "json" {
		return command.UsageError("leave -o out, or pass -o json", "events are printed as lines or as JSON, not as %s", p.Format.Name)
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	stream, stop, err := app.Watch(ctx, client, orrery.EventsOptions{
		Types: o.types, Group: o.group, After: o.after,
		OnReconnect: app.Reconnecting(a.Notef),
	})
	if err != nil {
		return err
	}
	defer stop()
	out := bufio.NewWriter(a.Out)
	for event := range stream {
		if event.Type == orrery.ResyncRequired {
			a.Notef("events are missing here: the server does not have all of them any more; orrery audit has the changes of people")
		}
		if p.Format.ForPeople() {
			writeEvent(out, p.Style, event)
		} else if err := writeJSONEvent(out, event); err != nil {
			return err
		}
		if len(stream) == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(out.Flush(), stop())
}

// writeJSONEvent writes an event as the server sent it, and its ID.
func writeJSONEvent(out *bufio.Writer, event orrery.Event) error {
	data := []byte(event.Data)
	if event.ID != "" {
		id, err := json.Marshal(event.ID)
		if err != nil {
			return err
		}
		data = append([]byte(`{"id":`+string(id)+`,`), strings.TrimPrefix(strings.TrimSpace(string(data)), "{")...)
	}
	for line := range strings.SplitSeq(string(data), "\n") { // an object may be sent in several lines
		_, _ = out.WriteString(line) // Flush returns the error
	}
	return out.WriteByte('\n')
}

func writeEvent(out *bufio.Writer, style output.Style, event orrery.Event) {
	at := event.Time
	if at.IsZero() {
		at = time.Now()
	}
	fmt.Fprintf(out, "%s  %s  %s", at.Local().Format(time.DateTime), style.Bold(pad(terminal.Clean(event.Type), 24)), pad(terminal.Clean(objectOf(event)), 16))
	if text := textOf(style, event.Data); text != "" {
		fmt.Fprintf(out, "  %s", text)
	}
	_ = out.WriteByte('\n')
}

func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }

// objectFields name what an event is about; the first one that is there counts.
var objectFields = []string{"instanceId", "nodeId", "schedule", "groupName", "group", "templateName", "networkName", "eventName", "name", "fromInstanceId"}

func objectOf(event orrery.Event) string {
	if kind := gjson.GetBytes(event.Data, "kind"); kind.Exists() {
		return kind.String() + "/" + gjson.GetBytes(event.Data, "name").String()
	}
	for _, field := range objectFields {
		if value := gjson.GetBytes(event.Data, field).String(); value != "" {
			return value
		}
	}
	return "-"
}

// hiddenFields are not part of the text of an event: they are shown before it, or only for programs.
var hiddenFields = []string{
	"type", "sequence", "timestamp", "kind", "uid", "message", "oldState", "newState", "logTail", "signature", "payload",
	"lastSequence", "earliestSequence", "latestSequence", "collectedAt", "lastHeartbeatAt",
}

// textOf returns the change of state, the message and the other simple fields of an event.
func textOf(style output.Style, data []byte) string {
	var parts []string
	event := gjson.ParseBytes(data)
	if state := event.Get("newState").String(); state != "" {
		if old := event.Get("oldState").String(); old != "" {
			state = terminal.Clean(old) + " → " + style.State(terminal.Clean(state))
		} else {
			state = style.State(terminal.Clean(state))
		}
		parts = append(parts, state)
	}
	if message := event.Get("message").String(); message != "" {
		parts = append(parts, terminal.Clean(message))
	}
	event.ForEach(func(name, value gjson.Result) bool {
		hidden := slices.Contains(hiddenFields, name.String()) || slices.Contains(objectFields, name.String())
		if !hidden && !value.IsObject() && !value.IsArray() && value.String() != "" {
			parts = append(parts, style.Dim(terminal.Clean(name.String()+"="+value.String())))
		}
		return true
	})
	return strings.Join(parts, "  ")
}

// instanceOfEvent returns the instance of an INSTANCE_STATE_CHANGED event.
func instanceOfEvent(event orrery.Event) instance {
	field := func(name string) string { return gjson.GetBytes(event.Data, name).String() }
	return instance{name: field("instanceId"), uid: field("uid"), group: field("group"), node: field("nodeId"), state: field("newState")}
}
