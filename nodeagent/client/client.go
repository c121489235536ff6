// Package client calls a node's agent: live figures, log, console and heartbeat of an
// instance, the node's template cache, and the agent's own log. Errors have the Kind they had
// in the agent; Unavailable if the agent does not answer. It does not retry and has no circuit
// breaker: that is up to the caller.
package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/wire"
)

// Instance is the current state of an instance.
type Instance struct {
	ID         fleet.InstanceID `json:"id"`
	Name       string           `json:"name"`
	Group      fleet.GroupName  `json:"group"`
	Generation int64            `json:"generation"`
	State      fleet.State      `json:"state"`
	Reason     fleet.Reason     `json:"reason"`
	Message    string           `json:"message,omitempty"`
	// PID is the server's process id, 0 without one. Port is its main port, 0 without one.
	PID  int `json:"pid,omitempty"`
	Port int `json:"port,omitempty"`
	// ChangedAt is when the instance entered its state.
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Orphan is true when the store has no record of the instance.
	Orphan    bool      `json:"orphan,omitempty"`
	Restarts  int       `json:"restarts,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	OnlineAt  time.Time `json:"onlineAt,omitzero"`
	// UptimeMillis is the time since the process was started; 0 without one.
	UptimeMillis int64 `json:"uptimeMillis,omitempty"`
	Players      int   `json:"players"`
	MaxPlayers   int   `json:"maxPlayers"`
	// PlayersKnown is true if the instance reported its players, or answered a probe for them.
	PlayersKnown bool `json:"playersKnown,omitempty"`
	// TPS is the last reported ticks per second; 0 if never reported.
	TPS float64 `json:"tps,omitempty"`
	// LastHeartbeat is the time of the last heartbeat; zero if there was none.
	LastHeartbeat time.Time `json:"lastHeartbeat,omitzero"`
	// SaidState is the state in it; empty if never reported.
	SaidState string `json:"saidState,omitempty"`
	// Attach is the shell command that shows its terminal on its node; empty without a terminal.
	Attach string `json:"attach,omitempty"`
	// Usage is its memory, CPU and disk usage.
	Usage reports.Usage `json:"usage,omitzero"`
}

// Line is one line of output with the offset of its first byte in the log.
type Line struct {
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	// At is when it was written, to a second; zero if unknown.
	At time.Time `json:"at,omitzero"`
}

// Log is a page of an instance's output.
type Log struct {
	Lines []Line `json:"lines"`
	// More is true if there may be older matching lines, before the offset Before.
	More   bool  `json:"more,omitempty"`
	Before int64 `json:"before,omitempty"`
	// Total is the number of lines in the log, independent of the query; 0 unless
	// Query.Count requested it.
	Total int64 `json:"total,omitempty"`
}

// Query selects a page of output: the last Lines before an offset that were written within a
// time range and match a pattern.
type Query struct {
	Lines int
	// Before is the offset at which the page ends; 0 means the end.
	Before int64
	// Since and Until bound the time; zero means no bound.
	Since, Until time.Time
	// Match is a regular expression (RE2); empty matches all.
	Match string
	// Count requests the number of lines in the log.
	Count bool
}

func (q Query) values() url.Values {
	v := url.Values{"lines": {strconv.Itoa(q.Lines)}}
	if q.Before > 0 {
		v.Set("before", strconv.FormatInt(q.Before, 10))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Match != "" {
		v.Set("grep", q.Match)
	}
	if q.Count {
		v.Set("count", "true")
	}
	return v
}

// Chunk is a part of an instance's output in bytes, which may begin and end within a line.
type Chunk struct {
	Data []byte `json:"data"`
	// Next is the offset after it.
	Next int64 `json:"next"`
}

// ConsoleLine is a line for an instance's console.
type ConsoleLine struct {
	Line string `json:"line"`
}

// RemoteCommand is a command for a server's remote console.
type RemoteCommand struct {
	Command string `json:"command"`
}

// RemoteAnswer is the server's answer to it.
type RemoteAnswer struct {
	Answer string `json:"answer"`
	// Incomplete is true if the server received the command but its answer may be incomplete.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Heartbeat is what an instance reports about itself. Nil values are not reported.
type Heartbeat struct {
	// State is the state it reports, ONLINE if it is ready; empty for none.
	State      string   `json:"state,omitempty"`
	Players    *int     `json:"players,omitempty"`
	MaxPlayers *int     `json:"maxPlayers,omitempty"`
	TPS        *float64 `json:"tps,omitempty"`
	// At is when it was sent; zero means now.
	At time.Time `json:"at,omitzero"`
	// Sequence numbers the heartbeats of a run in increasing order; 0 means none.
	Sequence int64 `json:"sequence,omitempty"`
	// Joined is a player who joined, with Player, Name, Proxy, On, Group and Edition. Left is
	// one who left.
	Joined *players.Presence `json:"joined,omitempty"`
	Left   players.PlayerID  `json:"left,omitempty"`
	// Measured are the instance's own metrics. The agent sets their time.
	Measured *Measured `json:"measured,omitempty"`
}

// Measured are an instance's own metrics.
type Measured struct {
	// At is when the agent received them.
	At time.Time `json:"at,omitzero"`
	// Proxy is true for those of a proxy.
	Proxy bool `json:"proxy,omitempty"`
	// Figures is a JSON object of at most 64 KiB, which the agent does not interpret.
	Figures json.RawMessage `json:"figures"`
}

// Client calls one agent. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   string
	secret string
}

// New returns a client of the agent at baseURL without connecting to it. secret is the cluster secret.
func New(httpClient *http.Client, baseURL, secret string) *Client {
	return &Client{http: httpClient, base: strings.TrimSuffix(baseURL, "/"), secret: secret}
}

// Instance reads an instance. NotFound if the node does not have it.
func (c *Client) Instance(ctx context.Context, id fleet.InstanceID) (Instance, error) {
	var i Instance
	err := c.call(ctx, http.MethodGet, id, "", nil, &i)
	return i, errs.Wrap("nodeagent.Instance", err)
}

// Tail reads the last lines of an instance's output, oldest first.
func (c *Client) Tail(ctx context.Context, id fleet.InstanceID, lines int) ([]Line, error) {
	l, err := c.Find(ctx, id, Query{Lines: lines})
	return l.Lines, err
}

// Find reads a page of an instance's output, oldest line first. Invalid if Match is not a
// regular expression.
func (c *Client) Find(ctx context.Context, id fleet.InstanceID, q Query) (Log, error) {
	var l Log
	err := c.call(ctx, http.MethodGet, id, "/log?"+q.values().Encode(), nil, &l)
	return l, errs.Wrap("nodeagent.Find", err)
}

// Read reads output from an offset on, at most maxBytes (0 means 64 KiB).
func (c *Client) Read(ctx context.Context, id fleet.InstanceID, offset int64, maxBytes int) (Chunk, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if maxBytes > 0 {
		q.Set("maxBytes", strconv.Itoa(maxBytes))
	}
	var chunk Chunk
	err := c.call(ctx, http.MethodGet, id, "/log?"+q.Encode(), nil, &chunk)
	return chunk, errs.Wrap("nodeagent.Read", err)
}

// WriteLine types a line into an instance's console, byte for byte. Conflict if the instance
// does not run or does not read, Invalid for control characters.
func (c *Client) WriteLine(ctx context.Context, id fleet.InstanceID, line string) error {
	return errs.Wrap("nodeagent.WriteLine", c.call(ctx, http.MethodPost, id, "/console", ConsoleLine{line}, nil))
}

// RCON sends a command over a server's remote console and returns its answer. Conflict if the
// instance does not run, has no remote console, or does not answer.
func (c *Client) RCON(ctx context.Context, id fleet.InstanceID, command string) (RemoteAnswer, error) {
	var a RemoteAnswer
	err := c.call(ctx, http.MethodPost, id, "/rcon", RemoteCommand{command}, &a)
	return a, errs.Wrap("nodeagent.RCON", err)
}

// Heartbeat forwards a heartbeat of an instance. Conflict if the instance does not run,
// AlreadyExists if the sequence number is not higher than the last one, Exhausted if there are
// too many players.
func (c *Client) Heartbeat(ctx context.Context, id fleet.InstanceID, h Heartbeat) error {
	return errs.Wrap("nodeagent.Heartbeat", c.call(ctx, http.MethodPut, id, "/heartbeat", h, nil))
}

// Measured reads the metrics that an instance last reported in its current run. NotFound if it
// reported none.
func (c *Client) Measured(ctx context.Context, id fleet.InstanceID) (Measured, error) {
	var m Measured
	err := c.call(ctx, http.MethodGet, id, "/measured", nil, &m)
	return m, errs.Wrap("nodeagent.Measured", err)
}

func (c *Client) call(ctx context.Context, method string, id fleet.InstanceID, rest string, body, into any) error {
	return c.do(ctx, method, "/v1/instances/"+url.PathEscape(string(id))+rest, body, into)
}

func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	return wire.Call(ctx, c.http, wire.Request{Method: method, URL: c.base + path, Token: c.secret, Body: body}, into)
}
