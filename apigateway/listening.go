package apigateway

import (
	"cmp"
	"context"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// whileListening returns which events a caller may see, and a context that ends when that has changed.
func (g *Gateway) whileListening(ctx context.Context, by account.Credential) (events.Scope, context.Context, func(), error) {
	if by.Instance != "" {
		ctx, leave, err := g.auth.WhileInstance(ctx, by)
		return events.InstanceScope(g.cfg.View.Snapshot, by.Instance), ctx, leave, err
	}
	who, ctx, leave, err := g.auth.WhileSomewhere(ctx, by, auth.EventsStream)
	switch {
	case err != nil:
		return events.Scope{}, nil, nil, err
	case who.Can(auth.EventsStream):
		return events.Scope{Event: func(e events.Event) bool { return e.Needs == "" || g.auth.MayIn(by, e.Group, e.Needs) == nil }}, ctx, leave, nil
	}
	return events.GroupScope(g.cfg.View.Snapshot, func(s *view.Snapshot, group fleet.GroupName, p auth.Permission) bool {
		in, _ := who.In(s, group)
		return in.Can(cmp.Or(p, auth.EventsStream))
	}), ctx, leave, nil
}

// streamCaller returns the credential for opening a stream without a ticket.
func streamCaller(c *gin.Context) (account.Credential, error) {
	who, ok := server.Identity(c)
	switch {
	case !ok:
		return account.Credential{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
	case !who.Somewhere(auth.EventsStream):
		return account.Credential{}, errs.New(errs.Denied, "%s", who.Lacks(auth.EventsStream))
	}
	return who.Credential(), nil
}
