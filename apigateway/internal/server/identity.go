package server

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server/ratelimit"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// callerKey is the context key of the caller.
type callerKey struct{}

// asking is the caller of a request. It is immutable once the handler runs.
type asking struct {
	by txn.Actor
	// who is valid only if known is true.
	who   auth.Identity
	known bool
	// own is the instance that sent its own token; nil for other callers.
	own *fleet.Instance
	// seen is the snapshot in which bindings are matched; nil for callers without bindings.
	seen *view.Snapshot
	// in is who with the permissions in the group that the route concerns; nil on other routes.
	in *auth.Identity
}

// asked returns the caller, or the zero value before authentication.
func asked(c *gin.Context) *asking {
	if a, ok := c.Request.Context().Value(callerKey{}).(*asking); ok {
		return a
	}
	return &asking{}
}

// note sets the caller of the request.
func note(c *gin.Context, a *asking) {
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callerKey{}, a))
}

// Identity returns the caller. ok is false on public routes without a token.
func Identity(c *gin.Context) (auth.Identity, bool) {
	a := asked(c)
	if a.in != nil {
		return *a.in, a.known
	}
	return a.who, a.known
}

// OwnInstance returns the instance that sent its own token; "" for other callers and on routes that
// are not for instances.
func OwnInstance(c *gin.Context) fleet.InstanceID {
	if i := asked(c).own; i != nil {
		return i.Intent.ID
	}
	return ""
}

// OwnGroup returns the group of OwnInstance; "" for other callers. It does not change when the
// instance ends during the request, so the instance never gets to see more.
func OwnGroup(c *gin.Context) fleet.GroupName {
	if i := asked(c).own; i != nil {
		return i.Intent.Group
	}
	return ""
}

// Actor returns the caller for the audit.
func Actor(c *gin.Context) txn.Actor { return asked(c).by }

// Allowed reports whether the caller has a permission in addition to the route's own.
func Allowed(c *gin.Context, p auth.Permission) bool {
	who, ok := Identity(c)
	return ok && who.Can(p)
}

// Shown returns which protected values the caller may see.
func Shown(c *gin.Context) content.Visibility {
	who, _ := Identity(c)
	return who.Shown()
}

// authorize authenticates the caller, applies the rate limits and checks the route's demand.
func (s *Server) authorize(c *gin.Context) {
	demand := s.routeOf(c).Demand
	if demand.caller == itself {
		s.own(c, demand.renewing)
		return
	}
	header := authorization(c.Request)
	who, err := s.cfg.Auth.Authenticate(c.Request.Context(), header)
	if err != nil {
		if i := s.cfg.Auth.InstanceOf(header); i != nil {
			s.instance(c, demand, i)
			return
		}
	}
	by := txn.Actor{User: who.User, ID: who.UserID, Role: who.Role, TokenID: who.TokenID, IP: c.ClientIP(), RequestID: RequestID(c)}
	from := &asking{by: by, known: err == nil}
	if err == nil {
		from.who = who
	}
	note(c, from)
	if err == nil && who.UserID != "" {
		s.cfg.Operations.NoteAddress(by, who)
	}
	switch {
	case demand.caller == loggingIn:
		if !s.withinAddress(c, s.logins, "logins") {
			return
		}
	case err != nil && !constant(c.FullPath()):
		if !s.withinAddress(c, s.anonymous, anonymously) {
			return
		}
	case err == nil && !s.withinUser(c, who):
		return
	case err == nil && s.routeOf(c).Tickets && !within(s, c, s.tickets, who.User, "tickets", "of "+who.User):
		return
	}
	switch {
	case demand.Open(), demand.caller == ticketHolder: // 404 and 405 are decided later
		if err == nil && who.Scoped() {
			from.seen = s.cfg.View.Snapshot()
		}
	case err != nil:
		c.Header("WWW-Authenticate", `Bearer realm="orrery"`)
		Fail(c, err)
	case demand.caller == nobody:
		Fail(c, errs.New(errs.Denied, "this route is not available"))
	default:
		s.permit(c, s.routeOf(c), from)
	}
}

// own authenticates an instance by its own token. With renewing, it also accepts a token that is
// only good for a refresh.
func (s *Server) own(c *gin.Context, renewing bool) {
	i := s.cfg.Auth.InstanceOf(c.GetHeader("Authorization"))
	if renewing && i == nil {
		_, i = s.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	}
	if i == nil {
		if s.withinAddress(c, s.anonymous, anonymously) {
			c.Header("WWW-Authenticate", `Bearer realm="orrery"`)
			Fail(c, errs.New(errs.Unauthenticated, "send the token from the instance's environment as Authorization: Bearer <token>, or a short token that was refreshed in time; a token is valid until the instance ends, or until the token or the node is revoked"))
		}
		return
	}
	by := txn.Actor{User: actorOf(i), IP: c.ClientIP(), RequestID: RequestID(c)}
	note(c, &asking{by: by, own: i})
	s.withinInstance(c, by.User)
}

// actorOf returns the actor name of an instance.
func actorOf(i *fleet.Instance) string { return account.InstanceActor(i.Intent.ID) }

func require(c *gin.Context, who auth.Identity, permissions ...auth.Permission) {
	for _, p := range permissions {
		if !who.Can(p) {
			Fail(c, errs.New(errs.Denied, "%s", who.Lacks(p)))
			return
		}
	}
}

// instance handles a request with an instance's own token on a route that others use too. It counts
// against the instance's limit, not as anonymous.
func (s *Server) instance(c *gin.Context, d Demand, i *fleet.Instance) {
	from := &asking{by: txn.Actor{User: actorOf(i), IP: c.ClientIP(), RequestID: RequestID(c)}}
	_, ticket := Ticket(c)
	own := d.caller == knownOrInstance || d.caller == knownOrItself && s.isNamed(c, i)
	if own {
		from.own = i
	}
	note(c, from)
	switch {
	case d.caller == loggingIn:
		s.withinAddress(c, s.logins, "logins")
	case !s.withinInstance(c, from.by.User), own, d.Open(), d.caller == ticketHolder && ticket:
	default:
		Fail(c, errs.New(errs.Denied, "an instance may not do this with its own token: send an API token or the token of a login"))
	}
}

// isNamed reports whether the path parameter :id names the instance.
func (s *Server) isNamed(c *gin.Context, i *fleet.Instance) bool {
	named, ok := s.cfg.View.Snapshot().Find(c.Param("id"))
	return ok && named.Intent.ID == i.Intent.ID
}

// constant reports whether a route sends the same to everybody: a probe, or a file of the dashboard,
// which consists of many. Such requests do not count against the limit of an address.
func constant(route string) bool { return probe(route) || route == "/" || route == "/ui/*file" }

// probe reports whether a route is for load balancers, which send many requests without a token.
func probe(route string) bool {
	switch route {
	case "/livez", "/readyz", "/health", "/ready":
		return true
	}
	return false
}

const anonymously = "requests without a valid token"

// withinAddress counts a request of an address and answers 429 above the limit.
func (s *Server) withinAddress(c *gin.Context, l *ratelimit.Limiter[netip.Addr], what string) bool {
	return within(s, c, l, callerAddress(c.ClientIP()), what, "from your address")
}

// withinUser counts a request of a user or a PUBLIC token.
func (s *Server) withinUser(c *gin.Context, who auth.Identity) bool {
	if who.Public && !within(s, c, s.public, who.TokenID, "requests", "with this PUBLIC token") {
		return false
	}
	return within(s, c, s.users, who.User, "requests", "of "+who.User)
}

// Limit of an instance's requests to this gateway. A proxy sends two requests for each player when
// all its players reconnect at once.
const (
	instanceLimit  = 2000
	instanceWindow = 10 * time.Second
)

// withinInstance counts a request of an instance, by its actor name.
func (s *Server) withinInstance(c *gin.Context, actor string) bool {
	return within(s, c, s.instances, actor, "requests", "of this instance")
}

// WithinName counts a login attempt for a user name. It answers 429 and returns false above the limit.
func (s *Server) WithinName(c *gin.Context, name string) bool {
	return within(s, c, s.names, sha256.Sum256([]byte(strings.ToLower(name))), "logins", "under this user name")
}

// pictureLimit limits the uploads of one user's pictures per hour and gateway. It is not divided by the
// number of gateways: it protects the disk, and a browser stays at one gateway.
const pictureLimit = 10

// WithinPictures counts an upload of a user's picture. It answers 429 and returns false above the limit.
func (s *Server) WithinPictures(c *gin.Context, user string) bool {
	wait, ok := s.pictures.Allow(user)
	if !ok {
		s.limited(c, "pictures", "too many pictures of this user: try again in an hour", wait)
	}
	return ok
}

// within counts a request of a caller. Above the limit it answers 429 and returns false.
func within[K comparable](s *Server, c *gin.Context, l *ratelimit.Limiter[K], caller K, what, whose string) bool {
	wait, ok := l.Allow(caller)
	if !ok {
		s.limited(c, what, "too many "+what+" "+whose+": wait a moment", wait)
	}
	return ok
}

// callerAddress returns the address that requests are counted by: for IPv6 the /64, which one host owns.
func callerAddress(ip string) netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.Addr{}
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// limited answers 429.
func (s *Server) limited(c *gin.Context, what, message string, wait time.Duration) {
	s.metrics.limited.WithLabelValues(what).Inc()
	Refuse(c, wire.Reply{Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: max(wait, time.Second), Message: message})
}
