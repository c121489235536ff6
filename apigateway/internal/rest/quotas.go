package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// quotaFields are what may be written of a quota.
type quotaFields struct {
	// Selector are the labels of the groups that are counted together.
	Selector values `json:"selector"`
	// Limit is what they may hold; 0 is no bound.
	Limit *budget `json:"limit"`
	// Reserved is what other groups leave free for them.
	Reserved *budget `json:"reserved"`
}

// quota is a quota as it is read.
type quota struct {
	Name string `json:"name"`
	quotaFields
	// Held is what the groups hold now.
	Held budget `json:"held"`
	// Message says what there is to say about that; empty when there is nothing.
	Message   string    `json:"message"`
	UpdatedBy string    `json:"updatedBy"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// quotaBody is what a client sends.
type quotaBody struct {
	Name *string `json:"name"`
	quotaFields
	Held      json.RawMessage `json:"held"`
	Message   json.RawMessage `json:"message"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

// quotaRoutes are quotas and reservations.
func (a *API) quotaRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/quotas", server.Needs(auth.QuotasView), a.listQuotas),
		server.Get("/api/v1/quotas/:name", server.Needs(auth.QuotasView), a.getQuota),
		server.Put("/api/v1/quotas/:name", server.Needs(auth.QuotasManage), a.putQuota).Rehearses().Makes(),
		server.Delete("/api/v1/quotas/:name", server.Needs(auth.QuotasManage), a.deleteQuota).Rehearses(),
	}
}

// quotaOf shows a quota as a snapshot has it; held is what each group holds.
func quotaOf(s *view.Snapshot, q fleet.Quota, held map[fleet.GroupName]fleet.Budget) quota {
	together := operate.HeldUnder(s, q, held)
	return quota{
		Name: q.Name, quotaFields: quotaFields{Selector: *valuesOf(q.Selector), Limit: budgetOf(q.Limit), Reserved: budgetOf(q.Reserved)},
		Held: *budgetOf(together), Message: overdrawn(together, q.Limit), UpdatedBy: q.By, UpdatedAt: q.At,
	}
}

func (a *API) listQuotas(c *gin.Context) {
	s := a.snapshot()
	all, held := make([]*fleet.Quota, 0, s.Quotas.Len()), operate.Held(s)
	for _, q := range s.Quotas.All() {
		all = append(all, q)
	}
	server.SendPage(c, all, pageMany, func(q *fleet.Quota) quota { return quotaOf(s, *q, held) })
}

func (a *API) getQuota(c *gin.Context) {
	s := a.snapshot()
	q, ok := s.Quotas.Get(c.Param("name"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no quota of that name"))
		return
	}
	sendRecord(c, quotaOf(s, *q, operate.Held(s)), q.ModRev, nil)
}

// putQuota creates or replaces. A limit below what is held is accepted, and the
// answer says what comes of it.
func (a *API) putQuota(c *gin.Context) {
	var b quotaBody
	name, rev, ok := bindRecord(c, "quota", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	w := operate.QuotaWrite{
		Quota:   fleet.Quota{Name: name, Selector: b.Selector.given(), Limit: b.Limit.amount(), Reserved: b.Reserved.amount()},
		IfMatch: rev, DryRun: server.DryRun(c),
	}
	done, err := a.cfg.Operations.WriteQuota(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.snapshot()
	shown := quotaOf(s, done.After, operate.Held(s))
	if w.DryRun {
		c.JSON(http.StatusOK, quotaRehearsalOf(done, shown))
		return
	}
	sendPut(c, done.Before == nil, done.After.ModRev, shown)
}

// quotaRehearsal is what a dry run found.
type quotaRehearsal struct {
	DryRun bool `json:"dryRun"`
	// Action is create, update, delete or none.
	Action  string        `json:"action"`
	Quota   string        `json:"quota"`
	Diff    []fieldChange `json:"diff"`
	Message string        `json:"message,omitempty"`
}

func quotaRehearsalOf(w operate.QuotaWritten, shown quota) quotaRehearsal {
	r := quotaRehearsal{DryRun: true, Action: "create", Quota: w.After.Name, Message: shown.Message}
	before := quotaFields{Selector: values{}, Limit: budgetOf(fleet.Budget{}), Reserved: budgetOf(fleet.Budget{})}
	if w.Before != nil {
		before = quotaFields{Selector: *valuesOf(w.Before.Selector), Limit: budgetOf(w.Before.Limit), Reserved: budgetOf(w.Before.Reserved)}
		r.Action = "update"
	}
	if r.Diff = differences(before, shown.quotaFields); w.Before != nil && len(r.Diff) == 0 {
		r.Action = "none"
	}
	return r
}

func (a *API) deleteQuota(c *gin.Context) {
	deleteRecord(c, a.cfg.Operations.DeleteQuota, quotaRehearsal{DryRun: true, Action: "delete", Quota: c.Param("name"), Diff: []fieldChange{}})
}
