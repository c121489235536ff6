package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) {
	if of, is := os.LookupEnv(audienceOf); is {
		if err := beAudience(of); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// replica is one gateway's event stream with its own view.
type replica struct {
	t       *testing.T
	client  *store.Client
	view    *view.View
	log     *events.Log
	streams *events.Streams
	url     string
}

func newReplica(t *testing.T, etcd *storetest.Etcd, edit ...func(*events.Config)) *replica {
	t.Helper()
	c := etcd.Client(t)
	log := events.NewLog(0)
	cfg := events.Config{Store: c, Log: log, ClusterID: "c1", Tickets: events.NewTickets(c, 0, atOnce), Caller: bearer}
	for _, e := range edit {
		e(&cfg)
	}
	r := &replica{t: t, client: c, view: view.New(c, nil), log: cfg.Log, streams: events.New(cfg)}
	r.view.Subscribe(r.log.OnBatch)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.view.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	r.waitFor(1)
	r.serve()
	return r
}

func (r *replica) serve() {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.GET("/stream", r.streams.Stream)
	e.POST("/ticket", r.streams.Ticket)
	srv := httptest.NewServer(e)
	r.url = srv.URL
	r.t.Cleanup(func() { r.streams.Close(); srv.Close() })
}

// bearer uses the token as the user name.
func bearer(c *gin.Context) (account.Credential, error) {
	user, ok := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
	if !ok {
		return account.Credential{}, errs.New(errs.Unauthenticated, "log in")
	}
	return account.Credential{User: user}, nil
}

// commit writes to the store and waits until the replica has the writes.
func (r *replica) commit(writes ...store.Write) int64 {
	r.t.Helper()
	rev, err := r.client.Commit(r.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		r.t.Fatal(err)
	}
	r.waitFor(rev)
	return rev
}

func (r *replica) waitFor(rev int64) {
	r.t.Helper()
	await.That(r.t, fmt.Sprint("revision ", rev, " in the log"), func() string {
		head := r.log.Head()
		return await.Unless(head >= rev, "%d", head)
	})
}

func (r *replica) createGroup(name fleet.GroupName) int64 {
	r.t.Helper()
	return r.commit(store.Create(keys.Group(name), fleet.Group{Name: name}))
}

// frame is one server-sent event.
type frame struct {
	event, id, data string
	comment         string
}

func (f frame) field(t *testing.T, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(f.data), &m); err != nil {
		t.Fatalf("data %q: %v", f.data, err)
	}
	return m[name]
}

// stream reads the frames of a response.
type stream struct {
	t      *testing.T
	resp   *http.Response
	in     *bufio.Reader
	cancel context.CancelFunc
}

func (r *replica) request(query string, header ...string) (*http.Response, context.CancelFunc) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), await.Patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/stream"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(query, "ticket=") {
		req.Header.Set("Authorization", "Bearer ann")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	return resp, cancel
}

// open starts a stream and reads the connected frame.
func (r *replica) open(query string, header ...string) *stream {
	r.t.Helper()
	resp, cancel := r.request(query, header...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" {
		r.t.Fatalf("%s with %v", resp.Status, resp.Header)
	}
	s := &stream{t: r.t, resp: resp, in: bufio.NewReader(resp.Body), cancel: cancel}
	if f := s.next(); f.event != "connected" || f.field(r.t, "clusterId") != "c1" || f.field(r.t, "latestSequence") == nil || f.field(r.t, "message") == "" {
		r.t.Fatalf("the first frame is %+v", f)
	}
	return s
}

func (s *stream) read() (frame, error) {
	var f frame
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return f, err
		}
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "":
			if line == "" {
				return f, nil
			}
			f.comment = value
		case "event":
			f.event = value
		case "id":
			f.id = value
		case "data":
			f.data = value
		}
	}
}

func (s *stream) next() frame {
	s.t.Helper()
	for {
		f, err := s.read()
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		if f.comment == "" {
			return f
		}
	}
}

// take reads n messages as "<id> <TYPE> <groupName>".
func (s *stream) take(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		f := s.next()
		if f.event != "message" {
			s.t.Fatalf("after %v came %+v", out, f)
		}
		out = append(out, fmt.Sprintf("%s %v %v", f.id, f.field(s.t, "type"), f.field(s.t, "groupName")))
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n %s\nwant\n %s", what, strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

// atOnce is a replica that is always up to date.
func atOnce(context.Context, int64) error { return nil }
