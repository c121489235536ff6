package api

import (
	"net/http"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxReason bounds the reason of a shutdown, in characters.
const maxReason = 200

func shutdown(node fleet.NodeID, end func(reason string)) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		var body client.Shutdown
		if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
			return nil, err
		}
		switch {
		case utf8.RuneCountInString(body.Reason) > maxReason, validate.HasControl(body.Reason):
			return nil, errs.Field("reason", "must be at most %d characters without control characters", maxReason)
		case body.Node != node:
			return nil, errs.New(errs.Conflict, "this is the agent of node %s and not of the requested one, so it does not end: make each agent advertise an address of its own", node)
		}
		end(body.Reason)
		return nil, nil
	})
}
