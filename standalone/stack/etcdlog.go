package stack

import (
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcdLog returns a logger for etcd. It forwards the reason why etcd ends the process, such
// as a failed write, and etcd's other errors at debug level.
func etcdLog(log *slog.Logger) *zap.Logger { return zap.New(etcdCore{log: log}) }

type etcdCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

func (c etcdCore) Enabled(l zapcore.Level) bool { return l >= zapcore.ErrorLevel }

func (c etcdCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

func (c etcdCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c etcdCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(enc)
	}
	var attrs []any
	for _, k := range slices.Sorted(maps.Keys(enc.Fields)) {
		attrs = append(attrs, k, enc.Fields[k])
	}
	if e.Level == zapcore.ErrorLevel { // etcd continues after these, and every clean shutdown logs many
		c.log.Debug("etcd: "+e.Message, attrs...)
		return nil
	}
	c.log.Error("etcd cannot continue and ends this process: check its disk and start again; the instances keep running and are adopted",
		append(attrs, "cause", e.Message)...)
	return nil
}

func (c etcdCore) Sync() error { return nil }
