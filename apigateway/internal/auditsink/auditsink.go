// Package auditsink copies entries of the audit to a file or to syslog, a JSON object each.
//
// Each gateway copies the entries that it wrote. An entry is copied at most once: what waits
// when the gateway is killed, or does not fit while the target is slow, is lost there and
// counted. The audit itself keeps it.
package auditsink

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"log/syslog"
	"net/url"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// maxWaiting bounds the entries that wait for a slow target.
	maxWaiting = 4096
	// lastPatience is how long the target may take for what waits when the gateway ends.
	lastPatience = 3 * time.Second
)

// Local is the target that stands for the host's own syslog.
const Local = "syslog"

// tag names the program in syslog.
const tag = "orrery-audit"

// Sink copies entries. A nil one copies nothing.
type Sink struct {
	target  string
	open    func() (writer, error)
	waiting chan []byte
	log     *slog.Logger
	lost    func()
	// patience is lastPatience but in tests.
	patience time.Duration
}

// writer takes one line at a time.
type writer interface {
	Write([]byte) (int, error)
	Close() error
}

// New returns a sink for a target: a file, Local, or a syslog server as udp://host:port or
// tcp://host:port. No target makes a nil Sink. Invalid when the target cannot be understood.
func New(target string, log *slog.Logger, metrics *telemetry.Metrics) (*Sink, error) {
	if target == "" {
		return nil, nil
	}
	open, err := opener(target)
	if err != nil {
		return nil, err
	}
	lost := metrics.Counter("audit_sink_lost", "Entries of the audit that were not copied to audit.sink.")
	return &Sink{
		target: target, open: open, waiting: make(chan []byte, maxWaiting), log: log,
		lost: func() { lost.WithLabelValues().Inc() }, patience: lastPatience,
	}, nil
}

// Check reports whether a target can be understood.
func Check(target string) error {
	if target == "" {
		return nil
	}
	_, err := opener(target)
	return err
}

func opener(target string) (func() (writer, error), error) {
	const priority = syslog.LOG_AUTHPRIV | syslog.LOG_NOTICE
	if target == Local {
		return func() (writer, error) { return syslog.New(priority, tag) }, nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme == "" {
		return func() (writer, error) { return os.OpenFile(target, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) }, nil
	}
	if (u.Scheme != "udp" && u.Scheme != "tcp") || u.Port() == "" || u.Path != "" {
		return nil, errs.Field("audit.sink", "%q is no target: name a file, %s, udp://host:port or tcp://host:port", target, Local)
	}
	return func() (writer, error) { return syslog.Dial(u.Scheme, u.Host, priority, tag) }, nil
}

// Put copies an entry soon. It never waits.
func (s *Sink) Put(e fleet.AuditEntry, rev int64) {
	if s == nil {
		return
	}
	line, err := json.Marshal(struct {
		fleet.AuditEntry
		Class    string `json:"class"`
		Result   string `json:"result"`
		Revision int64  `json:"revision"`
	}{e, e.Class().String(), e.Result(), rev})
	if err != nil { // entries are stored as JSON
		return
	}
	select {
	case s.waiting <- append(line, '\n'):
	default:
		s.lost()
	}
}

// Run copies entries until ctx ends, and then those that wait. A target that does not take
// them keeps the gateway from ending for a few seconds only.
func (s *Sink) Run(ctx context.Context) {
	if s == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.copy(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(s.patience):
		s.log.Error("the last entries of the audit were not copied: the target does not take them", "sink", s.target, "waiting", len(s.waiting))
	}
}

// copy is Run without a bound on its end. It opens the target at once, so that a mistake in
// the setting is told before there is an entry to lose.
func (s *Sink) copy(ctx context.Context) {
	if w, err := s.open(); err != nil {
		s.log.Error("no entry of the audit can be copied: the target cannot be opened", "sink", s.target, "error", fmt.Errorf("auditsink: %w", err))
	} else {
		_ = w.Close() // nothing was written
	}
	for {
		select {
		case line := <-s.waiting:
			s.write(line)
		case <-ctx.Done():
			for len(s.waiting) > 0 {
				s.write(<-s.waiting)
			}
			return
		}
	}
}

// write copies a line and those that wait behind it. It opens the target anew each time, so
// that a file may be rotated and a server may restart.
func (s *Sink) write(line []byte) {
	w, err := s.open()
	if err == nil {
		if _, err = w.Write(line); err == nil {
			for range len(s.waiting) {
				if _, err = w.Write(<-s.waiting); err != nil {
					break
				}
			}
		}
		_ = w.Close() // every Write was answered for
	}
	if err != nil {
		s.lost()
		s.log.Error("an entry of the audit was not copied", "sink", s.target, "error", fmt.Errorf("auditsink: %w", err))
	}
}
