package groups

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// replayBody are the scaling rules of a replay. A field that is not given is as in the group.
type replayBody struct {
	MinInstances          *int                  `json:"minInstances"`
	MaxInstances          *int                  `json:"maxInstances"`
	MaxPlayers            *int                  `json:"maxPlayers"`
	ScaleUpThreshold      *float64              `json:"scaleUpThreshold"`
	ScaleDownAfterSeconds *int                  `json:"scaleDownAfterSeconds"`
	ScaleCooldownSeconds  *int                  `json:"scaleCooldownSeconds"`
	ScaleBufferSlots      *int                  `json:"scaleBufferSlots"`
	ScaleBufferPercent    *int                  `json:"scaleBufferPercent"`
	ScalingPolicies       *[]scalepolicy.Policy `json:"scalingPolicies"`
	ScalingCombine        *scalepolicy.Combine  `json:"scalingCombine"`
}

// replay is what an enforcer says about other rules.
type replay struct {
	Group fleet.GroupName `json:"group"`
	// Enforcer is the replica that answered.
	Enforcer string `json:"enforcer"`
	client.Replay
}

// onto sets the given fields in a spec.
func (b replayBody) onto(s *fleet.GroupSpec) {
	groupfields.Set(&s.Scaling.Min, b.MinInstances)
	groupfields.Shared{
		MaxInstances: b.MaxInstances, MaxPlayers: b.MaxPlayers, ScaleUpThreshold: b.ScaleUpThreshold, ScaleDownAfterSeconds: b.ScaleDownAfterSeconds,
		ScaleCooldownSeconds: b.ScaleCooldownSeconds, ScaleBufferSlots: b.ScaleBufferSlots, ScaleBufferPercent: b.ScaleBufferPercent,
		ScalingPolicies: b.ScalingPolicies, ScalingCombine: b.ScalingCombine,
	}.Apply(s)
}

// replayScaling asks the enforcer what other scaling rules would have decided in the recorded situations
// of a group. It changes nothing.
func (a *API) replayScaling(c *gin.Context) {
	var b replayBody
	if !server.Bind(c, &b) {
		return
	}
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	spec := g.Spec
	b.onto(&spec)
	if problems := append(spec.ValidateChange(g.Spec), groupops.PolicyProblems(s, &g.Spec, spec)...); len(problems) > 0 {
		server.Fail(c, txn.JoinProblems(problems))
		return
	}
	if ok, why := scaling.Automatic(&spec); !ok {
		server.Fail(c, errs.New(errs.Conflict, "there is nothing to replay, because the group does not scale automatically: %s", why))
		return
	}
	usual := playersOf(s, g)
	groupfields.Set(&usual, b.MaxPlayers)
	out, replica, err := a.cfg.Enforcers.Replay(c.Request.Context(), g.Name, client.ReplayQuestion{Scaling: spec.Scaling, MaxPlayers: usual})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, replay{Group: g.Name, Enforcer: replica, Replay: out})
}
