// Package client asks a scheduler why an instance runs where it does or waits, and what
// would happen in a given case. The answers are for people: nothing may depend on them for
// correctness.
//
// Errors keep the Kind they had in the scheduler. The client returns Unavailable when the
// scheduler does not respond, and Exhausted when it is busy. The client does not retry and
// has no circuit breaker; both are up to the caller.
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

// New creates a client for the scheduler at baseURL without connecting. secret is the
// cluster secret.
func New(httpClient *http.Client, baseURL, secret string) *Client {
	return &Client{http: httpClient, base: strings.TrimSuffix(baseURL, "/"), secret: secret}
}

// Explain asks how placement would judge an instance now. The scheduler waits briefly for
// revision atLeast; 0 takes any. Explain fails with NotFound when the instance does not
// exist, and with Conflict when it has ended or should not run.
func (c *Client) Explain(ctx context.Context, id fleet.InstanceID, atLeast int64) (Explanation, error) {
	var out Explanation
	err := wire.Call(ctx, c.http, wire.Request{
		Method: http.MethodGet, URL: c.url("/v1/instances/"+url.PathEscape(string(id))+"/explain", atLeast), Token: c.secret,
	}, &out)
	return out, errs.Wrap("scheduler.Explain", err)
}

// Simulate asks what would happen. For atLeast, see Explain. It fails with Invalid for an
// invalid question, with NotFound when the group or node does not exist, and with Conflict
// when the answer takes too long.
func (c *Client) Simulate(ctx context.Context, q Question, atLeast int64) (Simulation, error) {
	var out Simulation
	err := wire.Call(ctx, c.http, wire.Request{Method: http.MethodPost, URL: c.url("/v1/simulate", atLeast), Token: c.secret, Body: q}, &out)
	return out, errs.Wrap("scheduler.Simulate", err)
}

func (c *Client) url(path string, atLeast int64) string {
	return c.base + path + "?atLeast=" + strconv.FormatInt(atLeast, 10)
}
