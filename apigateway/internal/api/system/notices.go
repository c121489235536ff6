package system

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/background/notices/webhook"
	"github.com/orreryhq/orrery/apigateway/internal/ops/noticeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/store/view"
)

// noticeFields are the writable fields of a notice that an answer shows.
type noticeFields struct {
	Description string        `json:"description"`
	Format      notice.Format `json:"format"`
	// URL is shortened in an answer. A write with the shortened URL keeps the present one.
	URL         string            `json:"url"`
	Events      []string          `json:"events"`
	Groups      []fleet.GroupName `json:"groups"`
	MinSeverity notice.Severity   `json:"minSeverity"`
	Enabled     *bool             `json:"enabled"`
}

// noticeView is a notice in an answer. It never has the secret.
type noticeView struct {
	Name string `json:"name"`
	noticeFields
	// Signed is true if there is a secret.
	Signed    bool           `json:"signed"`
	Delivery  noticeDelivery `json:"delivery"`
	UpdatedBy string         `json:"updatedBy"`
	UpdatedAt time.Time      `json:"updatedAt"`
}

// noticeDelivery is how far the deliveries of a notice are.
type noticeDelivery struct {
	Delivered int64 `json:"delivered"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
	Waiting   int   `json:"waiting"`
	// Failures counts the failed attempts since the last success.
	Failures     int        `json:"failures"`
	FailingSince *time.Time `json:"failingSince"`
	LastSuccess  *time.Time `json:"lastSuccessAt"`
	LastAttempt  *time.Time `json:"lastAttemptAt"`
	LastEvent    *string    `json:"lastEvent"`
	LastStatus   *int       `json:"lastStatus"`
	LastError    *string    `json:"lastError"`
	// Gateway is the replica that delivers; null before the first.
	Gateway *string `json:"gateway"`
}

// noticeBody is the body of a request. It accepts the read-only fields so that a client can send back what
// it read.
type noticeBody struct {
	Name *string `json:"name"`
	noticeFields
	// Secret signs the requests. Absent keeps the present one, "" removes it.
	Secret    *string         `json:"secret"`
	Signed    json.RawMessage `json:"signed"`
	Delivery  json.RawMessage `json:"delivery"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

// patchable are the fields that a merge patch can change.
type patchable struct {
	noticeFields
	Secret *string `json:"secret"`
}

// noticeRoutes serve outgoing notices. They need the permission for secrets: the requests leave the
// cluster, and have events of all kinds.
func (a *API) noticeRoutes() []server.Route {
	may := server.Needs(auth.SystemSettings)
	return server.Under("/api/v1/notices",
		server.Get("", may, a.listNotices),
		server.Post("", may, a.createNotice).Rehearses(),
		server.Get("/:name", may, a.getNotice),
		server.Put("/:name", may, a.putNotice).Rehearses().Makes(),
		server.Patch("/:name", may, a.patchNotice).Rehearses(),
		server.Delete("/:name", may, a.deleteNotice).Rehearses(),
		server.Post("/:name/test", may, a.testNotice).Rehearses(),
	)
}

func noticeFieldsOf(n notice.Notice) noticeFields {
	return noticeFields{
		Description: n.Description, Format: n.Format, URL: n.Address, Events: *resource.List(n.Events), Groups: *resource.List(n.Groups),
		MinSeverity: n.MinSeverity, Enabled: &n.Enabled,
	}
}

// desired returns the notice that a client describes.
func (f noticeFields) desired(secret *string) noticeops.NoticeDesired {
	n := notice.Notice{
		Description: f.Description, Format: f.Format, Events: f.Events, Groups: f.Groups, MinSeverity: f.MinSeverity, Enabled: true,
	}
	if n.Format == "" {
		n.Format = notice.JSON
	}
	if n.MinSeverity == "" {
		n.MinSeverity = notice.Info
	}
	resource.Set(&n.Enabled, f.Enabled)
	return noticeops.NoticeDesired{Notice: n, URL: f.URL, Secret: secret}
}

func noticeOf(s *view.Snapshot, n *notice.Notice) noticeView {
	out := noticeView{Name: n.Name, noticeFields: noticeFieldsOf(*n), Signed: n.Signed, UpdatedBy: n.By, UpdatedAt: n.At}
	st, ok := s.NoticeStates.Get(n.Name)
	if !ok {
		return out
	}
	out.Delivery = noticeDelivery{
		Delivered: st.Delivered, Failed: st.Failed, Dropped: st.Dropped, Waiting: st.Waiting, Failures: st.Failures,
		FailingSince: resource.OrNull(st.FailingSince), LastSuccess: resource.OrNull(st.LastSuccess), LastAttempt: resource.OrNull(st.LastAttempt), LastEvent: resource.OrNull(st.LastEvent),
		LastStatus: resource.OrNull(st.LastStatus), LastError: resource.OrNull(st.LastError), Gateway: resource.OrNull(st.Holder.Replica),
	}
	return out
}

func (a *API) listNotices(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*notice.Notice, 0, s.Notices.Len())
	for _, n := range s.Notices.All() {
		all = append(all, n)
	}
	server.SendPage(c, all, resource.SmallPage, func(n *notice.Notice) noticeView { return noticeOf(s, n) })
}

func (a *API) getNotice(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	n, err := noticeops.FindNotice(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	resource.SendRecord(c, noticeOf(s, n), n.ModRev, nil)
}

func (a *API) createNotice(c *gin.Context) {
	var b noticeBody
	if !server.Bind(c, &b) {
		return
	}
	if b.Name == nil {
		server.Fail(c, errs.Field("name", "is missing"))
		return
	}
	a.writeNotice(c, noticeops.NoticeWrite{
		Name: *b.Name, Create: true, Make: func(*notice.Notice) (noticeops.NoticeDesired, error) { return b.desired(b.Secret), nil },
	})
}

func (a *API) putNotice(c *gin.Context) {
	var b noticeBody
	name, rev, ok := resource.BindRecord(c, "notice", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	a.writeNotice(c, noticeops.NoticeWrite{
		Name: name, IfMatch: rev, Make: func(*notice.Notice) (noticeops.NoticeDesired, error) { return b.desired(b.Secret), nil },
	})
}

// patchNotice applies a merge patch (RFC 7396): null restores a default.
func (a *API) patchNotice(c *gin.Context) {
	var b noticeBody
	name, rev, patch, ok := resource.BindPatch(c, "notice", &b, func() *string { return b.Name }, patchable{})
	if !ok {
		return
	}
	a.writeNotice(c, noticeops.NoticeWrite{Name: name, Update: true, IfMatch: rev, Make: func(old *notice.Notice) (noticeops.NoticeDesired, error) {
		now, err := resource.Patched(patchable{noticeFieldsOf(*old), nil}, patch)
		if _, named := patch["secret"]; named && now.Secret == nil { // null removes it
			now.Secret = new(string)
		}
		return now.desired(now.Secret), err
	}})
}

func (a *API) writeNotice(c *gin.Context, w noticeops.NoticeWrite) {
	w.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.WriteNotice(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		var before notice.Notice
		if done.Before != nil {
			before = *done.Before
		}
		c.JSON(http.StatusOK, resource.DryRun("notice", w.Name, done.Before != nil, resource.Differences(noticeFieldsOf(before), noticeFieldsOf(done.After))))
		return
	}
	resource.SendWritten(c, "/api/v1/notices/"+w.Name, done.Before == nil, done.After.ModRev, noticeOf(a.cfg.Operations.Snapshot(), &done.After))
}

func (a *API) deleteNotice(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteNotice, gin.H{"dryRun": true, "action": "delete", "notice": c.Param("name"), "diff": []resource.FieldChange{}})
}

// noticeTest is the answer to a test.
type noticeTest struct {
	Delivered bool `json:"delivered"`
	// StatusCode is null if the target did not answer.
	StatusCode *int    `json:"statusCode"`
	Error      *string `json:"error"`
	DeliveryID string  `json:"deliveryId"`
}

// testNotice sends a message at once and answers with the outcome. A dry run answers with the message.
func (a *API) testNotice(c *gin.Context) {
	n, err := noticeops.FindNotice(a.cfg.Operations.Snapshot(), c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	m := a.cfg.Notices.TestMessage(n, ulid.Make().String())
	if server.DryRun(c) {
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "deliveryId": m.Delivery(), "body": json.RawMessage(webhook.Body(n.Format, m))})
		return
	}
	out := noticeTest{DeliveryID: m.Delivery()}
	err = a.cfg.Operations.TestNotice(c.Request.Context(), server.Actor(c), n.Name, func(ctx context.Context, n *notice.Notice) error {
		result, err := a.cfg.Notices.Test(ctx, n, m)
		out.Delivered, out.StatusCode, out.Error = result.OK(), resource.OrNull(result.Status), resource.OrNull(result.Error)
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}
