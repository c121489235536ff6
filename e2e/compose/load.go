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
	// workers create and stop instances side by side.
	workers = 4
	// dialTimeout is how long a gateway that is down may hold up a call.
	dialTimeout = time.Second
	// failover bounds how long some gateway must take a call.
	failover = 15 * time.Second
	// settling bounds how long an instance may take to run, and to stop.
	settling = 45 * time.Second
	// look is the pause between two looks at an instance.
	look = 100 * time.Millisecond
)

// Load creates an instance, waits until it runs, stops it, and begins anew, with
// several workers, while other things happen. A worker goes to the next gateway
// as a careful client does, see call; every other failure of a call counts, as
// does an instance that does not come to run.
type Load struct {
	t      testing.TB
	group  string
	token  string
	client *http.Client
	// targets are the gateways' containers: their own addresses refuse connections
	// when they are down, while the engine's proxy of published ports takes any.
	targets []Container
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	failures []string // guarded by mu, as is all below
	done     int
	switched int
	slowest  time.Duration
	at       int
	address  string
}

// StartLoad begins to create and stop instances of a group.
func (s *Stack) StartLoad(group string) *Load {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	// Connections are not kept: one that is closed while idle looks like a call that failed.
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

// Done is how many instances ran and were stopped again.
func (l *Load) Done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Stop ends the load, reports what it did and fails the test when anything failed.
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

// round is the life of one instance.
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

// await waits until an instance has come to a state. A gateway that has not seen
// yet what the other one wrote says NotFound for a moment.
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

// refusal is an answer other than success.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// call sends a request to the gateway in use. When it cannot be connected to, so
// that nothing was sent, the next one is asked; a call that may be repeated also is
// when its connection breaks.
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

// unsent reports that a call failed before anything of it was sent.
func unsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// repeatable reports that a call does the same once or twice: looking and stopping.
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

// target is the gateway in use and its address as of when it was chosen.
func (l *Load) target(ctx context.Context) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == "" {
		l.address = net.JoinHostPort(l.targets[l.at].IP(ctx), "8080")
	}
	return l.at, l.address
}

// next goes on to another gateway, unless another worker has done so already.
func (l *Load) next(from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == from {
		l.at, l.address = (from+1)%len(l.targets), ""
		l.switched++
	}
}
