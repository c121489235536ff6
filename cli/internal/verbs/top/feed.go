package top

import (
	"context"
	"errors"

	tea "charm.land/bubbletea/v2"
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// feed reads the objects and follows their events. It sends what it learns, in order.
type feed struct {
	client *orrery.Client
	send   func(tea.Msg)
}

// mostReads is how many objects of a kind are read one by one after events. If there are more, all are read.
const mostReads = 20

// run feeds until ctx ends or a gateway refuses for good.
func (f *feed) run(ctx context.Context) error {
	events, stop, err := app.Watch(ctx, f.client, orrery.EventsOptions{
		OnConnect:   func() { f.send(connectionMsg{}) },
		OnReconnect: func(err error) { f.send(connectionMsg{err}) },
	})
	if err != nil {
		return err
	}
	defer stop()
	if err := f.readAll(ctx); err != nil {
		return err
	}
	for event := range events {
		batch := eventsMsg{event}
		for len(events) > 0 {
			batch = append(batch, <-events)
		}
		f.send(batch)
		if err := f.readChanged(ctx, batch); err != nil {
			return err
		}
	}
	return stop()
}

// readAll reads all objects, those that are counted last.
func (f *feed) readAll(ctx context.Context) error {
	for t := range tabs {
		if err := f.readTab(ctx, tab(t)); err != nil {
			return err
		}
	}
	return f.readProblems(ctx)
}

func (f *feed) readTab(ctx context.Context, t tab) error {
	rows, err := app.List(ctx, f.client, tabs[t].kind, "", nil)
	if err != nil {
		return f.tolerate(ctx, err)
	}
	items := make([]*item, 0, len(rows))
	for _, row := range rows {
		items = append(items, tabs[t].read(row))
	}
	f.send(itemsMsg{tab: t, items: items, whole: true})
	return nil
}

// tolerate returns nil for an error that an event after the next connection makes up for.
func (f *feed) tolerate(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, orrery.ErrUnreachable) || errors.Is(err, orrery.ErrUnavailable)) {
		f.send(noticeMsg(err.Error()))
		return nil
	}
	return err
}

// readProblems counts the problems, if the user may see them.
func (f *feed) readProblems(ctx context.Context) error {
	page, err := f.client.ListProblems(ctx, &orrery.ListProblemsParams{PageSize: 1})
	switch {
	case errors.Is(err, orrery.ErrDenied):
		return nil
	case err != nil:
		return f.tolerate(ctx, err)
	}
	f.send(problemsMsg(page.Total))
	return nil
}

// readChanged reads the objects whose events do not have the new values.
func (f *feed) readChanged(ctx context.Context, batch eventsMsg) error {
	changed := make([]map[string]bool, len(tabs))
	for t := range tabs {
		changed[t] = map[string]bool{}
	}
	problems := false
	for _, event := range batch {
		if event.Type == orrery.ResyncRequired {
			return f.readAll(ctx)
		}
		for t, names := range changed {
			if name := tabs[t].kind.Changed(event.Type, event.Data); name != "" && toldBy(event) == "" {
				names[name] = true
			}
		}
		problems = problems || affectsProblems(event)
	}
	for t, names := range changed {
		if err := f.readNames(ctx, tab(t), names); err != nil {
			return err
		}
	}
	if problems {
		return f.readProblems(ctx)
	}
	return nil
}

// toldBy returns the type of an event that says all that is shown; empty for others.
func toldBy(event orrery.Event) string {
	switch event.Type {
	case "INSTANCE_STATE_CHANGED":
		if gjson.GetBytes(event.Data, "newState").String() == "RUNNING" {
			return "" // its port, memory and players are new
		}
	case "INSTANCE_METRICS", "INSTANCE_REMOVED", "INSTANCE_CRASHED", "GROUP_AGGREGATES_UPDATED", "GROUP_DELETED", "GROUP_SCALED",
		"NODE_CACHE_STATUS", "INSTANCE_MOVE_STARTED", "INSTANCE_MOVE_STEP", "INSTANCE_MOVE_ENDED":
	default:
		return ""
	}
	return event.Type
}

// affectsProblems reports whether an event may begin or end a problem.
func affectsProblems(event orrery.Event) bool {
	switch event.Type {
	case "INSTANCE_CRASHED", "GROUP_CRASH_LOOP", "GROUP_UPDATED", "GROUP_DELETED", "NODE_CONNECTED", "NODE_DISCONNECTED",
		"NODE_HEARTBEAT_STALE", "NODE_HEARTBEAT_RESUMED", "INSTANCE_STATE_CHANGED", "DEPLOYMENT_COMPLETED":
		return true
	}
	return false
}

func (f *feed) readNames(ctx context.Context, t tab, names map[string]bool) error {
	if len(names) > mostReads {
		return f.readTab(ctx, t)
	}
	msg, on := itemsMsg{tab: t}, itemsMsg{tab: instancesTab}
	for name := range names {
		row, _, err := app.Get(ctx, f.client, tabs[t].kind, "", name)
		switch {
		case errors.Is(err, orrery.ErrNotFound):
			msg.gone = append(msg.gone, name)
		case err != nil:
			return f.tolerate(ctx, err)
		default:
			msg.items = append(msg.items, tabs[t].read(row))
			for _, instance := range gjson.GetBytes(row, "instances").Array() { // a node has them, as last reported
				on.items = append(on.items, instanceItem(output.Row(instance.Raw)))
			}
		}
	}
	for _, m := range []itemsMsg{msg, on} {
		if len(m.items)+len(m.gone) > 0 {
			f.send(m)
		}
	}
	return nil
}
