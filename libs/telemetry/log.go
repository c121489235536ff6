package telemetry

import (
	"io"
	"log/slog"
)

// LogOptions configures a logger.
type LogOptions struct {
	// Service and Replica are attributes of every line. An empty Replica is omitted.
	Service, Replica string
	// Level is debug, info, warn or error.
	Level string
	// Format is text or json.
	Format string
	// Writer receives the lines, one Write each. Mains pass os.Stderr.
	Writer io.Writer
	// Ring keeps the last records. It may be nil.
	Ring *Ring
}

// NewLogger returns a service's logger. The error is Invalid for a wrong level or format.
func NewLogger(o LogOptions) (*slog.Logger, error) {
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	if err := checkFormat(o.Format); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(o.Writer, opts)
	if o.Format == "json" {
		h = slog.NewJSONHandler(o.Writer, opts)
	}
	log := slog.New(h).With("service", o.Service)
	if o.Replica != "" {
		log = log.With("replica", o.Replica)
	}
	if o.Ring != nil {
		log = slog.New(o.Ring.Handler(log.Handler()))
	}
	return log, nil
}
