package system

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/client"
)

// simulation is the answer of a scheduler to a question.
type simulation struct {
	Question client.Question `json:"question"`
	// Scheduler is the replica that answered.
	Scheduler string `json:"scheduler"`
	client.Simulation
}

// simulate asks the scheduler what would happen. It changes nothing.
func (a *API) simulate(c *gin.Context) {
	var q client.Question
	if !server.Bind(c, &q) {
		return
	}
	if q.Place != nil && q.Place.Spec != nil {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "place.spec", Message: "is not accepted here: to try a change of the group, make it as a dry run (orrery diff)"})
		return
	}
	if err := q.Validate(); err != nil {
		server.Fail(c, err)
		return
	}
	out, replica, err := a.cfg.Schedulers.Simulate(c.Request.Context(), q)
	switch {
	case errs.Is(err, errs.Exhausted):
		server.Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Message: errs.MessageOf(err), RetryAfter: time.Second,
		})
	case err != nil:
		server.Fail(c, err)
	default:
		c.JSON(http.StatusOK, simulation{Question: q, Scheduler: replica, Simulation: out})
	}
}
