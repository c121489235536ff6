package server

import (
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Locator finds the group of the object that a path names.
type Locator struct {
	// What names the kind of object.
	What string
	// Group returns false if the object does not exist.
	Group func(*view.Snapshot, *gin.Context) (fleet.GroupName, bool)
}

// Locators of the usual paths: an instance as :id, and a group as :name.
var (
	InstanceInPath = &Locator{"instance", func(s *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
		i, ok := s.Find(c.Param("id"))
		if !ok {
			return "", false
		}
		return i.Intent.Group, true
	}}
	GroupInPath = &Locator{"group", func(_ *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
		return fleet.GroupName(c.Param("name")), true
	}}
)

// In declares that the route concerns one object of a group: it also admits callers who have the
// permissions in that group. Identity, Allowed and Shown are then about that group. The handler must
// not act on other groups; see AllowedIn.
func (r Route) In(l *Locator) Route {
	r.locator = l
	return r
}

// AllIn is In for several routes.
func AllIn(l *Locator, routes ...Route) []Route {
	for n := range routes {
		routes[n].locator = l
	}
	return routes
}

// Among declares that the route concerns objects of many groups: it also admits callers who may have
// the permissions in some of them. The handler must leave out the groups that Sight excludes.
func (r Route) Among() Route {
	r.among = true
	return r
}

// Located returns the kind of object that an In route concerns; "" for other routes.
func (r Route) Located() string {
	if r.locator == nil {
		return ""
	}
	return r.locator.What
}

// IsAmong reports whether the route was declared with Among.
func (r Route) IsAmong() bool { return r.among }

// permit checks the permissions that a route requires. Bindings count only where the route declares how
// they apply.
func (s *Server) permit(c *gin.Context, r *Route, from *asking) {
	permissions := r.Demand.permissions
	if from.who.Scoped() {
		from.seen = s.cfg.View.Snapshot()
		switch {
		case r.locator != nil:
			s.permitIn(c, r, from)
			return
		case r.among && from.who.Somewhere(permissions...):
			return
		}
	}
	require(c, from.who, permissions...)
}

// permitIn is permit for an object of a group. An object that the caller cannot see is answered like one
// that does not exist.
func (s *Server) permitIn(c *gin.Context, r *Route, from *asking) {
	name, exists := r.locator.Group(from.seen, c)
	in, bound := from.who, false
	if exists {
		in, bound = from.who.In(from.seen, name)
	}
	if !in.Has(r.Demand.permissions...) && !bound && !in.Can(auth.GroupsView) && !in.Can(auth.InstancesView) {
		Fail(c, errs.New(errs.NotFound, "there is no such %s", r.locator.What))
		return
	}
	from.in = &in
	require(c, in, r.Demand.permissions...)
}

// Sight returns which groups the caller has permissions in; nil for all of them.
func Sight(c *gin.Context, permissions ...auth.Permission) func(fleet.GroupName) bool {
	a := asked(c)
	if a.seen == nil || a.who.Has(permissions...) {
		return nil
	}
	sees := map[fleet.GroupName]bool{}
	return func(g fleet.GroupName) bool {
		yes, known := sees[g]
		if !known {
			in, _ := a.who.In(a.seen, g)
			yes = in.Has(permissions...)
			sees[g] = yes
		}
		return yes
	}
}

// AllowedIn is Allowed for a permission in a group.
func AllowedIn(c *gin.Context, g fleet.GroupName, p auth.Permission) bool {
	sees := Sight(c, p)
	if sees == nil {
		return asked(c).who.Can(p)
	}
	return sees(g)
}

// AllowedInFleet is Allowed for a permission in the whole fleet, on a route that concerns one group.
func AllowedInFleet(c *gin.Context, p auth.Permission) bool {
	a := asked(c)
	return a.known && a.who.Can(p)
}
