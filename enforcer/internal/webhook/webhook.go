// Package webhook asks the servers of webhook policies how many instances a group shall have. A call
// never delays a decision: the enforcer decides with the last answer, and an answer that differs leads
// to another look at the group.
//
// Everything is bounded: the calls at once, those that wait, the time and the bytes of an answer, and how
// long an answer applies while later calls fail.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

const (
	// callers is how many calls are made at once.
	callers = 8
	// maxWaiting is how many calls wait for one of them. Further calls are put off.
	maxWaiting = 1024
	// maxAnswer bounds the body of an answer, in bytes.
	maxAnswer = 64 << 10
	// maxKnown bounds the policies whose answers are remembered.
	maxKnown = 10_000
)

// Config configures a Client. All fields are required.
type Config struct {
	Egress egress.Policy
	Log    *slog.Logger
	// Now returns the time for measuring ages.
	Now func() time.Time
	// Answered is called after a call whose answer differs from the one before.
	Answered func(fleet.GroupName)
	// Called counts a call.
	Called func(ok bool)
}

// Client calls webhooks. It is safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	waiting chan call

	mu    sync.Mutex // guards known
	known map[key]*state
}

// key identifies a policy as it is. A changed policy is another one.
type key struct {
	group  fleet.GroupName
	policy scalepolicy.Policy
}

// state is the last call and the last answer of a policy.
type state struct {
	// called is when the last call was requested, and busy whether it has not ended.
	called time.Time
	busy   bool
	// answered is when a call last succeeded; zero for never. number is its answer; -1 for none.
	answered time.Time
	number   int
	// failed is why the last call failed; "" if it did not.
	failed string
}

type call struct {
	key
	metrics scaling.Metrics
}

// New returns a client. Calls are made while Run runs.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, known: map[key]*state{}, waiting: make(chan call, maxWaiting)}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy: cfg.Egress.ProxyOf, MaxIdleConns: callers, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return cfg.Egress.DialHTTP(ctx, scalepolicy.MaxTimeout*time.Second, network, address)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Run makes the calls until ctx ends.
func (c *Client) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case next := <-c.waiting:
					c.perform(ctx, next)
				}
			}
		})
	}
	all.Wait()
	c.http.CloseIdleConnections()
}

// Answer returns what a policy asks for now.
func (c *Client) Answer(group fleet.GroupName, p scalepolicy.Policy) scaling.Answer {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.known[key{group, p}]
	switch {
	case s == nil || s.answered.IsZero() && s.failed == "":
		return scaling.Answer{Message: "its server has not answered yet"}
	case s.answered.IsZero():
		return scaling.Answer{Message: "its server has never answered: " + s.failed}
	case s.failed != "" && now.Sub(s.answered) > seconds(p.FallbackSeconds):
		return scaling.Answer{Message: fmt.Sprintf("its server has not answered for %d seconds: %s", p.FallbackSeconds, s.failed)}
	case now.Sub(s.answered) > seconds(p.IntervalSeconds+p.TimeoutSeconds+p.FallbackSeconds): // nothing asked it meanwhile
		return scaling.Answer{Message: "its last answer is too old"}
	case s.number < 0:
		return scaling.Answer{Message: "its server asks for no number"}
	}
	a := scaling.Answer{Instances: s.number, Given: true, Message: fmt.Sprintf("its server answered %d", s.number)}
	if s.failed != "" {
		a.Message += "; the last call failed: " + s.failed
	}
	return a
}

// Call requests the calls of a group that are due, and returns when the next one is; zero for never. It
// forgets the policies that the group no longer has.
func (c *Client) Call(group fleet.GroupName, policies []scalepolicy.Policy, m scaling.Metrics) (next time.Time) {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(k key, _ *state) bool { return k.group == group && !slices.Contains(policies, k.policy) })
	for _, p := range policies {
		if p.Type != scalepolicy.Webhook {
			continue
		}
		k := key{group, p}
		s := c.known[k]
		if s == nil {
			if c.forget(now); len(c.known) >= maxKnown {
				continue
			}
			s = &state{number: -1}
			c.known[k] = s
		}
		due := s.called.Add(seconds(p.IntervalSeconds))
		if !s.busy && (s.called.IsZero() || !due.After(now)) {
			select {
			case c.waiting <- call{k, m}:
				s.busy = true
			default: // too many wait: the next interval comes
			}
			s.called, due = now, now.Add(seconds(p.IntervalSeconds))
		}
		if !due.After(now) { // the last call has not ended
			due = now.Add(seconds(p.IntervalSeconds))
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// forget removes policies that were not called for so long that another replica or nothing owns them.
// The caller holds mu.
func (c *Client) forget(now time.Time) {
	if len(c.known) < maxKnown {
		return
	}
	maps.DeleteFunc(c.known, func(k key, s *state) bool {
		return !s.busy && now.Sub(s.called) > seconds(k.policy.IntervalSeconds+k.policy.FallbackSeconds)
	})
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// perform makes a call and remembers its result.
func (c *Client) perform(ctx context.Context, next call) {
	number, err := c.ask(ctx, next)
	if ctx.Err() != nil {
		return
	}
	defer c.cfg.Called(err == nil)
	c.mu.Lock()
	s, ok := c.known[next.key]
	if !ok {
		c.mu.Unlock()
		return
	}
	before := *s
	s.busy = false
	if err != nil {
		s.failed = validate.Clip(errs.MessageOf(err))
	} else {
		s.answered, s.number, s.failed = c.cfg.Now(), number, ""
	}
	after := *s
	c.mu.Unlock()
	if (before.failed == "") != (after.failed == "") {
		c.cfg.Log.Warn("a webhook of a scaling policy changed its state", "group", next.group, "policy", next.policy.Name, "failure", after.failed)
	}
	if before.number != after.number || before.answered.IsZero() != after.answered.IsZero() {
		c.cfg.Answered(next.group)
	}
}

// question is what a server gets.
type question struct {
	Group   fleet.GroupName `json:"group"`
	Policy  string          `json:"policy"`
	Metrics scaling.Metrics `json:"metrics"`
}

// ask makes a call. It returns -1 if the server asks for no number.
func (c *Client) ask(ctx context.Context, next call) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(next.policy.TimeoutSeconds))
	defer cancel()
	body, err := json.Marshal(question{next.group, next.policy.Name, next.metrics})
	if err != nil {
		return 0, errs.WrapAs(errs.Internal, "webhook.ask", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, next.policy.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errs.WrapAs(errs.Invalid, "webhook.ask", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "orrery")
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return 0, errs.New(errs.Unavailable, "no answer within %d seconds", next.policy.TimeoutSeconds)
		}
		if errs.Is(err, errs.Denied) {
			return 0, err
		}
		return 0, &errs.Error{Op: "webhook.ask", Kind: errs.Unavailable, Err: err, Message: err.Error()}
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNoContent:
		return -1, nil
	case http.StatusOK:
	default:
		return 0, errs.New(errs.Unavailable, "it answered with status %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if ctx.Err() != nil {
		return 0, errs.New(errs.Unavailable, "no whole answer within %d seconds", next.policy.TimeoutSeconds)
	}
	if err != nil {
		return 0, errs.WrapAs(errs.Unavailable, "webhook.ask", err)
	}
	return read(text)
}

// read returns the number in an answer, or -1 for none.
func read(text []byte) (int, error) {
	var answer struct {
		Instances *int `json:"instances"`
	}
	switch err := json.Unmarshal(text, &answer); {
	case len(text) > maxAnswer:
		return 0, errs.New(errs.Invalid, "its answer has more than %d bytes", maxAnswer)
	case err != nil:
		return 0, errs.New(errs.Invalid, `its answer is not JSON like {"instances":3}`)
	case answer.Instances == nil:
		return -1, nil
	case *answer.Instances < 0 || *answer.Instances > validate.MaxInstances:
		return 0, errs.New(errs.Invalid, "its answer asks for %d instances", *answer.Instances)
	}
	return *answer.Instances, nil
}
