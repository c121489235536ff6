// Package client asks a scheduler questions: why an instance is where it is or
// waits, and what would happen if. Answers change nothing, and nothing may depend on
// them for correctness.
//
// Errors keep the Kind they had in the scheduler; one that does not answer is
// Unavailable, one that answers enough others already Exhausted. The client retries
// nothing and holds no breaker: callers do.
package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Client asks one scheduler. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   string
	secret string
}

// New makes a client of the scheduler at baseURL; it opens no connection. secret is the cluster secret.
func New(httpClient *http.Client, baseURL, secret string) *Client {
	return &Client{http: httpClient, base: strings.TrimSuffix(baseURL, "/"), secret: secret}
}

// Explain asks what placement says of an instance now, at a revision of the store
// that is at least the given one if the scheduler reaches it soon; 0 takes any.
// NotFound when there is no such instance, Conflict when it has ended or is not to run.
func (c *Client) Explain(ctx context.Context, id fleet.InstanceID, atLeast int64) (Explanation, error) {
	var out Explanation
	err := wire.Call(ctx, c.http, wire.Request{
		Method: http.MethodGet, URL: c.url("/v1/instances/"+url.PathEscape(string(id))+"/explain", atLeast), Token: c.secret,
	}, &out)
	return out, errs.Wrap("scheduler.Explain", err)
}

// Simulate asks what would happen, at a revision as in Explain. Invalid when the
// question cannot be asked so, NotFound when its group or node is not there, Conflict
// when the answer takes too long.
func (c *Client) Simulate(ctx context.Context, q Question, atLeast int64) (Simulation, error) {
	var out Simulation
	err := wire.Call(ctx, c.http, wire.Request{Method: http.MethodPost, URL: c.url("/v1/simulate", atLeast), Token: c.secret, Body: q}, &out)
	return out, errs.Wrap("scheduler.Simulate", err)
}

func (c *Client) url(path string, atLeast int64) string {
	return c.base + path + "?atLeast=" + strconv.FormatInt(atLeast, 10)
}
