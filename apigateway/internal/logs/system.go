package logs

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// system is what a ticket for the gateways' stream is bound to.
	system = "logs:system"
	// peerPatience is how long another gateway may take to answer.
	peerPatience = 3 * time.Second
)

// SystemPage are the last records of the gateways.
type SystemPage struct {
	Page
	// Replicas are the gateways whose records these are, Missing those that did not answer.
	Replicas []string `json:"replicas"`
	Missing  []string `json:"missing"`
}

// listSystem is merged over all gateways; with ?replica= it is of one, which must be the one
// that is asked: that is how gateways ask each other.
func (l *Logs) listSystem(c *gin.Context) {
	q, ok := QueryOf(c, "limit")
	if !ok {
		return
	}
	switch replica := c.Query("replica"); replica {
	case "":
		c.JSON(http.StatusOK, l.System(c, q))
	case l.cfg.Replica:
		c.JSON(http.StatusOK, SystemPage{Page: page(l.cfg.Records, q), Replicas: []string{replica}, Missing: []string{}})
	default:
		server.Fail(c, errs.New(errs.NotFound, "this is the gateway %s: leave replica out for the records of all", l.cfg.Replica))
	}
}

// System are the last records of all gateways. The others are asked as who makes the request
// c, and answer what that one may see.
func (l *Logs) System(c *gin.Context, q Query) SystemPage {
	out := SystemPage{Page: page(l.cfg.Records, q), Replicas: []string{l.cfg.Replica}, Missing: []string{}}
	token, _ := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
	others := slices.DeleteFunc(l.cfg.View.Snapshot().ServiceSessions(l.cfg.Service), func(s *fleet.Session) bool { return s.Replica == l.cfg.Replica })
	answers := make([]*SystemPage, len(others))
	var asking sync.WaitGroup
	for n, other := range others {
		asking.Go(func() { answers[n] = l.ask(c.Request.Context(), other, q, token) })
	}
	asking.Wait()
	for n, other := range others {
		if answers[n] == nil {
			out.Missing = append(out.Missing, other.Replica)
			continue
		}
		out.Replicas = append(out.Replicas, other.Replica)
		out.Records = append(out.Records, answers[n].Records...)
		out.Size += answers[n].Size
		out.Capacity += answers[n].Capacity
	}
	slices.SortStableFunc(out.Records, func(a, b telemetry.Record) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Thread, b.Thread))
	})
	out.Records = out.Records[max(0, len(out.Records)-q.Limit):]
	return out
}

// ask has another gateway tell its own records; nil when it does not.
func (l *Logs) ask(ctx context.Context, other *fleet.Session, q Query, token string) *SystemPage {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	query := url.Values{"replica": {other.Replica}, "level": {q.Level}, "logger": {q.Logger}, "limit": {strconv.Itoa(q.Limit)}}
	var out SystemPage
	err := wire.Call(ctx, l.cfg.Client, wire.Request{
		Method: http.MethodGet, URL: strings.TrimSuffix(other.URL, "/") + "/api/v1/system/logs?" + query.Encode(), Token: token,
	}, &out)
	if err != nil {
		return nil
	}
	return &out
}

// streamSystem streams this gateway's records.
func (l *Logs) streamSystem(c *gin.Context) {
	l.stream(c, system, gin.H{"message": "connected", "replica": l.cfg.Replica}, func(_ context.Context, at place) (tail, error) {
		return own{l.cfg.Records.Follow(at.RecordFilter, at.after, at.Limit)}, nil
	})
}

// own is this process' log.
type own struct{ *telemetry.Follower }

// Next waits for more.
func (o own) Next(ctx context.Context) (p piece, err error) {
	p.records, p.gap, err = o.Follower.Next(ctx, keepAlive)
	return p, err
}

// Close has nothing to give back.
func (own) Close() error { return nil }
