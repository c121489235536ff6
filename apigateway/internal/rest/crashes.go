package rest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// crashSummary is a crash in a list. Clients of the reference read it by the names they
// know, some by two.
type crashSummary struct {
	ID         string           `json:"id"`
	InstanceID string           `json:"instanceId"` // the name; uid is the id for ever
	UID        fleet.InstanceID `json:"uid"`
	Group      fleet.GroupName  `json:"group"`
	Node       fleet.NodeID     `json:"node"`
	NodeID     fleet.NodeID     `json:"nodeId"`
	// ExitCode is null when nobody saw it.
	ExitCode       *int                `json:"exitCode"`
	Signal         string              `json:"signal"`
	OOM            bool                `json:"oom"`
	Classification fleet.CrashCategory `json:"classification"`
	CauseSummary   string              `json:"causeSummary"`
	Signature      string              `json:"signature"`
	UptimeMs       int64               `json:"uptimeMs"`
	CrashedAt      time.Time           `json:"crashedAt"`
	Timestamp      time.Time           `json:"timestamp"`
	Revision       int64               `json:"revision"` // of the group's spec
	Generation     int64               `json:"generation"`
	Reason         fleet.Reason        `json:"reason"`
	Message        string              `json:"message"`
}

// crashDetail adds what the run printed last.
type crashDetail struct {
	crashSummary
	LogTail []string `json:"logTail"`
	// Truncated is true when more was printed than is kept.
	Truncated bool `json:"logTailTruncated"`
}

// crashRoutes are what ended badly.
func (a *API) crashRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/crashes", server.Needs(auth.CrashesView), a.listCrashes),
		server.Get("/api/v1/crashes/trends", server.Needs(auth.CrashesView), a.crashTrends),
		server.Get("/api/v1/crashes/:id", server.Needs(auth.CrashesView), a.getCrash),
	}
}

func crashOf(c *fleet.Crash) crashSummary {
	out := crashSummary{
		ID: c.ID, InstanceID: c.Name, UID: c.Instance, Group: c.Group, Node: c.Node, NodeID: c.Node,
		Classification: c.Category, CauseSummary: c.Cause, Signature: c.Fingerprint, UptimeMs: c.Ran().Milliseconds(),
		CrashedAt: c.At, Timestamp: c.At, Revision: c.GroupRevision, Generation: c.Generation, Reason: c.Reason,
		Message: cmp.Or(c.Message, c.Reason.Text()),
	}
	if c.Exit != nil {
		out.Signal, out.OOM = c.Exit.Signal, c.Exit.OOM
		if c.Exit.Known {
			out.ExitCode = &c.Exit.Code
		}
	}
	return out
}

// crashFilter chooses crashes; what is empty chooses all.
type crashFilter struct {
	group, instance, node, category, signature string
	since, until                               time.Time
}

func (f crashFilter) takes(c *fleet.Crash) bool {
	is := func(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }
	return is(f.group, string(c.Group)) && is(f.instance, c.Name, string(c.Instance)) && is(f.node, string(c.Node)) &&
		is(strings.ToUpper(f.category), string(c.Category)) && is(f.signature, c.Fingerprint) &&
		(f.since.IsZero() || !c.At.Before(f.since)) && (f.until.IsZero() || !c.At.After(f.until))
}

// crashesOf are the chosen crashes, newest first.
func crashesOf(s *view.Snapshot, f crashFilter) []*fleet.Crash {
	var all []*fleet.Crash
	for _, c := range s.Crashes.All() {
		if f.takes(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *fleet.Crash) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID)) })
	return all
}

// crashFilterOf reads ?group, instance, node, category (or classification), signature
// (or fingerprint), since (or from) and until. ok is false when the request was answered.
func (a *API) crashFilterOf(c *gin.Context) (f crashFilter, ok bool) {
	f = crashFilter{
		group: c.Query("group"), instance: c.Query("instance"), node: c.Query("node"),
		category: cmp.Or(c.Query("category"), c.Query("classification")), signature: cmp.Or(c.Query("signature"), c.Query("fingerprint")),
	}
	if f.category != "" && !slices.Contains(fleet.CrashCategories[:], fleet.CrashCategory(strings.ToUpper(f.category))) {
		server.Fail(c, badQuery("category", "must be one of %v", fleet.CrashCategories))
		return f, false
	}
	var err error
	if f.since, err = a.moment("since", cmp.Or(c.Query("since"), c.Query("from"))); err == nil {
		f.until, err = a.moment("until", cmp.Or(c.Query("until"), c.Query("to")))
	}
	if err != nil {
		server.Fail(c, err)
	}
	return f, err == nil
}

func badQuery(name, format string, args ...any) error {
	e := errs.Field(name, format, args...)
	e.Kind = errs.Malformed
	return e
}

// fewestMillis tells a time in milliseconds from one in seconds: as seconds it would lie
// past the year 5000.
const fewestMillis = 1e11

// moment reads a time: RFC 3339, seconds or milliseconds since 1970, or "24h" for how
// long ago. Empty is the zero time.
func (a *API) moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		if n >= fewestMillis {
			return time.UnixMilli(n), nil
		}
		return time.Unix(n, 0), nil
	}
	if d, ok := span(text); ok {
		return a.cfg.Now().Add(-d), nil
	}
	return time.Time{}, badQuery(name, "must be a time as 2026-01-31T12:00:00Z, in seconds since 1970, or how long ago as 24h")
}

// span reads a length of time: "90m", "24h", "7d". ok is false for anything else, and
// for what is not more than nothing.
func span(text string) (d time.Duration, ok bool) {
	const maxDays = 100_000 // what fits
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0 && n <= maxDays
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// listCrashes is newest first; ?limit is ?pageSize under another name.
func (a *API) listCrashes(c *gin.Context) {
	f, ok := a.crashFilterOf(c)
	if !ok {
		return
	}
	size, ok := server.Number(c, "limit", pageMany)
	if !ok {
		return
	}
	server.SendPage(c, crashesOf(a.snapshot(), f), min(max(size, 1), pageMany), crashOf)
}

// getCrash reads the tail from the store: the node may be gone.
func (a *API) getCrash(c *gin.Context) {
	crash, ok := a.snapshot().Crashes.Get(c.Param("id"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such crash: they are kept for 30 days, the newest 500 of them"))
		return
	}
	out, err := a.crashDetailOf(c.Request.Context(), crash)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}

// crashDetailOf is a crash with what was printed last, as far as that is kept.
func (a *API) crashDetailOf(ctx context.Context, crash *fleet.Crash) (crashDetail, error) {
	out := crashDetail{crashSummary: crashOf(crash), LogTail: []string{}}
	err := operate.InTime(ctx, func(ctx context.Context) error {
		tail, err := store.Get(ctx, a.cfg.Store, store.CrashTailKey(crash.ID))
		if err != nil {
			return err
		}
		out.Truncated = tail.Truncated
		out.LogTail, err = tail.Lines()
		return err
	})
	if errs.Is(err, errs.NotFound) { // without its tail a crash is worth showing too
		err = nil
	}
	return out, err
}

// resetCrashLoop ends a group's pause after crashes.
func (a *API) resetCrashLoop(c *gin.Context) {
	changed, err := a.cfg.Operations.ResetCrashLoop(c.Request.Context(), server.Actor(c), fleet.GroupName(c.Param("name")))
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, g.ModRev)
	c.JSON(http.StatusOK, gin.H{"status": "reset", "changed": changed, "group": a.groupFor(c, s, g)})
}
