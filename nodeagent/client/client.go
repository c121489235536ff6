// Package client calls a node's agent: live figures, log, console and heartbeat of
// an instance, the node's cache of templates, and what the agent itself logs. Errors keep the Kind they had in the agent; an agent that does not
// answer is Unavailable. It retries nothing and holds no breaker: callers do.
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
	"github.com/orreryhq/orrery/libs/wire"
)

// Instance is what an agent knows of an instance at this moment.
type Instance struct {
	ID         fleet.InstanceID `json:"id"`
	Name       string           `json:"name"`
	Group      fleet.GroupName  `json:"group"`
	Generation int64            `json:"generation"`
	State      fleet.State      `json:"state"`
	Reason     fleet.Reason     `json:"reason"`
	Message    string           `json:"message,omitempty"`
	// PID is the server's process id, 0 when none runs; Port its main port, 0 when it has none.
	PID  int `json:"pid,omitempty"`
	Port int `json:"port,omitempty"`
	// ChangedAt is since when the instance is in its state.
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Orphan is true when the store has no record of the instance.
	Orphan    bool      `json:"orphan,omitempty"`
	Restarts  int       `json:"restarts,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	OnlineAt  time.Time `json:"onlineAt,omitzero"`
	// UptimeMillis is the time since the process was started; 0 when none runs.
	UptimeMillis int64 `json:"uptimeMillis,omitempty"`
	Players      int   `json:"players"`
	MaxPlayers   int   `json:"maxPlayers"`
	// PlayersKnown is true when the instance said how many there are, or answered when it was asked.
	PlayersKnown bool `json:"playersKnown,omitempty"`
	// TPS is ticks per second as the instance last said; 0 when it never did.
	TPS float64 `json:"tps,omitempty"`
	// LastHeartbeat is when the instance last spoke from inside; zero when never.
	LastHeartbeat time.Time `json:"lastHeartbeat,omitzero"`
	// SaidState is the state it then gave itself; empty when it never did.
	SaidState string `json:"saidState,omitempty"`
	// Attach is the shell command that shows its terminal on its node; empty when it has none.
	Attach string `json:"attach,omitempty"`
	// Usage is how much memory, processor time and disk it uses.
	Usage fleet.Usage `json:"usage,omitzero"`
}

// Line is one line of output with the offset of its first byte in the log.
type Line struct {
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	// At is when it was written, to a second; zero when nobody was there to see.
	At time.Time `json:"at,omitzero"`
}

// Log is the end of an instance's output.
type Log struct {
	Lines []Line `json:"lines"`
	// More is true when older lines may belong to the answer: ask for those before Before.
	More   bool  `json:"more,omitempty"`
	Before int64 `json:"before,omitempty"`
	// Total is the number of lines in the log, whether they belong to the answer or not; 0
	// unless Query.Count asked for it.
	Total int64 `json:"total,omitempty"`
}

// Query asks for a page of output: the last Lines of those that lie before an offset,
// were written within a time and match.
type Query struct {
	Lines int
	// Before is the offset the page ends at; 0 means the end.
	Before int64
	// Since and Until bound the time; zero sets no bound.
	Since, Until time.Time
	// Match is a regular expression (RE2); empty matches all.
	Match string
	// Count has the answer tell how many lines the log has.
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

// Chunk is a piece of an instance's output.
type Chunk struct {
	Data []byte `json:"data"`
	// Next is the offset after the piece: what to ask for next.
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

// RemoteAnswer is what the server answers to it.
type RemoteAnswer struct {
	Answer string `json:"answer"`
	// Incomplete is true when the server has the command but did not say all of it.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Heartbeat is what an instance says of itself; nil where it does not.
type Heartbeat struct {
	// State is the state it gives itself, ONLINE when it serves; empty says nothing.
	State      string   `json:"state,omitempty"`
	Players    *int     `json:"players,omitempty"`
	MaxPlayers *int     `json:"maxPlayers,omitempty"`
	TPS        *float64 `json:"tps,omitempty"`
	// At is when it was said; zero means now.
	At time.Time `json:"at,omitzero"`
	// Sequence numbers what a run says, each higher than the one before; 0 is no number.
	Sequence int64 `json:"sequence,omitempty"`
	// Joined is a player who is there: Player, Name, Proxy, On, Group and Edition count. Left is
	// one who is not any more.
	Joined *fleet.Presence `json:"joined,omitempty"`
	Left   fleet.PlayerID  `json:"left,omitempty"`
	// Measured are the figures it has of itself; their time is the agent's to tell.
	Measured *Measured `json:"measured,omitempty"`
}

// Measured are figures that an instance has of itself.
type Measured struct {
	// At is when they came.
	At time.Time `json:"at,omitzero"`
	// Proxy is true for those of a proxy.
	Proxy bool `json:"proxy,omitempty"`
	// Figures are a JSON object of 64 KiB at most, which the agent does not look into.
	Figures json.RawMessage `json:"figures"`
}

// Client calls one agent. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   string
	secret string
}

// New makes a client of the agent at baseURL; it opens no connection. secret is the cluster secret.
func New(httpClient *http.Client, baseURL, secret string) *Client {
	return &Client{http: httpClient, base: strings.TrimSuffix(baseURL, "/"), secret: secret}
}

// Instance reads an instance's live figures. NotFound when the node does not have it.
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

// Find reads a page of an instance's output, oldest line first. Invalid when what is
// to match is no regular expression.
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

// WriteLine types a line into an instance's console, byte for byte. Conflict when it does
// not run, or does not read, Invalid for control characters.
func (c *Client) WriteLine(ctx context.Context, id fleet.InstanceID, line string) error {
	return errs.Wrap("nodeagent.WriteLine", c.call(ctx, http.MethodPost, id, "/console", ConsoleLine{line}, nil))
}

// RCON gives an instance's server a command over its remote console and returns what it
// answers. Conflict when it does not run, has no remote console, or does not answer there.
func (c *Client) RCON(ctx context.Context, id fleet.InstanceID, command string) (RemoteAnswer, error) {
	var a RemoteAnswer
	err := c.call(ctx, http.MethodPost, id, "/rcon", RemoteCommand{command}, &a)
	return a, errs.Wrap("nodeagent.RCON", err)
}

// Heartbeat passes on what an instance says of itself. Conflict when it does not run,
// AlreadyExists when its sequence is not higher than the one before, Exhausted when
// there are too many players.
func (c *Client) Heartbeat(ctx context.Context, id fleet.InstanceID, h Heartbeat) error {
	return errs.Wrap("nodeagent.Heartbeat", c.call(ctx, http.MethodPut, id, "/heartbeat", h, nil))
}

// Measured reads the figures that an instance last told of itself in its present run. NotFound when it
// told none.
func (c *Client) Measured(ctx context.Context, id fleet.InstanceID) (Measured, error) {
	var m Measured
	err := c.call(ctx, http.MethodGet, id, "/measured", nil, &m)
	return m, errs.Wrap("nodeagent.Measured", err)
}

func (c *Client) call(ctx context.Context, method string, id fleet.InstanceID, rest string, body, into any) error {
	return wire.Call(ctx, c.http, wire.Request{
		Method: method, URL: c.base + "/v1/instances/" + url.PathEscape(string(id)) + rest, Token: c.secret, Body: body,
	}, into)
}
