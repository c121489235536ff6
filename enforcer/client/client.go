// Package client asks an enforcer what other scaling rules would have decided. The answers are for
// people: nothing may depend on them for correctness.
//
// Errors keep the Kind they had in the enforcer. The client returns Unavailable when the enforcer does
// not respond, and Exhausted when it is busy. It does not retry and has no circuit breaker; both are up
// to the caller.
package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Client asks one enforcer. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   string
	secret string
}

// New creates a client for the enforcer at baseURL without connecting. secret is the cluster secret.
func New(httpClient *http.Client, baseURL, secret string) *Client {
	return &Client{http: httpClient, base: strings.TrimSuffix(baseURL, "/"), secret: secret}
}

// ReplayQuestion asks what other rules would have decided in the recorded situations of a group.
type ReplayQuestion struct {
	// Scaling must be valid.
	Scaling    fleet.Scaling `json:"scaling"`
	MaxPlayers int           `json:"maxPlayers"`
}

// Replay is the answer to a ReplayQuestion.
type Replay struct {
	// Since and Until are the times of the first and the last recorded situation, and Records is how many
	// there are.
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Records int       `json:"records"`
	// Then is what was decided, and Would what would have been.
	Then  ReplaySide `json:"then"`
	Would ReplaySide `json:"would"`
	// Answers are what the policies of the other rules ask for in the last situation.
	Answers []PolicyAnswer `json:"answers"`
	// Notes are sentences about what the replay could not know.
	Notes []string `json:"notes"`
}

// PolicyAnswer is what a policy asks for.
type PolicyAnswer struct {
	Policy string `json:"policy"`
	// Instances is nil if it asks for no number.
	Instances *int `json:"instances"`
	// Message says why. It may be empty if it asks for no number.
	Message string `json:"message"`
}

// ReplaySide is what one set of rules decided.
type ReplaySide struct {
	// Up and Down count the decisions by direction.
	Up   int `json:"up"`
	Down int `json:"down"`
	// Most, Least and Average are about the number of instances.
	Most    int     `json:"most"`
	Least   int     `json:"least"`
	Average float64 `json:"average"`
	// Decisions are the latest.
	Decisions []ReplayDecision `json:"decisions"`
}

// ReplayDecision is a change of the number of instances.
type ReplayDecision struct {
	At      time.Time    `json:"at"`
	From    int          `json:"from"`
	To      int          `json:"to"`
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
	// Policy is the one that decided; "" for the load.
	Policy string `json:"policy"`
}

// Replay asks a question about a group. It fails with NotFound when nothing is recorded of the group, and
// with Unavailable when the enforcer does not decide about it.
func (c *Client) Replay(ctx context.Context, group fleet.GroupName, q ReplayQuestion) (out Replay, err error) {
	err = wire.Call(ctx, c.http, wire.Request{
		Method: http.MethodPost, URL: c.base + "/v1/groups/" + url.PathEscape(string(group)) + "/replay", Token: c.secret, Body: q,
	}, &out)
	return out, errs.Wrap("enforcer.Replay", err)
}
