package logs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/peer"
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

// Path is where gateways ask each other for their records.
const Path = "/internal/v1/logs"

// SystemPage are the last records of the gateways.
type SystemPage struct {
	Page
	// Replicas are the gateways whose records these are, Missing those that did not answer.
	Replicas []string `json:"replicas"`
	Missing  []string `json:"missing"`
	// MissingReasons says of each that is missing why, for people.
	MissingReasons map[string]string `json:"missingReasons"`
}

// listSystem is merged over all gateways; with ?replica= it is of one, which must be the one
// that is asked.
func (l *Logs) listSystem(c *gin.Context) {
	q, ok := QueryOf(c, "limit")
	if !ok {
		return
	}
	switch replica := c.Query("replica"); replica {
	case "":
		c.JSON(http.StatusOK, l.System(c.Request.Context(), q))
	case l.cfg.Replica:
		c.JSON(http.StatusOK, l.own(q))
	default:
		server.Fail(c, errs.New(errs.NotFound, "this is the gateway %s: leave replica out for the records of all", l.cfg.Replica))
	}
}

// own are this gateway's records.
func (l *Logs) own(q Query) SystemPage {
	return SystemPage{Page: page(l.cfg.Records, q), Replicas: []string{l.cfg.Replica}, Missing: []string{}, MissingReasons: map[string]string{}}
}

// System are the last records of all gateways, for whom this one lets see them.
func (l *Logs) System(ctx context.Context, q Query) SystemPage {
	out := l.own(q)
	others := slices.DeleteFunc(l.cfg.View.Snapshot().ServiceSessions(l.cfg.Service), func(s *fleet.Session) bool { return s.Replica == l.cfg.Replica })
	answers, failed := make([]Page, len(others)), make([]error, len(others))
	var asking sync.WaitGroup
	for n, other := range others {
		asking.Go(func() { answers[n], failed[n] = l.ask(ctx, other, q) })
	}
	asking.Wait()
	for n, other := range others {
		if failed[n] != nil {
			out.Missing = append(out.Missing, other.Replica)
			out.MissingReasons[other.Replica] = whyMissing(failed[n])
			l.cfg.Log.Debug("a gateway does not tell its records", "replica", other.Replica, "url", other.URL, "error", failed[n])
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

// ask has another gateway tell its own records.
func (l *Logs) ask(ctx context.Context, other *fleet.Session, q Query) (out Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	query := url.Values{"replica": {other.Replica}, "level": {q.Level}, "logger": {q.Logger}, "limit": {strconv.Itoa(q.Limit)}}
	err = wire.Call(ctx, l.cfg.Client, wire.Request{
		Method: http.MethodGet, URL: strings.TrimSuffix(other.URL, "/") + Path + "?" + query.Encode(), Token: l.cfg.Secret,
	}, &out)
	return out, errs.Wrap("logs.ask", err)
}

// whyMissing says for people why a gateway did not tell its records.
func whyMissing(err error) string {
	switch errs.KindOf(err) {
	case errs.Conflict: // another has its address
		return errs.MessageOf(err)
	case errs.Unavailable, errs.Canceled:
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("it did not answer within %v: look at its host", peerPatience)
		}
		return "it cannot be reached at its api-url: look whether it runs, and whether gateways reach each other"
	default:
		return "what is at its api-url does not know this gateway: all need the same version and the same cluster secret"
	}
}

// Doors are where other gateways ask for this one's records.
func (l *Logs) Doors() []peer.Door {
	return []peer.Door{{Method: http.MethodGet, Path: Path, Open: l.tell}}
}

// tell answers another gateway. Conflict when it meant a third.
func (l *Logs) tell(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	filter, err := telemetry.ParseRecordFilter(v.Get("level"), v.Get("logger"))
	limit, malformed := strconv.Atoi(v.Get("limit"))
	switch meant := v.Get("replica"); {
	case meant != l.cfg.Replica:
		err = errs.New(errs.Conflict, "its api-url leads to %s: each gateway needs one that leads to itself", l.cfg.Replica)
	case err == nil && malformed != nil:
		err = errs.New(errs.Malformed, "limit must be a number")
	}
	if err != nil {
		wire.Encode(w, wire.Internal, "", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page(l.cfg.Records, Query{filter, min(limit, maxRecords)})) // who asked may have gone
}

// streamSystem streams this gateway's records.
func (l *Logs) streamSystem(c *gin.Context) {
	l.stream(c, system, gin.H{"message": "connected", "replica": l.cfg.Replica}, func(_ context.Context, at place) (tail, error) {
		return ring{l.cfg.Records.Follow(at.RecordFilter, at.after, at.Limit)}, nil
	})
}

// ring is this process' log.
type ring struct{ *telemetry.Follower }

// Next waits for more.
func (r ring) Next(ctx context.Context) (p piece, err error) {
	p.records, p.gap, err = r.Follower.Next(ctx, keepAlive)
	return p, err
}

// Close has nothing to give back.
func (ring) Close() error { return nil }
