// Package crashes serves crash reports and counts crashes over time.
package crashes

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// API holds the handlers.
type API struct{ operations *ops.Operations }

// New returns the handlers.
func New(o *ops.Operations) *API { return &API{operations: o} }

// crashSummary is a crash in a list. Some fields repeat another under the name that PrexorCloud's
// clients know.
type crashSummary struct {
	ID         string           `json:"id"`
	InstanceID string           `json:"instanceId"` // the name; UID is the unique id
	UID        fleet.InstanceID `json:"uid"`
	Group      fleet.GroupName  `json:"group"`
	Node       fleet.NodeID     `json:"node"`
	NodeID     fleet.NodeID     `json:"nodeId"`
	// ExitCode is null if no agent saw it.
	ExitCode       *int                  `json:"exitCode"`
	Signal         string                `json:"signal"`
	OOM            bool                  `json:"oom"`
	Classification reports.CrashCategory `json:"classification"`
	CauseSummary   string                `json:"causeSummary"`
	Signature      string                `json:"signature"`
	UptimeMs       int64                 `json:"uptimeMs"`
	CrashedAt      time.Time             `json:"crashedAt"`
	Timestamp      time.Time             `json:"timestamp"`
	Revision       int64                 `json:"revision"` // of the group's spec
	Generation     int64                 `json:"generation"`
	Reason         fleet.Reason          `json:"reason"`
	Message        string                `json:"message"`
}

// Detail adds the last output.
type Detail struct {
	crashSummary
	LogTail []string `json:"logTail"`
	// Truncated is true if more was printed than is stored.
	Truncated bool `json:"logTailTruncated"`
}

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/crashes", server.Needs(auth.CrashesView), a.listCrashes).Among(),
		server.Get("/api/v1/crashes/trends", server.Needs(auth.CrashesView), a.crashTrends).Among(),
		server.Get("/api/v1/crashes/:id", server.Needs(auth.CrashesView), a.getCrash).In(CrashInPath),
	}
}

// CrashInPath locates a crash that is in the path as :id.
var CrashInPath = &server.Locator{What: "crash", Group: func(s *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
	crash, ok := s.Crashes.Get(c.Param("id"))
	if !ok {
		return "", false
	}
	return crash.Group, true
}}

func crashOf(c *reports.Crash) crashSummary {
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

// crashFilter selects crashes. Empty fields select all.
type crashFilter struct {
	group, instance, node, category, signature string
	since, until                               time.Time
	// sees is false for the groups that the caller must not see; nil if there are none.
	sees func(fleet.GroupName) bool
}

func (f crashFilter) takes(c *reports.Crash) bool {
	is := func(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }
	return (f.sees == nil || f.sees(c.Group)) && is(f.group, string(c.Group)) && is(f.instance, c.Name, string(c.Instance)) && is(f.node, string(c.Node)) &&
		is(strings.ToUpper(f.category), string(c.Category)) && is(f.signature, c.Fingerprint) &&
		(f.since.IsZero() || !c.At.Before(f.since)) && (f.until.IsZero() || !c.At.After(f.until))
}

// crashesOf returns the selected crashes, newest first.
func crashesOf(s *view.Snapshot, f crashFilter) []*reports.Crash {
	var all []*reports.Crash
	for _, c := range s.Crashes.All() {
		if f.takes(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *reports.Crash) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID)) })
	return all
}

// crashFilterOf reads ?group, instance, node, category (or classification), signature (or
// fingerprint), since (or from) and until (or to). It returns false if it answered the request.
func (a *API) crashFilterOf(c *gin.Context) (f crashFilter, ok bool) {
	f = crashFilter{
		group: c.Query("group"), instance: c.Query("instance"), node: c.Query("node"),
		category: cmp.Or(c.Query("category"), c.Query("classification")), signature: cmp.Or(c.Query("signature"), c.Query("fingerprint")),
		sees: server.Sight(c, auth.CrashesView),
	}
	if f.category != "" && !slices.Contains(reports.CrashCategories[:], reports.CrashCategory(strings.ToUpper(f.category))) {
		server.Fail(c, resource.InvalidQuery("category", "must be one of %v", reports.CrashCategories))
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

// minMillis separates milliseconds from seconds: as seconds it is past the year 5000.
const minMillis = 1e11

// moment reads a time: RFC 3339, seconds or milliseconds since 1970, or an age like "24h". "" is
// the zero time.
func (a *API) moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		if n >= minMillis {
			return time.UnixMilli(n), nil
		}
		return time.Unix(n, 0), nil
	}
	if d, ok := span(text); ok {
		return a.operations.Now().Add(-d), nil
	}
	return time.Time{}, resource.InvalidQuery(name, "must be a time such as 2026-01-31T12:00:00Z, seconds since 1970, or an age such as 24h")
}

// span reads a positive duration: "90m", "24h" or "7d".
func span(text string) (d time.Duration, ok bool) {
	const maxDays = 100_000 // fits in a time.Duration
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0 && n <= maxDays
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// listCrashes accepts ?limit as another name of ?pageSize.
func (a *API) listCrashes(c *gin.Context) {
	f, ok := a.crashFilterOf(c)
	if !ok {
		return
	}
	size, ok := server.Number(c, "limit", resource.LargePage)
	if !ok {
		return
	}
	server.SendPage(c, crashesOf(a.operations.Snapshot(), f), min(max(size, 1), resource.LargePage), crashOf)
}

// getCrash reads the last output from the store, because the node may be gone.
func (a *API) getCrash(c *gin.Context) {
	crash, ok := a.operations.Snapshot().Crashes.Get(c.Param("id"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such crash: the newest 500 are stored for 30 days"))
		return
	}
	out, err := DetailOf(c.Request.Context(), a.operations.Store, crash)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}

// DetailOf returns a crash with its last output, if that is still stored.
func DetailOf(ctx context.Context, c *store.Client, crash *reports.Crash) (Detail, error) {
	out := Detail{crashSummary: crashOf(crash), LogTail: []string{}}
	err := txn.InTime(ctx, func(ctx context.Context) error {
		tail, err := store.Get(ctx, c, keys.CrashTail(crash.ID))
		if err != nil {
			return err
		}
		out.Truncated = tail.Truncated
		out.LogTail, err = tail.Lines()
		return err
	})
	if errs.Is(err, errs.NotFound) { // the output was deleted
		err = nil
	}
	return out, err
}
