package live

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// allRecords is more records than a log has.
const allRecords = 1 << 20

// systemLogs prints the log of a node's agent, or that of the gateway if node is "".
func systemLogs(ctx context.Context, a *app.App, o logsOptions, node string) error {
	if o.byFlags() || o.previous {
		return command.UsageError("leave them out", "-l, --group, --node and --previous are for the logs of servers")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	o.level = strings.ToUpper(o.level)
	o.timestamps = true
	p := newPrinter(a, o)
	out := p.named("")
	if o.follow {
		err = followRecords(ctx, a, client, o, node, out)
	} else {
		err = storedRecords(ctx, a, client, o, node, out)
	}
	if flushed := p.flush(); flushed != nil {
		return flushed
	}
	return err
}

func storedRecords(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, node string, out *named) error {
	limit := o.lines
	if limit < 0 {
		limit = allRecords
	}
	var records []orrery.LogRecord
	if node == "" {
		found, err := client.ListSystemLogs(ctx, &orrery.ListSystemLogsParams{Level: o.level, Limit: &limit})
		if err != nil {
			return err
		}
		for _, replica := range slices.Sorted(maps.Keys(found.MissingReasons)) {
			a.Notef("the log of %s is missing: %s", replica, found.MissingReasons[replica])
		}
		records = found.Records
	} else {
		found, err := client.ListNodeLogs(ctx, node, &orrery.ListNodeLogsParams{Level: o.level, Limit: &limit})
		if err != nil {
			return app.Suggest(ctx, client, err, kinds.Get("node"), "", node)
		}
		records = found.Records
	}
	for _, r := range records {
		event := orrery.LogEvent{Level: r.Level, Logger: r.Logger, Process: r.Thread, Message: r.Message, Error: r.Throwable, Attributes: r.MDC, Time: time.UnixMilli(r.Ts)}
		if err := o.printRecord(out, a.Style(), event); err != nil {
			return err
		}
	}
	return nil
}

func followRecords(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, node string, out *named) error {
	n := &notes{a: a, out: out.printer}
	options := orrery.LogsOptions{Level: o.level, Tail: o.lines, OnReconnect: n.lost}
	switch {
	case o.lines == 0:
		options.Tail = -1
	case o.lines < 0:
		options.Tail = allRecords
	}
	var records iter.Seq2[orrery.LogEvent, error]
	if node == "" {
		records = client.SystemLogs(ctx, options)
	} else {
		records = client.NodeLogs(ctx, node, options)
	}
	for record, err := range records {
		switch {
		case err != nil && node != "":
			return app.Suggest(ctx, client, err, kinds.Get("node"), "", node)
		case err != nil:
			return err
		case record.Gap:
			a.Notef("%s", record.Message)
			continue
		}
		if err := o.printRecord(out, a.Style(), record); err != nil {
			return err
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
	return nil
}

// printRecord prints a record, unless it is too old or too new.
func (o *logsOptions) printRecord(out *named, style output.Style, r orrery.LogEvent) error {
	if r.Time.Before(o.from) || !o.to.IsZero() && r.Time.After(o.to) {
		return nil
	}
	level := fmt.Sprintf("%-5s", r.Level)
	switch r.Level {
	case "ERROR":
		level = style.Red(level)
	case "WARN":
		level = style.Yellow(level)
	}
	line := level + " " + r.Process + " " + r.Logger + ": " + r.Message
	if r.Error != "" {
		line += ": " + r.Error
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		line += " " + style.Dim(name+"="+r.Attributes[name])
	}
	return out.print(r.Time, strings.ReplaceAll(line, "\n", " ⏎ "))
}
