// Package shares serves shared texts: logs, consoles, crashes and diagnostics behind a link.
package shares

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/crashes"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Shares     *sharedtext.Shares
	Logs       *logs.Logs
	System     *system.API
	// NoShares turns sharing off.
	NoShares bool
	// APIURL is the public URL of the gateway. It is empty if none is configured.
	APIURL string
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

func (a *API) shareDiagnostics(c *gin.Context) {
	_, draft, ok := a.shareRequest(c, sharedtext.Draft{Kind: account.ShareDiagnostics})
	if !ok {
		return
	}
	out, err := a.cfg.System.Diagnose(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Text, draft.HasLogs = string(text), server.Allowed(c, auth.SystemLogsView)
	a.share(c, draft)
}

const (
	sharesPage = 200
	// defaultExpiry is how long a text is shared by default.
	defaultExpiry = "1d"
	// sharedLines and maxSharedLines are the default and the largest number of console lines.
	sharedLines, maxSharedLines = 500, 5000
	// sharedRecords and maxSharedRecords are the default and the largest number of log records.
	sharedRecords, maxSharedRecords = 200, 1000
)

// expiries are the lifetimes of shares. 0 means no end.
var expiries = map[string]time.Duration{"1h": time.Hour, "1d": 24 * time.Hour, "30d": 30 * 24 * time.Hour, "never": 0}

// viewPermissions are the permissions to see what a share shows.
var viewPermissions = map[account.ShareKind]auth.Permission{
	account.ShareCrash: auth.CrashesView, account.ShareGatewayLogs: auth.SystemLogsView, account.ShareNodeLogs: auth.SystemLogsView,
	account.ShareDiagnostics: auth.SystemSettings, account.ShareConsole: auth.InstancesConsole,
}

// sharing demands the permissions to share a kind of text.
func sharing(k account.ShareKind) server.Demand {
	return server.Needs(viewPermissions[k], auth.ShareInvoke)
}

// maySeeShare reports whether the caller may list a share, and read it if it is private.
func maySeeShare(c *gin.Context, s account.Share) bool {
	return server.AllowedIn(c, s.Group, auth.ShareInvoke) && maySeeContent(c, s)
}

// maySeeContent reports whether the caller may see everything in a share.
func maySeeContent(c *gin.Context, s account.Share) bool {
	return server.AllowedIn(c, s.Group, viewPermissions[s.Kind]) && (!s.HasLogs || server.Allowed(c, auth.SystemLogsView))
}

// Routes returns the routes of the package, which create, list and open shares.
func (a *API) Routes() []server.Route {
	see := server.Needs(auth.ShareInvoke) // handlers check the permission for each kind
	return []server.Route{
		server.Post("/api/v1/crashes/:id/share", sharing(account.ShareCrash), a.shareCrash).ShowsOnce().In(crashes.CrashInPath),
		server.Post("/api/v1/system/diagnostics/share", sharing(account.ShareDiagnostics), a.shareDiagnostics).ShowsOnce(),
		server.Post("/api/v1/system/logs/share", sharing(account.ShareGatewayLogs), a.shareSystemLogs).ShowsOnce(),
		server.Post("/api/v1/nodes/:id/logs/share", sharing(account.ShareNodeLogs), a.shareNodeLogs).ShowsOnce(),
		server.Post("/api/v1/services/:id/console/share", sharing(account.ShareConsole), a.shareConsole).ShowsOnce().In(server.InstanceInPath),
		server.Post("/api/v1/instances/:id/console/share", sharing(account.ShareConsole), a.shareConsole).ShowsOnce().In(server.InstanceInPath),
		server.Get("/api/v1/shares", see, a.listShares).Among(),
		server.Get("/api/v1/shares/:id", see, a.getShare).Among(),
		server.Post("/api/v1/shares/:id/revoke", server.Needs(auth.ShareRevoke), a.revokeShare).Among(),
		server.Get("/s/:id", server.Public, a.sharePage),
		server.Get("/s/:id/raw", server.Public, a.shareRaw),
		server.Delete("/s/:id", server.Public, a.deleteShare).Unconditional(),
	}
}

// shareBody is the body of a request. Nil fields take the default of the kind.
type shareBody struct {
	Expiry        string `json:"expiry"`
	IsPrivate     bool   `json:"isPrivate"`
	BurnAfterRead *bool  `json:"burnAfterRead"`
	// Limit bounds console lines or log records. Level and Logger select log records.
	Limit  *int   `json:"limit"`
	Level  string `json:"level"`
	Logger string `json:"logger"`
}

// limit returns how many lines or records to share.
func (b shareBody) limit(usual, most int) int {
	if b.Limit == nil {
		return usual
	}
	return min(max(*b.Limit, 1), most)
}

// shareRequest reads the options of a share. ok is false if it answered the request.
func (a *API) shareRequest(c *gin.Context, d sharedtext.Draft) (b shareBody, _ sharedtext.Draft, ok bool) {
	if a.cfg.NoShares {
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "SHARE_DISABLED", Message: "sharing is turned off on this gateway (share.enabled)"})
		return b, d, false
	}
	b.Expiry = defaultExpiry
	if !server.BindOptional(c, &b) {
		return b, d, false
	}
	if d.For, ok = expiries[b.Expiry]; !ok {
		server.Fail(c, errs.Field("expiry", "must be one of %s", strings.Join(slices.Sorted(maps.Keys(expiries)), ", ")))
		return b, d, false
	}
	d.Private = b.IsPrivate
	if d.Burn = d.Kind != account.ShareDiagnostics; b.BurnAfterRead != nil {
		d.Burn = *b.BurnAfterRead
	}
	return b, d, true
}

// shared is the answer to the creation of a share. Only it has the delete token.
type shared struct {
	ShareID       string     `json:"shareId"`
	URL           string     `json:"url"`
	RawURL        string     `json:"rawUrl"`
	ExpiresAt     *time.Time `json:"expiresAt"` // null if it never expires
	IsPrivate     bool       `json:"isPrivate"`
	BurnAfterRead bool       `json:"burnAfterRead"`
	DeleteToken   string     `json:"deleteToken"`
	DeleteURL     string     `json:"deleteUrl"`
}

// share stores a text and answers with its link.
func (a *API) share(c *gin.Context, d sharedtext.Draft) {
	record, token, err := a.cfg.Shares.Make(c.Request.Context(), server.Actor(c), d)
	if err != nil {
		server.Fail(c, err)
		return
	}
	link := a.shareURL(c, record.ID)
	out := shared{
		ShareID: record.ID, URL: link, RawURL: link + "/raw", IsPrivate: record.Private, BurnAfterRead: record.Burn,
		DeleteToken: token, DeleteURL: link + "?" + url.Values{"token": {token}}.Encode(),
	}
	if !record.ExpiresAt.IsZero() {
		out.ExpiresAt = &record.ExpiresAt
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusCreated, out)
}

// shareURL returns the link to a share, below the configured URL of the API or, without one, below
// the host of the request.
func (a *API) shareURL(c *gin.Context, id string) string {
	base := strings.TrimSuffix(a.cfg.APIURL, "/")
	if base == "" {
		base = server.Scheme(c) + "://" + c.Request.Host
	}
	return base + "/s/" + id
}

func (a *API) shareCrash(c *gin.Context) {
	_, draft, ok := a.shareRequest(c, sharedtext.Draft{Kind: account.ShareCrash, Resource: c.Param("id")})
	if !ok {
		return
	}
	crash, ok := a.cfg.Operations.Snapshot().Crashes.Get(draft.Resource)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such crash: the newest 500 are stored for 30 days"))
		return
	}
	detail, err := crashes.DetailOf(c.Request.Context(), a.cfg.Operations.Store, crash)
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Text, draft.Group = crashText(detail), crash.Group
	a.share(c, draft)
}

// crashText formats a crash as text.
func crashText(d crashes.Detail) string {
	var out strings.Builder
	for _, field := range [][2]string{
		{"crash", d.ID},
		{"instance", d.InstanceID + " (" + string(d.UID) + ")"},
		{"group", string(d.Group)},
		{"node", string(d.Node)},
		{"at", d.CrashedAt.Format(time.RFC3339)},
		{"after", (time.Duration(d.UptimeMs) * time.Millisecond).String()},
		{"classification", string(d.Classification)},
		{"cause", d.CauseSummary},
		{"reason", string(d.Reason) + ": " + d.Message},
		{"signature", d.Signature},
	} {
		fmt.Fprintf(&out, "%s: %s\n", field[0], field[1])
	}
	if d.ExitCode != nil {
		fmt.Fprintf(&out, "exit code: %d\n", *d.ExitCode)
	}
	out.WriteString("\n" + strings.Join(d.LogTail, "\n") + "\n")
	return out.String()
}

// recordsRequest reads which log records to share. ok is false if it answered the request.
func (a *API) recordsRequest(c *gin.Context, kind account.ShareKind, resource string) (q logs.Query, d sharedtext.Draft, ok bool) {
	b, d, ok := a.shareRequest(c, sharedtext.Draft{Kind: kind, Resource: resource})
	if !ok {
		return q, d, false
	}
	var err error
	if q.RecordFilter, err = telemetry.ParseRecordFilter(b.Level, b.Logger); err != nil {
		server.Fail(c, err)
		return q, d, false
	}
	q.Limit = b.limit(sharedRecords, maxSharedRecords)
	return q, d, true
}

func (a *API) shareSystemLogs(c *gin.Context) {
	q, draft, ok := a.recordsRequest(c, account.ShareGatewayLogs, "")
	if !ok {
		return
	}
	draft.Text = recordsText(a.cfg.Logs.System(c.Request.Context(), q).Records)
	a.share(c, draft)
}

func (a *API) shareNodeLogs(c *gin.Context) {
	id := fleet.NodeID(c.Param("id"))
	q, draft, ok := a.recordsRequest(c, account.ShareNodeLogs, string(id))
	if !ok {
		return
	}
	if _, ok := a.cfg.Operations.Snapshot().Nodes.Get(id); !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such node"))
		return
	}
	page, err := a.cfg.Logs.Node(c.Request.Context(), id, q)
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Text = recordsText(page.Records)
	a.share(c, draft)
}

// recordsText formats log records as text, one per line.
func recordsText(records []telemetry.Record) string {
	var out strings.Builder
	line := strings.NewReplacer("\n", " ", "\r", " ")
	for _, r := range records {
		text := fmt.Sprintf("%s %-5s %s [%s] %s", time.UnixMilli(r.TS).UTC().Format("2006-01-02T15:04:05.000Z"), r.Level, r.Logger, r.Thread, r.Message)
		for _, name := range slices.Sorted(maps.Keys(r.MDC)) {
			text += fmt.Sprintf(" %s=%q", name, r.MDC[name])
		}
		if r.Throwable != "" {
			text += " | " + r.Throwable
		}
		out.WriteString(line.Replace(text) + "\n")
	}
	return out.String()
}

func (a *API) shareConsole(c *gin.Context) {
	b, draft, ok := a.shareRequest(c, sharedtext.Draft{Kind: account.ShareConsole})
	if !ok {
		return
	}
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Resource, draft.Group = i.Intent.Name, i.Intent.Group
	log, err := a.cfg.Operations.Logs(c.Request.Context(), string(i.Intent.ID), client.Query{Lines: b.limit(sharedLines, maxSharedLines)})
	if err != nil {
		server.Fail(c, err)
		return
	}
	var out strings.Builder
	for _, l := range log.Lines {
		out.WriteString(l.Text + "\n")
	}
	draft.Text = out.String()
	a.share(c, draft)
}

// shareView is a share in an answer.
type shareView struct {
	ID            string            `json:"id"`
	Kind          account.ShareKind `json:"kind"`
	ResourceID    string            `json:"resourceId"`
	URL           string            `json:"url"`
	RawURL        string            `json:"rawUrl"`
	ExpiresAt     *time.Time        `json:"expiresAt"` // null if it never expires
	BurnAfterRead bool              `json:"burnAfterRead"`
	IsPrivate     bool              `json:"isPrivate"`
	SizeBytes     int               `json:"sizeBytes"`
	Truncated     bool              `json:"truncated"`
	SharedByUser  string            `json:"sharedByUser"`
	SharedAt      time.Time         `json:"sharedAt"`
	RevokedAt     *time.Time        `json:"revokedAt"`
	ReadAt        *time.Time        `json:"readAt"` // null unless it could be read only once and was
	Revocable     bool              `json:"revocable"`
}

func (a *API) shareOf(c *gin.Context, s account.Share) shareView {
	link := a.shareURL(c, s.ID)
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return shareView{
		ID: s.ID, Kind: s.Kind, ResourceID: s.Resource, URL: link, RawURL: link + "/raw", ExpiresAt: when(s.ExpiresAt),
		BurnAfterRead: s.Burn, IsPrivate: s.Private, SizeBytes: s.SizeBytes, Truncated: s.Truncated, SharedByUser: s.By, SharedAt: s.At,
		RevokedAt: when(s.RevokedAt), ReadAt: when(s.BurnedAt), Revocable: s.Active(a.cfg.Operations.Now()),
	}
}

// listShares filters by ?kind and ?activeOnly=true. It omits shares that the caller may not see.
func (a *API) listShares(c *gin.Context) {
	kind := account.ShareKind(strings.ToUpper(c.Query("kind")))
	if kind != "" && !slices.Contains(account.ShareKinds[:], kind) {
		server.Fail(c, resource.InvalidQuery("kind", "must be one of %v", account.ShareKinds))
		return
	}
	all, err := a.cfg.Shares.List(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	all = slices.DeleteFunc(all, func(s account.Share) bool {
		return !maySeeShare(c, s) || kind != "" && s.Kind != kind || c.Query("activeOnly") == "true" && !s.Active(a.cfg.Operations.Now())
	})
	server.SendPage(c, all, sharesPage, func(s account.Share) shareView { return a.shareOf(c, s) })
}

func (a *API) getShare(c *gin.Context) {
	record, err := a.cfg.Shares.Get(c.Request.Context(), c.Param("id"))
	if err == nil && !maySeeShare(c, record) {
		err = sharedtext.NotFound()
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, a.shareOf(c, record))
}

func (a *API) revokeShare(c *gin.Context) {
	record, err := a.cfg.Shares.Revoke(c.Request.Context(), server.Actor(c), c.Param("id"), func(s account.Share) bool {
		return server.AllowedIn(c, s.Group, auth.ShareRevoke) && maySeeContent(c, s)
	})
	switch {
	case errors.Is(err, sharedtext.ErrRevoked):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "SHARE_ALREADY_REVOKED", Message: err.Error()})
	case errors.Is(err, sharedtext.ErrEnded):
		server.Refuse(c, wire.Reply{Status: http.StatusUnprocessableEntity, Code: "SHARE_NOT_REVOCABLE", Message: err.Error()})
	case err != nil:
		server.Fail(c, err)
	default:
		c.JSON(http.StatusOK, a.shareOf(c, record))
	}
}
