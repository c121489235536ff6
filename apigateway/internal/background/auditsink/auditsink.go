// Package auditsink copies audit entries to a file or to syslog, one JSON object per entry.
//
// Each gateway copies the entries that it wrote, each at most once. Entries that are queued when
// the gateway is killed, or that arrive while the queue of a slow target is full, are not copied
// and are counted. The audit itself still has them.
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
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// maxWaiting is the length of the queue for a slow target.
	maxWaiting = 4096
	// lastPatience is how long shutdown waits for the queued entries.
	lastPatience = 3 * time.Second
)

// Local is the target for the syslog daemon of this host.
const Local = "syslog"

// tag names the program in syslog.
const tag = "orrery-audit"

// Sink copies entries. A nil Sink copies nothing.
type Sink struct {
	target  string
	open    func() (writer, error)
	waiting chan []byte
	log     *slog.Logger
	lost    func()
	// patience is lastPatience except in tests.
	patience time.Duration
}

// writer writes one line per call.
type writer interface {
	Write([]byte) (int, error)
	Close() error
}

// New returns a sink for a target: a file, Local, or a syslog server as udp://host:port or
// tcp://host:port. It returns a nil Sink for an empty target, and Invalid for an invalid one.
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

// Check validates a target. It returns Invalid, naming the setting.
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
		return nil, errs.Field("audit.sink", "%q is not a valid target: use a file, %s, udp://host:port or tcp://host:port", target, Local)
	}
	return func() (writer, error) { return syslog.Dial(u.Scheme, u.Host, priority, tag) }, nil
}

// Put queues an entry. It never blocks.
func (s *Sink) Put(e account.AuditEntry, rev int64) {
	if s == nil {
		return
	}
	line, err := json.Marshal(struct {
		account.AuditEntry
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

// Run copies entries until ctx ends, then copies the queued ones. If the target is stuck, Run
// gives up after a few seconds.
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
		s.log.Error("the last audit entries were not copied: the target did not accept them in time", "sink", s.target, "waiting", len(s.waiting))
	}
}

// copy is Run without a time limit at the end. It opens the target at once, so that a wrong
// setting is logged before an entry is lost.
func (s *Sink) copy(ctx context.Context) {
	if w, err := s.open(); err != nil {
		s.log.Error("audit entries cannot be copied: the target cannot be opened", "sink", s.target, "error", fmt.Errorf("auditsink: %w", err))
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

// write copies a line and all queued ones. It opens the target each time, so that a file can be
// rotated and a server can restart.
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
		_ = w.Close() // errors of Write were handled
	}
	if err != nil {
		s.lost()
		s.log.Error("cannot copy an audit entry", "sink", s.target, "error", fmt.Errorf("auditsink: %w", err))
	}
}
