// Package allocations serves /api/v1/allocations: claims on ready instances.
package allocations

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/allocationops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/store/view"
)

// API serves allocations.
type API struct{ operations *ops.Operations }

// New returns the API.
func New(o *ops.Operations) *API { return &API{o} }

// Routes returns the routes. Allocations share a record per instance, so one has no revision of its own.
func (a *API) Routes() []server.Route {
	return server.Under("/api/v1/allocations",
		server.Post("", server.Needs(auth.GroupsStart), a.allocate).Rehearses().Among(),
		server.Get("", server.Needs(auth.GroupsView), a.list).Among(),
		server.Get("/:id", server.Needs(auth.GroupsView), a.get).In(inPath),
		server.Patch("/:id", server.Needs(auth.GroupsStart), a.renew).Unconditional().In(inPath),
		server.Delete("/:id", server.Needs(auth.GroupsStart), a.release).Rehearses().Unconditional().In(inPath),
	)
}

var inPath = &server.Locator{What: "allocation", Group: func(s *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
	found, err := allocationops.Find(s, c.Param("id"))
	if err != nil {
		return "", false
	}
	return found.Instance.Intent.Group, true
}}

// selector is a selector in a request.
type selector struct {
	Group  fleet.GroupName `json:"group"`
	Labels string          `json:"labels"`
}

// body is the body of a request for a claim.
type body struct {
	Selectors  []selector             `json:"selectors"`
	Slots      int                    `json:"slots"`
	TTLSeconds int                    `json:"ttlSeconds"`
	Strategy   allocationops.Strategy `json:"strategy"`
	Note       string                 `json:"note"`
}

// shown is an allocation in an answer.
type shown struct {
	ID         string          `json:"id"`
	InstanceID string          `json:"instanceId"`
	UID        string          `json:"uid"`
	Group      fleet.GroupName `json:"group"`
	NodeID     fleet.NodeID    `json:"nodeId"`
	// Address and Port are where players reach the instance.
	Address string `json:"address"`
	Port    int    `json:"port"`
	// Slots is 0 for a whole instance.
	Slots      int       `json:"slots"`
	By         string    `json:"by"`
	CreatedAt  time.Time `json:"createdAt"`
	TTLSeconds int       `json:"ttlSeconds"`
	// ExpiresAt is null for an allocation without an end.
	ExpiresAt *time.Time `json:"expiresAt"`
	Note      string     `json:"note"`
}

func shownOf(s *view.Snapshot, a allocationops.Allocation) shown {
	i := a.Instance
	out := shown{
		ID: a.ID, InstanceID: i.Intent.Name, UID: string(i.Intent.ID), Group: i.Intent.Group, NodeID: i.Node(), Address: s.AddressOf(i), Port: i.Port(),
		Slots: a.Slots, By: a.By, CreatedAt: a.At, TTLSeconds: a.TTLSeconds, Note: a.Note,
	}
	if a.TTLSeconds > 0 {
		out.ExpiresAt = new(a.At.Add(time.Duration(a.TTLSeconds) * time.Second))
	}
	return out
}

func (a *API) allocate(c *gin.Context) {
	var b body
	if !server.Bind(c, &b) {
		return
	}
	r := allocationops.Request{Slots: b.Slots, TTLSeconds: b.TTLSeconds, Strategy: b.Strategy, Note: b.Note, Sees: server.Sight(c, auth.GroupsStart)}
	for _, s := range b.Selectors {
		r.Selectors = append(r.Selectors, allocationops.Selector(s))
	}
	dry := server.DryRun(c)
	got, err := a.operations.Allocate(c.Request.Context(), server.Actor(c), r, dry)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.operations.Snapshot()
	if dry {
		i := got.Instance
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "claim", "instanceId": i.Intent.Name, "uid": i.Intent.ID, "group": i.Intent.Group, "slots": b.Slots})
		return
	}
	c.Header("Location", "/api/v1/allocations/"+got.ID)
	c.JSON(http.StatusCreated, shownOf(s, got))
}

func (a *API) list(c *gin.Context) {
	s, group := a.operations.Snapshot(), fleet.GroupName(c.Query("group"))
	all, sees := []allocationops.Allocation{}, server.Sight(c, auth.GroupsView)
	for id, claims := range s.Claims.All() {
		i, ok := s.Instances.Get(id)
		if !ok || group != "" && i.Intent.Group != group || sees != nil && !sees(i.Intent.Group) {
			continue
		}
		for _, claim := range claims.Of(i) {
			all = append(all, allocationops.Allocation{Claim: claim, Instance: i})
		}
	}
	server.SendPage(c, all, resource.LargePage, func(one allocationops.Allocation) shown { return shownOf(s, one) })
}

func (a *API) get(c *gin.Context) {
	s := a.operations.Snapshot()
	got, err := allocationops.Find(s, c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, shownOf(s, got))
}

func (a *API) renew(c *gin.Context) {
	var b struct {
		TTLSeconds *int `json:"ttlSeconds"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.TTLSeconds == nil {
		server.Fail(c, errs.Field("ttlSeconds", "is missing: set how many seconds from now the allocation ends, at most %d, or 0 for no end", allocation.MaxTTLSeconds))
		return
	}
	got, err := a.operations.RenewAllocation(c.Request.Context(), server.Actor(c), c.Param("id"), *b.TTLSeconds)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, shownOf(a.operations.Snapshot(), got))
}

func (a *API) release(c *gin.Context) {
	dry := server.DryRun(c)
	err := a.operations.ReleaseAllocation(c.Request.Context(), server.Actor(c), c.Param("id"), dry)
	if err == nil && dry {
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "release", "allocation": c.Param("id")})
		return
	}
	resource.SendDeleted(c, err)
}
