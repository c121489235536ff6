package telemetry

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// What of a record is kept, in bytes; the rest is left out.
const (
	maxMessage   = 4 << 10
	maxThrowable = 8 << 10
	maxValue     = 1 << 10
	// maxAttrs is the number of attributes.
	maxAttrs = 32
)

// modulePrefix is what the names of all of Orrery's packages begin with.
const modulePrefix = "github.com/orreryhq/orrery/"

// Handler passes on what another handler takes, and keeps it.
func (r *Ring) Handler(next slog.Handler) slog.Handler { return keeper{next: next, ring: r} }

// keeper is a handler that keeps records.
type keeper struct {
	next slog.Handler
	ring *Ring
	// attrs are those of all records, group what the names of others begin with.
	attrs []slog.Attr
	group string
}

// Enabled says what the other handler takes.
func (k keeper) Enabled(ctx context.Context, level slog.Level) bool {
	return k.next.Enabled(ctx, level)
}

// WithAttrs is the handler of records that have these attributes.
func (k keeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	k.next = k.next.WithAttrs(attrs)
	k.attrs = k.attrs[:len(k.attrs):len(k.attrs)]
	for _, a := range attrs {
		a.Key = k.group + a.Key
		k.attrs = append(k.attrs, a)
	}
	return k
}

// WithGroup is the handler of records whose attributes are in a group.
func (k keeper) WithGroup(name string) slog.Handler {
	k.next = k.next.WithGroup(name)
	if name != "" {
		k.group += name + "."
	}
	return k
}

// Handle keeps a record and passes it on.
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

// attribute adds an attribute, or those of a group.
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

// namesSecret reports whether what has a name is nobody's to read: who may read a log over
// the API is not always who may use what the log of a process tells its operator.
func namesSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"token", "password", "secret", "ticket", "authorization", "cookie", "credential", "credentials"} {
		if strings.HasSuffix(name, word) {
			return true
		}
	}
	return false
}

// levelOf is the name of the level a record counts as.
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

// loggerOf is the package of who wrote a record; empty when that is not known.
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

// clip is the beginning of a text of at most so many bytes, in whole characters.
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
