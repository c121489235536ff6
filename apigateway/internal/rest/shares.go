package rest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/logs"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/share"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	sharesPage = 200
	// defaultExpiry is how long a text is shared unless somebody says.
	defaultExpiry = "1d"
	// sharedLines and maxSharedLines are how much of a console is shared.
	sharedLines, maxSharedLines = 500, 5000
	// sharedRecords and maxSharedRecords are how much of a log is.
	sharedRecords, maxSharedRecords = 200, 1000
)

// expiries are how long texts may be shared; never is 0.
var expiries = map[string]time.Duration{"1h": time.Hour, "1d": 24 * time.Hour, "30d": 30 * 24 * time.Hour, "never": 0}

// seesShared is what seeing a kind of share takes beside share.invoke: what seeing the thing takes.
var seesShared = map[fleet.ShareKind]auth.Permission{
	fleet.ShareCrash: auth.CrashesView, fleet.ShareGatewayLogs: auth.SystemLogsView, fleet.ShareNodeLogs: auth.SystemLogsView,
	fleet.ShareDiagnostics: auth.SystemSettings, fleet.ShareConsole: auth.InstancesConsole,
}

// sharing is what it takes to share something, and to be told of such shares.
func sharing(k fleet.ShareKind) server.Demand { return server.Needs(seesShared[k], auth.ShareInvoke) }

// maySeeShare reports whether the caller may be told of a share, and read one that is private.
func maySeeShare(c *gin.Context, s fleet.Share) bool {
	return server.Allowed(c, auth.ShareInvoke) && seesWhatIsShared(c, s)
}

// seesWhatIsShared reports whether the caller may see what a share is of, all of it.
func seesWhatIsShared(c *gin.Context, s fleet.Share) bool {
	return server.Allowed(c, seesShared[s.Kind]) && (!s.HasLogs || server.Allowed(c, auth.SystemLogsView))
}

// shareRoutes are shared texts: those who share them, and those who read.
func (a *API) shareRoutes() []server.Route {
	see := server.Needs(auth.ShareInvoke) // of those it leads to, each by its kind
	return []server.Route{
		server.Post("/api/v1/crashes/:id/share", sharing(fleet.ShareCrash), a.shareCrash).ShowsOnce(),
		server.Post("/api/v1/system/logs/share", sharing(fleet.ShareGatewayLogs), a.shareSystemLogs).ShowsOnce(),
		server.Post("/api/v1/nodes/:id/logs/share", sharing(fleet.ShareNodeLogs), a.shareNodeLogs).ShowsOnce(),
		server.Post("/api/v1/services/:id/console/share", sharing(fleet.ShareConsole), a.shareConsole).ShowsOnce(),
		server.Post("/api/v1/instances/:id/console/share", sharing(fleet.ShareConsole), a.shareConsole).ShowsOnce(),
		server.Get("/api/v1/shares", see, a.listShares),
		server.Get("/api/v1/shares/:id", see, a.getShare),
		server.Post("/api/v1/shares/:id/revoke", server.Needs(auth.ShareRevoke), a.revokeShare),
		server.Get("/s/:id", server.Public, a.sharePage),
		server.Get("/s/:id/raw", server.Public, a.shareRaw),
		server.Delete("/s/:id", server.Public, a.deleteShare).Unconditional(),
	}
}

// shareBody is how something is to be shared; what is nil is as usual for its kind.
type shareBody struct {
	Expiry        string `json:"expiry"`
	IsPrivate     bool   `json:"isPrivate"`
	BurnAfterRead *bool  `json:"burnAfterRead"`
	// Limit is of lines, or records; Level and Logger choose records.
	Limit  *int   `json:"limit"`
	Level  string `json:"level"`
	Logger string `json:"logger"`
}

// limit is how much is shared.
func (b shareBody) limit(usual, most int) int {
	if b.Limit == nil {
		return usual
	}
	return min(max(*b.Limit, 1), most)
}

// shareWish reads how something is to be shared. ok is false when the request was answered.
func (a *API) shareWish(c *gin.Context, d share.Draft) (b shareBody, _ share.Draft, ok bool) {
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
	if d.Burn = d.Kind != fleet.ShareDiagnostics; b.BurnAfterRead != nil {
		d.Burn = *b.BurnAfterRead
	}
	return b, d, true
}

// shared is what who shares something is told. The token is told once.
type shared struct {
	ShareID       string     `json:"shareId"`
	URL           string     `json:"url"`
	RawURL        string     `json:"rawUrl"`
	ExpiresAt     *time.Time `json:"expiresAt"` // null for what never does
	IsPrivate     bool       `json:"isPrivate"`
	BurnAfterRead bool       `json:"burnAfterRead"`
	DeleteToken   string     `json:"deleteToken"`
	DeleteURL     string     `json:"deleteUrl"`
}

// share keeps a text and answers with its link.
func (a *API) share(c *gin.Context, d share.Draft) {
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

// shareURL is a share's link: below the address that others reach the API by or, where none
// is set, the one that the request came to.
func (a *API) shareURL(c *gin.Context, id string) string {
	base := strings.TrimSuffix(a.cfg.APIURL, "/")
	if base == "" {
		scheme := "http"
		if c.Request.TLS != nil {
			scheme = "https"
		}
		base = scheme + "://" + c.Request.Host
	}
	return base + "/s/" + id
}

func (a *API) shareCrash(c *gin.Context) {
	_, draft, ok := a.shareWish(c, share.Draft{Kind: fleet.ShareCrash, Resource: c.Param("id")})
	if !ok {
		return
	}
	crash, ok := a.snapshot().Crashes.Get(draft.Resource)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such crash: they are kept for 30 days, the newest 500 of them"))
		return
	}
	detail, err := a.crashDetailOf(c.Request.Context(), crash)
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Text = crashText(detail)
	a.share(c, draft)
}

// crashText is a crash for people.
func crashText(d crashDetail) string {
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

// recordsWish reads which records are to be shared.
func (a *API) recordsWish(c *gin.Context, kind fleet.ShareKind, resource string) (q logs.Query, d share.Draft, ok bool) {
	b, d, ok := a.shareWish(c, share.Draft{Kind: kind, Resource: resource})
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
	q, draft, ok := a.recordsWish(c, fleet.ShareGatewayLogs, "")
	if !ok {
		return
	}
	draft.Text = recordsText(a.cfg.Logs.System(c.Request.Context(), q).Records)
	a.share(c, draft)
}

func (a *API) shareNodeLogs(c *gin.Context) {
	id := fleet.NodeID(c.Param("id"))
	q, draft, ok := a.recordsWish(c, fleet.ShareNodeLogs, string(id))
	if !ok {
		return
	}
	if _, ok := a.snapshot().Nodes.Get(id); !ok {
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

// recordsText are records for people, one a line.
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
	b, draft, ok := a.shareWish(c, share.Draft{Kind: fleet.ShareConsole})
	if !ok {
		return
	}
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Resource = i.Intent.Name
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

// shareView is a share as those see it who may share.
type shareView struct {
	ID            string          `json:"id"`
	Kind          fleet.ShareKind `json:"kind"`
	ResourceID    string          `json:"resourceId"`
	URL           string          `json:"url"`
	RawURL        string          `json:"rawUrl"`
	ExpiresAt     *time.Time      `json:"expiresAt"` // null for what never does
	BurnAfterRead bool            `json:"burnAfterRead"`
	IsPrivate     bool            `json:"isPrivate"`
	SizeBytes     int             `json:"sizeBytes"`
	Truncated     bool            `json:"truncated"`
	SharedByUser  string          `json:"sharedByUser"`
	SharedAt      time.Time       `json:"sharedAt"`
	RevokedAt     *time.Time      `json:"revokedAt"`
	ReadAt        *time.Time      `json:"readAt"` // of what could be read once
	Revocable     bool            `json:"revocable"`
}

func (a *API) shareOf(c *gin.Context, s fleet.Share) shareView {
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
		RevokedAt: when(s.RevokedAt), ReadAt: when(s.BurnedAt), Revocable: s.Active(a.cfg.Now()),
	}
}

// listShares takes ?kind and ?activeOnly=true, and leaves out what the caller may not see.
func (a *API) listShares(c *gin.Context) {
	kind := fleet.ShareKind(strings.ToUpper(c.Query("kind")))
	if kind != "" && !slices.Contains(fleet.ShareKinds[:], kind) {
		server.Fail(c, badQuery("kind", "must be one of %v", fleet.ShareKinds))
		return
	}
	all, err := a.cfg.Shares.List(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	all = slices.DeleteFunc(all, func(s fleet.Share) bool {
		return !maySeeShare(c, s) || kind != "" && s.Kind != kind || c.Query("activeOnly") == "true" && !s.Active(a.cfg.Now())
	})
	server.SendPage(c, all, sharesPage, func(s fleet.Share) shareView { return a.shareOf(c, s) })
}

func (a *API) getShare(c *gin.Context) {
	record, err := a.cfg.Shares.Get(c.Request.Context(), c.Param("id"))
	if err == nil && !maySeeShare(c, record) {
		err = share.None()
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, a.shareOf(c, record))
}

func (a *API) revokeShare(c *gin.Context) {
	record, err := a.cfg.Shares.Revoke(c.Request.Context(), server.Actor(c), c.Param("id"), func(s fleet.Share) bool { return seesWhatIsShared(c, s) })
	switch {
	case errors.Is(err, share.ErrRevoked):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "SHARE_ALREADY_REVOKED", Message: err.Error()})
	case errors.Is(err, share.ErrEnded):
		server.Refuse(c, wire.Reply{Status: http.StatusUnprocessableEntity, Code: "SHARE_NOT_REVOCABLE", Message: err.Error()})
	case err != nil:
		server.Fail(c, err)
	default:
		c.JSON(http.StatusOK, a.shareOf(c, record))
	}
}
