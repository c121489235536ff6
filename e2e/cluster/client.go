package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/openapitest"
)

// Client is a JSON client for a cluster with a logged-in user.
type Client struct {
	t     testing.TB
	api   string
	token string
	http  *http.Client
	// contract returns the cluster's OpenAPI document.
	contract func() (*openapitest.Contract, error)
}

// Login logs in as the admin.
func Login(t testing.TB, c Cluster) *Client {
	t.Helper()
	password, err := os.ReadFile(c.PasswordFile())
	if err != nil {
		t.Fatal(err)
	}
	cl := Anonymous(t, c)
	var answer struct{ Token string }
	cl.Do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": strings.TrimSpace(string(password))}).OK(200, &answer)
	cl.token = answer.Token
	return cl
}

// Token returns the user's token, for requests other than JSON.
func (c *Client) Token() string { return c.token }

// On returns the same client for another test, such as a subtest.
func (c *Client) On(t testing.TB) *Client {
	other := *c
	other.t = t
	return &other
}

// Anonymous returns a client without a token.
func Anonymous(t testing.TB, c Cluster) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	cl := &Client{t: t, api: c.API(), http: &http.Client{Transport: transport, Timeout: await.Patience}}
	cl.contract = sync.OnceValues(cl.document)
	return cl
}

// document fetches the cluster's OpenAPI document.
func (c *Client) document() (*openapitest.Contract, error) {
	r, err := c.Try(c.t.Context(), "GET", "/openapi.json", nil)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(r.Body, &doc); err != nil {
		return nil, err
	}
	return openapitest.New(doc)
}

// hold checks an accepted request and its reply against the OpenAPI document.
func (c *Client) hold(method, target string, body any, r *Reply) {
	c.t.Helper()
	contract, err := c.contract()
	if err != nil {
		c.t.Fatalf("the description of the API: %v", err)
	}
	path, query, _ := strings.Cut(target, "?")
	op := contract.Find(method, path)
	if op == nil {
		if r.Status < http.StatusBadRequest {
			c.t.Errorf("%s: nothing describes it", r.what)
		}
		return
	}
	if fault := contract.Answered(op, openapitest.Answer{Status: r.Status, Header: r.Header, Body: r.Body}); fault != "" {
		c.t.Errorf("%s: %d is not as it is described: %s\n%s", r.what, r.Status, fault, clip(r.Body))
	}
	if values, err := url.ParseQuery(query); err == nil && r.Status < http.StatusMultipleChoices {
		if fault := contract.Asked(op, method, values, body); fault != "" {
			c.t.Errorf("%s was taken and is not as it is described: %s", r.what, fault)
		}
	}
}

// Reply is an HTTP response.
type Reply struct {
	t      testing.TB
	what   string
	Status int
	Body   []byte
	Header http.Header
}

// Do sends a request. A body may be nil, a []byte or string that is sent as it is, or a
// value that is encoded as JSON. Do checks the reply against the OpenAPI document.
func (c *Client) Do(method, path string, body any) *Reply {
	c.t.Helper()
	r, err := c.Try(c.t.Context(), method, path, body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	c.hold(method, path, body, r)
	return r
}

// Try is like Do, but returns a network error instead of failing the test, and does not
// check the reply. It may be called from other goroutines.
func (c *Client) Try(ctx context.Context, method, path string, body any) (*Reply, error) {
	var payload io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		payload = bytes.NewReader(b)
	case string:
		payload = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.api+path, payload)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &Reply{t: c.t, what: method + " " + path, Status: resp.StatusCode, Body: b, Header: resp.Header}, nil
}

// OK checks the status and decodes the body into a value, if given.
func (r *Reply) OK(status int, into ...any) *Reply {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("%s: status %d, want %d: %s", r.what, r.Status, status, clip(r.Body))
	}
	for _, v := range into {
		if err := json.Unmarshal(r.Body, v); err != nil {
			r.t.Fatalf("%s: %v in %s", r.what, err, clip(r.Body))
		}
	}
	return r
}

func clip(b []byte) string {
	if len(b) > 600 {
		return string(b[:600]) + "…"
	}
	return string(b)
}

// Instance are the fields of an instance that the tests read.
type Instance struct {
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Group      string `json:"group"`
	Node       string `json:"node"`
	State      string `json:"state"`
	Port       int    `json:"port"`
	PID        int    `json:"pid"`
	Reason     string `json:"reason"`
	Message    string `json:"message"`
	ExitCode   *int   `json:"exitCode"`
	Generation int64  `json:"generation"`
}

// Instances lists a group's instances, including ended ones.
func (c *Client) Instances(group string) []Instance {
	c.t.Helper()
	var page struct{ Data []Instance }
	c.Do("GET", "/api/v1/services?all=true&pageSize=500&group="+group, nil).OK(200, &page)
	return page.Data
}

// Running lists a group's instances in state RUNNING.
func (c *Client) Running(group string) []Instance {
	c.t.Helper()
	var out []Instance
	for _, i := range c.Instances(group) {
		if i.State == "RUNNING" {
			out = append(out, i)
		}
	}
	return out
}

// Instance reads an instance by name or ID.
func (c *Client) Instance(ref string) Instance {
	c.t.Helper()
	var i Instance
	c.Do("GET", "/api/v1/services/"+ref, nil).OK(200, &i)
	return i
}

// AwaitRunning waits until exactly n instances of a group run, and returns them.
func (c *Client) AwaitRunning(group string, n int) []Instance {
	c.t.Helper()
	var running []Instance
	await.That(c.t, fmt.Sprintf("%d running instances of %s", n, group), func() string {
		running = c.Running(group)
		if len(running) == n {
			return ""
		}
		return fmt.Sprintf("%d: %+v", len(running), c.Instances(group))
	})
	return running
}

// AwaitState waits until an instance is in a state, and returns it.
func (c *Client) AwaitState(ref, state string) Instance {
	c.t.Helper()
	var i Instance
	await.That(c.t, ref+" in state "+state, func() string {
		if i = c.Instance(ref); i.State == state {
			return ""
		}
		return fmt.Sprintf("%+v", i)
	})
	return i
}
