package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Test is the type of the event that a test sends.
const Test = "NOTICE_TEST"

// Event is an event that is sent.
type Event struct {
	// ID is the event's position. It is the same on all gateways.
	ID     string
	Type   string
	Group  fleet.GroupName
	Fields map[string]any
}

// Message is an event on its way to the target of a notice.
type Message struct {
	Notice string
	// Cluster is the cluster's name.
	Cluster string
	Event   Event
}

// Delivery returns the ID by which a receiver recognizes a message that it has already received.
func (m Message) Delivery() string { return m.Notice + "/" + m.Event.ID }

// Limits of the texts that Discord and Slack accept, in bytes, below those of the services.
const (
	maxTitle = 200
	maxText  = 2000
	// maxFields and maxValue bound the text of events without a sentence of their own.
	maxFields = 12
	maxValue  = 100
)

// colors are Discord's colors of the severities.
var colors = map[notice.Severity]int{notice.Critical: 0xd32f2f, notice.Warning: 0xf9a825, notice.Info: 0x1976d2}

// Body returns the body of a request.
func Body(f notice.Format, m Message) []byte {
	text, severity := Text(m.Event), SeverityOf(m.Event.Type, m.Event.Fields)
	var body any
	switch f {
	case notice.Discord:
		body = map[string]any{
			"embeds": []any{map[string]any{
				"title": validate.ClipMessage(title(m), maxTitle), "color": colors[severity],
				"description": plainForDiscord.Replace(validate.ClipMessage(text, maxText)),
			}},
			"allowed_mentions": map[string]any{"parse": []string{}},
		}
	case notice.Slack:
		body = map[string]any{"text": plainForSlack.Replace(validate.ClipMessage(title(m)+"\n"+text, maxText))}
	case notice.JSON:
		event := maps.Clone(m.Event.Fields)
		if event == nil {
			event = map[string]any{}
		}
		event["type"] = m.Event.Type
		body = map[string]any{
			"id": m.Delivery(), "notice": m.Notice, "cluster": m.Cluster, "type": m.Event.Type, "severity": severity,
			"group": m.Event.Group, "text": text, "event": event,
		}
	}
	out, _ := json.Marshal(body) // events have only strings, numbers and times
	return out
}

// plainForDiscord and plainForSlack make a text appear as it is: servers choose a part of it. They
// escape links, mentions and markup.
var (
	plainForDiscord = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "`", "\\`", "|", `\|`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`)
	plainForSlack   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

func title(m Message) string {
	words := strings.ToLower(strings.ReplaceAll(m.Event.Type, "_", " "))
	return m.Cluster + ": " + words
}

// SeverityOf returns how urgent an event is.
func SeverityOf(eventType string, fields map[string]any) notice.Severity {
	failed := func(field string, good ...string) notice.Severity {
		if slices.Contains(good, said(fields, field)) {
			return notice.Info
		}
		return notice.Warning
	}
	switch eventType {
	case "GROUP_CRASH_LOOP", "NODE_DISCONNECTED":
		return notice.Critical
	case "INSTANCE_CRASHED", "DEPLOYMENT_ROLLED_BACK", "RESYNC_REQUIRED":
		return notice.Warning
	case "DEPLOYMENT_COMPLETED":
		return failed("outcome", "COMPLETED", "CANCELLED")
	case "INSTANCE_MOVE_ENDED":
		return failed("step", "DONE", "CANCELED")
	case "SCHEDULE_RUN_ENDED":
		return failed("result", "COMPLETED", "SKIPPED", "CANCELED")
	}
	return notice.Info
}

// Text returns the sentence about an event.
func Text(e Event) string {
	f := func(name string) string { return said(e.Fields, name) }
	switch e.Type {
	case Test:
		return "This is a test. Notices arrive here."
	case "RESYNC_REQUIRED":
		return "Events were missed, because their history no longer exists. Look at the state of the fleet."
	case "GROUP_CRASH_LOOP":
		return sentence("Group "+f("group")+" crashes repeatedly and is paused", f("message"))
	case "INSTANCE_CRASHED":
		return sentence(f("instanceId")+" crashed"+on(f("nodeId")), cmp.Or(f("causeSummary"), f("message")))
	case "INSTANCE_STATE_CHANGED":
		return sentence(f("instanceId")+" is "+f("newState")+on(f("nodeId")), f("message"))
	case "NODE_DISCONNECTED":
		return "Node " + f("nodeId") + " is not connected: its agent ended or is cut off."
	case "NODE_CONNECTED":
		return "Node " + f("nodeId") + " is connected."
	case "NODE_DRAIN_REQUESTED":
		return "Node " + f("nodeId") + " is being drained."
	case "NODE_DRAIN_COMPLETED":
		return "The drain of node " + f("nodeId") + " is complete."
	case "DEPLOYMENT_CREATED":
		return "Deployment " + f("revision") + " of group " + f("groupName") + " began."
	case "DEPLOYMENT_COMPLETED":
		return sentence("Deployment "+f("revision")+" of group "+f("groupName")+" ended: "+f("outcome"), f("message"))
	case "DEPLOYMENT_ROLLED_BACK":
		return sentence("Deployment "+f("revision")+" of group "+f("groupName")+" was rolled back", f("message"))
	case "GROUP_SCALED":
		return sentence("Group "+f("group")+" needs "+f("to")+" instances instead of "+f("from"), f("message"))
	case "INSTANCE_MOVE_ENDED":
		if f("to") == "" { // no node takes it
			return sentence("The move of "+f("instanceId")+" from "+f("from")+" could not begin", f("message"))
		}
		return sentence("The move of "+f("instanceId")+" from "+f("from")+" to "+f("to")+" ended: "+f("step"), f("message"))
	case "SCHEDULE_RUN_ENDED":
		return sentence("Run "+f("run")+" of schedule "+f("schedule")+" ended: "+f("result"), f("message"))
	}
	return listed(e)
}

// listed returns the fields of an event without a sentence of its own.
func listed(e Event) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		if value := said(e.Fields, name); value != "" && len(out) < maxFields {
			out = append(out, name+": "+validate.ClipMessage(value, maxValue))
		}
	}
	return strings.Join(out, ", ")
}

// said returns a field as a text; "" if it is null or not there.
func said(fields map[string]any, name string) string {
	v, ok := fields[name]
	if !ok || v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// sentence adds a message to a beginning.
func sentence(beginning, message string) string {
	if message == "" {
		return beginning + "."
	}
	return beginning + ": " + message
}
