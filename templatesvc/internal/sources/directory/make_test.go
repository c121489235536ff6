package directory

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"
)

func mkfifo(name string) error { return unix.Mkfifo(name, 0o600) }

// counter counts log records.
type counter struct{ n int }

func (c *counter) Enabled(context.Context, slog.Level) bool  { return true }
func (c *counter) Handle(context.Context, slog.Record) error { c.n++; return nil }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler        { return c }
func (c *counter) WithGroup(string) slog.Handler             { return c }
