package telemetry

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a kept record, in bytes.
const (
	maxMessage   = 4 << 10
	maxThrowable = 8 << 10
	maxValue     = 1 << 10
	// maxAttrs is the maximum number of attributes.
	maxAttrs = 32
)

// modulePrefix is the common prefix of Orrery's package paths.
const modulePrefix = "github.com/orreryhq/orrery/"

// Handler returns a handler that adds the records next handles to the ring.
func (r *Ring) Handler(next slog.Handler) slog.Handler { return keeper{next: next, ring: r} }

// keeper adds records to a ring and passes them on.
type keeper struct {
	next slog.Handler
	ring *Ring
	// attrs are the attributes of all records, group the prefix of the names of others.
	attrs []slog.Attr
	group string
}

// Enabled implements slog.Handler.
func (k keeper) Enabled(ctx context.Context, level slog.Level) bool {
	return k.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (k keeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	k.next = k.next.WithAttrs(attrs)
	k.attrs = k.attrs[:len(k.attrs):len(k.attrs)]
	for _, a := range attrs {
		a.Key = k.group + a.Key
		k.attrs = append(k.attrs, a)
	}
	return k
}

// WithGroup implements slog.Handler.
func (k keeper) WithGroup(name string) slog.Handler {
	k.next = k.next.WithGroup(name)
	if name != "" {
		k.group += name + "."
	}
	return k
}

// Handle implements slog.Handler.
func (k keeper) Handle(ctx context.Context, rec slog.Record) error {
	out := Record{Level: levelOf(rec.Level), Logger: loggerOf(rec.PC), Message: clip(rec.Message, maxMessage)}
	for _, a := range k.attrs {
		out.attribute("", a)
	}
	rec.Attrs(func(a slog.Attr) bool {
		out.attribute(k.group, a)
		return true
	})
	at := rec.Time
	if at.IsZero() {
		at = time.Now()
	}
	k.ring.add(out, at)
	return k.next.Handle(ctx, rec)
}

// attribute adds an attribute, or all attributes of a group.
func (r *Record) attribute(group string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range value.Group() {
			r.attribute(group, inner)
		}
		return
	}
	if a.Key == "" {
		return
	}
	if failed, ok := value.Any().(error); ok && r.Throwable == "" {
		r.Throwable = clip(failed.Error(), maxThrowable)
		return
	}
	if r.MDC == nil {
		r.MDC = map[string]string{}
	}
	if len(r.MDC) >= maxAttrs {
		return
	}
	text := "***"
	if !namesSecret(a.Key) {
		text = clip(value.String(), maxValue)
	}
	r.MDC[group+a.Key] = text
}

// namesSecret reports whether an attribute's value must be masked because its name suggests a
// secret. Users who read logs over the API are not always allowed to use secrets in them.
func namesSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"token", "password", "secret", "ticket", "authorization", "cookie", "credential", "credentials"} {
		if strings.HasSuffix(name, word) {
			return true
		}
	}
	return false
}

// levelOf returns the name of the level.
func levelOf(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "DEBUG"
	case l < slog.LevelWarn:
		return "INFO"
	case l < slog.LevelError:
		return "WARN"
	}
	return "ERROR"
}

// loggerOf returns the package that wrote the record, "" if unknown.
func loggerOf(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := frame.Function
	slash := strings.LastIndexByte(name, '/') + 1
	if dot := strings.IndexByte(name[slash:], '.'); dot >= 0 {
		name = name[:slash+dot]
	}
	return strings.TrimPrefix(name, modulePrefix)
}

// Clip shortens a text to at most most bytes without splitting a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "…"
	most -= len(more)
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + more
}
