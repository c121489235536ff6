package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// workers is the number of concurrent workers.
	workers = 4
	// dialTimeout limits the delay that a stopped gateway causes.
	dialTimeout = time.Second
	// failover limits the time until some gateway accepts a call.
	failover = 15 * time.Second
	// settling limits the time of an instance's start and of its stop.
	settling = 45 * time.Second
	// look is the polling interval for an instance.
	look = 100 * time.Millisecond
)

// Load runs workers that repeatedly create an instance, wait until it runs and stop it,
// while the test does other things. A worker fails over to the next gateway, see call.
// Every other failed call counts as a failure, and so does an instance that does not start.
type Load struct {
	t      testing.TB
	group  string
	token  string
	client *http.Client
	// targets are the gateways' containers. Their own addresses refuse connections when
	// they are down, unlike the engine's proxy for published ports.
	targets []Container
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	failures []string // guarded by mu, like all fields below
	done     int
	switched int
	slowest  time.Duration
	at       int
	address  string
}

// StartLoad starts a load on a group.
func (s *Stack) StartLoad(group string) *Load {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	// Connections are not reused, because one that is closed while idle would look like a
	// failed call.
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DisableKeepAlives: true}
	l := &Load{t: s.t, group: group, client: &http.Client{Transport: transport, Timeout: settling}, stop: cancel}
	l.targets = append(s.Containers("gateway-1"), s.Containers("gateway-2")...)
	var login struct{ Token string }
	if err := l.call(ctx, http.MethodPost, "/api/v1/auth/login", map[string]string{"username": "admin", "password": password}, &login); err != nil {
		s.t.Fatal(err)
	}
	l.token = login.Token
	for range workers {
		l.running.Go(func() { l.work(ctx) })
	}
	return l
}

// Done returns how many instances have run and been stopped.
func (l *Load) Done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Stop ends the load, reports its work and fails the test if anything failed.
func (l *Load) Stop() {
	l.t.Helper()
	l.stop()
	l.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%d instances came and went, the slowest took %v to run; calls went to another gateway %d times",
		l.done, l.slowest.Round(time.Millisecond), l.switched)
	for _, f := range l.failures {
		l.t.Error(f)
	}
}

func (l *Load) work(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.round(ctx); err != nil && ctx.Err() == nil {
			l.mu.Lock()
			l.failures = append(l.failures, err.Error())
			l.mu.Unlock()
		}
	}
}

// round creates, awaits and stops one instance.
func (l *Load) round(ctx context.Context) error {
	var started struct{ Instances []struct{ UID string } }
	if err := l.call(ctx, http.MethodPost, "/api/v1/groups/"+l.group+"/start", map[string]int{"count": 1}, &started); err != nil {
		return err
	}
	if len(started.Instances) != 1 {
		return fmt.Errorf("%d instances were started, want 1", len(started.Instances))
	}
	path := "/api/v1/services/" + started.Instances[0].UID
	begun := time.Now()
	if err := l.await(ctx, path, "RUNNING"); err != nil {
		return err
	}
	took := time.Since(begun)
	if err := l.call(ctx, http.MethodPost, path+"/stop", nil, nil); err != nil {
		return err
	}
	if err := l.await(ctx, path, "STOPPED"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.slowest = l.done+1, max(l.slowest, took)
	return nil
}

// await waits until an instance is in a state. A gateway that has not yet seen the other
// gateway's write may return NotFound at first.
func (l *Load) await(ctx context.Context, path, want string) error {
	deadline := time.Now().Add(settling)
	for {
		var i struct{ ID, Node, State, Reason, Message string }
		err := l.call(ctx, http.MethodGet, path, nil, &i)
		var refused *refusal
		switch {
		case errors.As(err, &refused) && refused.status == http.StatusNotFound:
		case err != nil:
			return err
		case i.State == want:
			return nil
		case i.State == "CRASHED", i.State == "STOPPED":
			return fmt.Errorf("%s is %s instead of %s: %s: %s", i.ID, i.State, want, i.Reason, i.Message)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s was not %s after %v: %+v %v", path, want, settling, i, err)
		}
		if !pause.For(ctx, look) {
			return ctx.Err()
		}
	}
}

// refusal is a response other than success.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// call sends a request to the current gateway. If the connection fails, so that nothing was
// sent, it tries the next gateway. It also does so for a repeatable call whose connection
// breaks.
func (l *Load) call(ctx context.Context, method, path string, body, into any) error {
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(failover)
	for {
		at, address := l.target(ctx)
		answer, status, err := l.send(ctx, method, "http://"+address+path, payload)
		switch {
		case ctx.Err() == nil && (unsent(err) || err != nil && repeatable(method, path)) && time.Now().Before(deadline):
			l.next(at)
			pause.For(ctx, look)
			continue
		case err != nil:
			return err
		case status >= 300:
			return &refusal{status: status, text: fmt.Sprintf("%s %s: status %d: %s", method, path, status, answer)}
		case into == nil:
			return nil
		}
		return json.Unmarshal(answer, into)
	}
}

// unsent reports whether a call failed before anything was sent.
func unsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// repeatable reports whether a call is idempotent: reading and stopping are.
func repeatable(method, path string) bool {
	return method == http.MethodGet || strings.HasSuffix(path, "/stop")
}

func (l *Load) send(ctx context.Context, method, url string, payload []byte) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(payload))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		req.Header.Set("Authorization", "Bearer "+l.token)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return answer, resp.StatusCode, err
}

// target returns the current gateway and its address at the time of the choice.
func (l *Load) target(ctx context.Context) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == "" {
		l.address = net.JoinHostPort(l.targets[l.at].IP(ctx), "8080")
	}
	return l.at, l.address
}

// next switches to another gateway, unless another worker already has.
func (l *Load) next(from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == from {
		l.at, l.address = (from+1)%len(l.targets), ""
		l.switched++
	}
}
