package reading

import (
	"context"
	"errors"
	"slices"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// watch prints the objects of a query, and then each one that an event is about. It reads the objects
// after the stream has begun, so that no change is missed between the two.
func watch(ctx context.Context, a *app.App, client *orrery.Client, q *query) error {
	lost := false // both functions are called by one goroutine
	events, stop, err := app.Watch(ctx, client, orrery.EventsOptions{
		OnConnect: func() { lost = false },
		OnReconnect: func(err error) {
			if !lost {
				a.Notef("connection lost: %v; reconnecting", err)
			}
			lost = true
		},
	})
	if err != nil {
		return err
	}
	defer stop()
	rows, err := q.rows(ctx, client)
	if err != nil {
		return err
	}
	if err := q.print(rows); err != nil {
		return err
	}
	q.printer.NoHeaders = true
	for event := range events {
		if err := q.printChanged(ctx, client, append(app.Drain(events), event)); err != nil {
			return err
		}
	}
	return stop()
}

// printChanged prints the objects that the events are about. An object that is gone is left out.
func (q *query) printChanged(ctx context.Context, client *orrery.Client, events []orrery.Event) error {
	var names []string
	for _, event := range events {
		if event.Type == "RESYNC_REQUIRED" {
			rows, err := q.rows(ctx, client)
			if err != nil {
				return err
			}
			return q.print(rows)
		}
		name := q.kind.Changed(event.Type, event.Data)
		if name != "" && !slices.Contains(names, name) && (len(q.names) == 0 || slices.Contains(q.names, name)) {
			names = append(names, name)
		}
	}
	var rows []output.Row
	for _, name := range names {
		row, _, err := app.Get(ctx, client, q.kind, q.group, name)
		if errors.Is(err, orrery.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if q.selects(row) {
			rows = append(rows, row)
		}
	}
	return q.print(rows)
}

// selects reports whether a row matches the flags, which the server did not check.
func (q *query) selects(row output.Row) bool {
	for name := range q.params {
		if field := gjson.GetBytes(row, name); field.Exists() && field.String() != q.params.Get(name) {
			return false
		}
	}
	return q.filter.Matches(row)
}

// print prints rows one after another. JSON objects are not put into an array, whose end never
// comes.
func (q *query) print(rows []output.Row) error {
	if q.printer.Format.ForPeople() || q.printer.Format.Name == "csv" || q.printer.Format.Name == "name" {
		if len(rows) == 0 {
			return nil
		}
		return q.printer.List(q.kind.Columns, q.kind.NameField, rows)
	}
	for _, row := range rows {
		if err := q.printer.Object(q.kind.Columns, q.kind.NameField, row); err != nil {
			return err
		}
	}
	return nil
}
