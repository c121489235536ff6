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

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// system is the stream name that a ticket for the gateways' stream is bound to.
	system = "logs:system"
	// peerPatience limits how long another gateway may take to answer.
	peerPatience = 3 * time.Second
)

// Path is the endpoint at which gateways request each other's records.
const Path = "/internal/v1/logs"

// SystemPage has the last records of the gateways.
type SystemPage struct {
	Page
	// Replicas are the gateways whose records are included, Missing those that did not answer.
	Replicas []string `json:"replicas"`
	Missing  []string `json:"missing"`
	// MissingReasons says for each missing gateway why, as a sentence.
	MissingReasons map[string]string `json:"missingReasons"`
}

// listSystem merges the records of all gateways. With ?replica= it returns the records of that
// gateway, which must be this one.
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
		server.Fail(c, errs.New(errs.NotFound, "this is gateway %s: omit replica to get the records of all gateways", l.cfg.Replica))
	}
}

// own returns this gateway's records.
func (l *Logs) own(q Query) SystemPage {
	return SystemPage{Page: page(l.cfg.Records, q), Replicas: []string{l.cfg.Replica}, Missing: []string{}, MissingReasons: map[string]string{}}
}

// System returns the last records of all gateways. The caller checks the permission.
func (l *Logs) System(ctx context.Context, q Query) SystemPage {
	out := l.own(q)
	others := slices.DeleteFunc(l.cfg.View.Snapshot().ServiceSessions(l.cfg.Service), func(s *cluster.Session) bool { return s.Replica == l.cfg.Replica })
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
			l.cfg.Log.Debug("cannot get the log records of a gateway", "replica", other.Replica, "url", other.URL, "error", failed[n])
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

// ask requests the records of another gateway.
func (l *Logs) ask(ctx context.Context, other *cluster.Session, q Query) (out Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	query := url.Values{"replica": {other.Replica}, "level": {q.Level}, "logger": {q.Logger}, "limit": {strconv.Itoa(q.Limit)}}
	err = l.cfg.Client.Call(ctx, http.MethodGet, l.cfg.Client.URL(other), Path+"?"+query.Encode(), nil, &out)
	return out, errs.Wrap("logs.ask", err)
}

// whyMissing explains why a gateway did not return its records.
func whyMissing(err error) string {
	switch errs.KindOf(err) {
	case errs.Conflict: // another gateway answered at its address
		return errs.MessageOf(err)
	case errs.Unavailable, errs.Canceled:
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("it did not answer within %v: check its host", peerPatience)
		}
		return "it cannot be reached at its api-url: check that it runs and that gateways can reach each other"
	default:
		return "the service at its api-url does not recognize this gateway: all gateways need the same version and the same cluster secret"
	}
}

// PeerEndpoints returns the endpoint at which other gateways request this one's records.
func (l *Logs) PeerEndpoints() []peer.Endpoint {
	return []peer.Endpoint{{Method: http.MethodGet, Path: Path, Handle: l.serveOwn}}
}

// serveOwn answers another gateway. It returns Conflict if the request was meant for another one.
func (l *Logs) serveOwn(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	filter, err := telemetry.ParseRecordFilter(v.Get("level"), v.Get("logger"))
	limit, malformed := strconv.Atoi(v.Get("limit"))
	switch meant := v.Get("replica"); {
	case meant != l.cfg.Replica:
		err = errs.New(errs.Conflict, "its api-url leads to gateway %s: each gateway needs an api-url of its own", l.cfg.Replica)
	case err == nil && malformed != nil:
		err = errs.New(errs.Malformed, "limit must be a number")
	}
	if err != nil {
		wire.Encode(w, wire.Internal, "", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page(l.cfg.Records, Query{filter, min(limit, maxRecords)})) // the client may have disconnected
}

// streamSystem streams this gateway's records.
func (l *Logs) streamSystem(c *gin.Context) {
	l.stream(c, system, gin.H{"message": "connected", "replica": l.cfg.Replica}, func(_ context.Context, at position) (tail, error) {
		follower := l.cfg.Records.Follow(at.RecordFilter, at.after, at.Limit)
		next := func(ctx context.Context) (p chunk, err error) {
			p.records, p.gap, err = follower.Next(ctx, keepAlive)
			return p, err
		}
		return tail{next, func() error { return nil }}, nil
	})
}
