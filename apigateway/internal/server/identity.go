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
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// callerKey is where a request's context has who makes it.
type callerKey struct{}

// asking is who makes a request. It is never changed.
type asking struct {
	by operate.Actor
	// who is there when known is true.
	who   auth.Identity
	known bool
	// own is the instance that asks with its own token; nil for other callers.
	own *fleet.Instance
}

// asked is who makes the request; the zero value before anybody looked.
func asked(c *gin.Context) *asking {
	if a, ok := c.Request.Context().Value(callerKey{}).(*asking); ok {
		return a
	}
	return &asking{}
}

// note has the request made by somebody from here on.
func note(c *gin.Context, a *asking) {
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callerKey{}, a))
}

// Identity is who makes the request; ok is false on public routes without a token.
func Identity(c *gin.Context) (auth.Identity, bool) {
	a := asked(c)
	return a.who, a.known
}

// OwnInstance is the instance that makes the request with its own token; "" for other callers,
// and on routes that are not for instances.
func OwnInstance(c *gin.Context) fleet.InstanceID {
	if i := asked(c).own; i != nil {
		return i.Intent.ID
	}
	return ""
}

// OwnGroup is the group of OwnInstance; "" for other callers. It stays the same when the
// instance ends during the request: the instance never becomes a caller that may see more.
func OwnGroup(c *gin.Context) fleet.GroupName {
	if i := asked(c).own; i != nil {
		return i.Intent.Group
	}
	return ""
}

// Actor is who makes the request, for the records.
func Actor(c *gin.Context) operate.Actor { return asked(c).by }

// Allowed reports whether the caller has a permission beside the route's own.
func Allowed(c *gin.Context, p auth.Permission) bool {
	who, ok := Identity(c)
	return ok && who.Can(p)
}

// Shown is what of values that not everybody is shown the caller is.
func Shown(c *gin.Context) fleet.Visibility {
	who, _ := Identity(c)
	return who.Shown()
}

// guard finds out who asks, counts those who do not say, and refuses who may not.
func (s *Server) guard(c *gin.Context) {
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
	by := operate.Actor{User: who.User, ID: who.UserID, Role: who.Role, TokenID: who.TokenID, IP: c.ClientIP(), RequestID: RequestID(c)}
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
	case err != nil && !probe(c.FullPath()):
		if !s.withinAddress(c, s.anonymous, anonymously) {
			return
		}
	case err == nil && !s.withinUser(c, who):
		return
	case err == nil && s.routeOf(c).Tickets && !s.within(c, "tickets", "of "+who.User, s.tickets.allow(who.User)):
		return
	}
	switch {
	case demand.Open(), demand.caller == ticketHolder: // 404 and 405 come after
	case err != nil:
		c.Header("WWW-Authenticate", `Bearer realm="orrery"`)
		Fail(c, err)
	case demand.caller == nobody:
		Fail(c, errs.New(errs.Denied, "nobody may use this route"))
	default:
		require(c, who, demand.permissions...)
	}
}

// own lets an instance through that sends its own token; renewing, also one that can only be
// exchanged any more.
func (s *Server) own(c *gin.Context, renewing bool) {
	i := s.cfg.Auth.InstanceOf(c.GetHeader("Authorization"))
	if renewing && i == nil {
		_, i = s.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	}
	if i == nil {
		if s.withinAddress(c, s.anonymous, anonymously) {
			c.Header("WWW-Authenticate", `Bearer realm="orrery"`)
			Fail(c, errs.New(errs.Unauthenticated, "send the token this instance got in its environment, as Authorization: Bearer <token>, or a short one that was refreshed in time; it is good while the instance lives, until it or its node is revoked"))
		}
		return
	}
	by := operate.Actor{User: actorOf(i), IP: c.ClientIP(), RequestID: RequestID(c)}
	note(c, &asking{by: by, own: i})
	s.withinInstance(c, by.User)
}

// actorOf is the name that an instance acts under.
func actorOf(i *fleet.Instance) string { return fleet.InstanceActor(i.Intent.ID) }

func require(c *gin.Context, who auth.Identity, permissions ...auth.Permission) {
	for _, p := range permissions {
		if !who.Can(p) {
			Fail(c, errs.New(errs.Denied, "%s", who.Lacks(p)))
			return
		}
	}
}

// instance judges a request that an instance makes with its own token on a route that others
// use too. It counts as the instance's, never as anonymous.
func (s *Server) instance(c *gin.Context, d Demand, i *fleet.Instance) {
	from := &asking{by: operate.Actor{User: actorOf(i), IP: c.ClientIP(), RequestID: RequestID(c)}}
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
		Fail(c, errs.New(errs.Denied, "the own token of an instance may not do this: send an API token, or the token of a login"))
	}
}

// isNamed reports whether the path names an instance as :id.
func (s *Server) isNamed(c *gin.Context, i *fleet.Instance) bool {
	named, ok := s.cfg.View.Snapshot().Find(c.Param("id"))
	return ok && named.Intent.ID == i.Intent.ID
}

// probe reports whether a route is for load balancers, who ask often and have no token.
func probe(route string) bool {
	switch route {
	case "/livez", "/readyz", "/health", "/ready":
		return true
	}
	return false
}

const anonymously = "requests without a valid token"

// withinAddress counts a request of an address and refuses it with 429 when they are too many.
func (s *Server) withinAddress(c *gin.Context, l *limiter[netip.Addr], what string) bool {
	return s.within(c, what, "from your address", l.allow(caller(c.ClientIP())))
}

// withinUser counts a request of a user, and of a PUBLIC token.
func (s *Server) withinUser(c *gin.Context, who auth.Identity) bool {
	if who.Public && !s.within(c, "requests", "with this PUBLIC token", s.public.allow(who.TokenID)) {
		return false
	}
	return s.within(c, "requests", "of "+who.User, s.users.allow(who.User))
}

// Instances are let do what takes so many requests of one in so long at this gateway: a proxy
// that all its players come back to at once sends two for each.
const (
	instanceLimit = 2000
	instanceSpan  = 10 * time.Second
)

// withinInstance counts a request of an instance, by the name that it acts under.
func (s *Server) withinInstance(c *gin.Context, actor string) bool {
	return s.within(c, "requests", "of this instance", s.instances.allow(actor))
}

// WithinName counts an attempt to log in under a user name; false means that there were too
// many and the request was answered.
func (s *Server) WithinName(c *gin.Context, name string) bool {
	return s.within(c, "logins", "under this user name", s.names.allow(sha256.Sum256([]byte(strings.ToLower(name)))))
}

// pictureLimit is how many pictures of a user each gateway takes in an hour. It is not shared
// out: what it bounds is disk, and a browser stays at one gateway.
const pictureLimit = 10

// alone is the count of gateways for a limit that each has for itself.
func alone() int { return 1 }

// WithinPictures counts a picture of the user with an id; false means that there were too
// many and the request was answered.
func (s *Server) WithinPictures(c *gin.Context, user string) bool {
	counted := s.pictures.allow(user)
	if counted.over {
		s.limited(c, "pictures", "too many pictures of this user: try again in an hour", counted.wait)
	}
	return !counted.over
}

// within refuses a request with 429 that was too many by a count.
func (s *Server) within(c *gin.Context, what, whose string, counted verdict) bool {
	if counted.over {
		s.limited(c, what, "too many "+what+" "+whose+": wait a moment", counted.wait)
	}
	return !counted.over
}

// limited refuses what was too many until a time is over.
func (s *Server) limited(c *gin.Context, what, message string, wait time.Duration) {
	s.metrics.limited.WithLabelValues(what).Inc()
	Refuse(c, wire.Reply{Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: max(wait, time.Second), Message: message})
}
