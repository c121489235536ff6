package groups

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/view"
)

// quotaFields are the writable fields of a quota.
type quotaFields struct {
	// Selector selects, by labels, the groups whose usage is summed.
	Selector resource.Values `json:"selector"`
	// Limit bounds the sum. 0 means no limit.
	Limit *budget `json:"limit"`
	// Reserved is what other groups must leave free for these groups.
	Reserved *budget `json:"reserved"`
}

// quota is a quota in an answer.
type quota struct {
	Name string `json:"name"`
	quotaFields
	// Held is what the groups hold now.
	Held budget `json:"held"`
	// Message explains a limit that is exceeded. It is empty otherwise.
	Message   string    `json:"message"`
	UpdatedBy string    `json:"updatedBy"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// quotaBody is the body of a request.
type quotaBody struct {
	Name *string `json:"name"`
	quotaFields
	Held      json.RawMessage `json:"held"`
	Message   json.RawMessage `json:"message"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

func (a *API) quotaRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/quotas", server.Needs(auth.QuotasView), a.listQuotas),
		server.Get("/api/v1/quotas/:name", server.Needs(auth.QuotasView), a.getQuota),
		server.Put("/api/v1/quotas/:name", server.Needs(auth.QuotasManage), a.putQuota).Rehearses().Makes(),
		server.Delete("/api/v1/quotas/:name", server.Needs(auth.QuotasManage), a.deleteQuota).Rehearses(),
	}
}

// quotaOf shows a quota. held is what each group holds.
func quotaOf(s *view.Snapshot, q cluster.Quota, held map[fleet.GroupName]fleet.Budget) quota {
	together := clusterops.HeldUnder(s, q, held)
	return quota{
		Name: q.Name, quotaFields: quotaFieldsOf(q),
		Held: *budgetOf(together), Message: overdrawn(together, q.Limit), UpdatedBy: q.By, UpdatedAt: q.At,
	}
}

func (a *API) listQuotas(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all, held := make([]*cluster.Quota, 0, s.Quotas.Len()), clusterops.Held(s)
	for _, q := range s.Quotas.All() {
		all = append(all, q)
	}
	server.SendPage(c, all, resource.LargePage, func(q *cluster.Quota) quota { return quotaOf(s, *q, held) })
}

func (a *API) getQuota(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	q, ok := s.Quotas.Get(c.Param("name"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no quota with that name"))
		return
	}
	resource.SendRecord(c, quotaOf(s, *q, clusterops.Held(s)), q.ModRev, nil)
}

// putQuota creates or replaces a quota. It accepts a limit below the present usage, and the answer
// explains what follows.
func (a *API) putQuota(c *gin.Context) {
	var b quotaBody
	name, rev, ok := resource.BindRecord(c, "quota", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	w := clusterops.QuotaWrite{
		Quota:   cluster.Quota{Name: name, Selector: b.Selector.Given(), Limit: b.Limit.amount(), Reserved: b.Reserved.amount()},
		IfMatch: rev, DryRun: server.DryRun(c),
	}
	done, err := a.cfg.Operations.WriteQuota(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.cfg.Operations.Snapshot()
	shown := quotaOf(s, done.After, clusterops.Held(s))
	if w.DryRun {
		c.JSON(http.StatusOK, quotaDryRunOf(done, shown))
		return
	}
	resource.SendPut(c, done.Before == nil, done.After.ModRev, shown)
}

func quotaDryRunOf(w clusterops.QuotaWritten, shown quota) gin.H {
	var before cluster.Quota
	if w.Before != nil {
		before = *w.Before
	}
	out := resource.DryRun("quota", w.After.Name, w.Before != nil, resource.Differences(quotaFieldsOf(before), shown.quotaFields))
	if shown.Message != "" {
		out["message"] = shown.Message
	}
	return out
}

func quotaFieldsOf(q cluster.Quota) quotaFields {
	return quotaFields{Selector: *resource.ValuesOf(q.Selector), Limit: budgetOf(q.Limit), Reserved: budgetOf(q.Reserved)}
}

func (a *API) deleteQuota(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteQuota, gin.H{"dryRun": true, "action": "delete", "quota": c.Param("name"), "diff": []resource.FieldChange{}})
}
