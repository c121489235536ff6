package server

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// Route is one method of one path, with its handler and its rules. Create it with Get, Post, Put, Patch
// or Delete. Path parameters use gin's syntax.
type Route struct {
	Method, Path string
	Demand       Demand
	Body         Body
	// Dry: supports ?dryRun=true. Secret: the response may have a secret that is shown only once.
	// Unmatched: If-Match is not supported. Making: supports If-None-Match: *.
	Dry, Secret, Unmatched, Making bool
	// Tickets: issues a stream ticket, which Settings.Tickets limits.
	Tickets bool
	// Audited is the audit action of a read; empty if reads are not audited or the handler audits
	// them itself.
	Audited string
	Handle  gin.HandlerFunc

	// locator and among say how permissions in some groups apply: see In and Among.
	locator *Locator
	among   bool
}

// Demand is what a route requires of its caller.
type Demand struct {
	caller      audience
	permissions []auth.Permission
	// renewing also admits an instance whose token is only good for a refresh.
	renewing bool
}

// audience is who may use a route.
type audience int

const (
	nobody audience = iota
	everybody
	loggingIn
	known
	ticketHolder
	itself
	knownOrItself
	knownOrInstance
)

// Demands other than permissions. The zero Demand admits no caller.
var (
	// Public routes need no token.
	Public = Demand{caller: everybody}
	// Login is public and counts against the limit of logins.
	Login = Demand{caller: loggingIn}
	// Anyone requires a valid token.
	Anyone = Demand{caller: known}
	// Ticketed routes authenticate the caller themselves, by ticket or token.
	Ticketed = Demand{caller: ticketHolder}
	// Own requires the own token of an instance.
	Own = Demand{caller: itself}
	// OwnRenewing is Own for the route that refreshes an instance's token.
	OwnRenewing = Demand{caller: itself, renewing: true}
)

// Needs requires a token with all the permissions.
func Needs(permissions ...auth.Permission) Demand {
	return Demand{caller: known, permissions: permissions}
}

// NeedsOrSelf is Needs, and also admits the instance that the path names as :id, with its own token.
func NeedsOrSelf(permissions ...auth.Permission) Demand {
	return Demand{caller: knownOrItself, permissions: permissions}
}

// NeedsOrInstance is Needs, and also admits every instance with its own token. The handler must
// restrict the response to what OwnGroup may see.
func NeedsOrInstance(permissions ...auth.Permission) Demand {
	return Demand{caller: knownOrInstance, permissions: permissions}
}

// Open reports whether the route works without a token.
func (d Demand) Open() bool { return d.caller == everybody || d.caller == loggingIn }

// Self reports whether the route admits instances with their own token.
func (d Demand) Self() bool {
	return d.caller == itself || d.caller == knownOrItself || d.caller == knownOrInstance
}

// Permissions returns the required permissions. The caller needs all of them. Do not modify them.
func (d Demand) Permissions() []auth.Permission { return d.permissions }

// Body describes the body that a route reads.
type Body struct {
	// Limit is the maximum size in bytes.
	Limit int64
	// Raw bodies may have any type. The others are JSON.
	Raw bool
}

// Bodies of routes. A body with a limit above wire.BodyLimit may take any time as long as data
// keeps arriving.
var (
	// JSON is the default.
	JSON = Body{Limit: wire.BodyLimit}
	// Text is a text file in JSON.
	Text = Body{Limit: TextLimit}
	// Upload is a file or an archive. Concurrent uploads are limited.
	Upload = Body{Limit: UploadLimit, Raw: true}
	// Any is a small body of any type.
	Any = Body{Limit: wire.BodyLimit, Raw: true}
)

// Get returns a route that reads only the query. It also serves HEAD unless it is Ticketed.
func Get(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodGet, path, d, h) }

// Post returns a route that creates something or performs an action. It is Unconditional by default.
func Post(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodPost, path, d, h) }

// Put returns a route that replaces something.
func Put(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodPut, path, d, h) }

// Patch returns a route that changes a part.
func Patch(path string, d Demand, h gin.HandlerFunc) Route {
	return route(http.MethodPatch, path, d, h)
}

// Delete returns a route that removes something.
func Delete(path string, d Demand, h gin.HandlerFunc) Route {
	return route(http.MethodDelete, path, d, h)
}

func route(method, path string, d Demand, h gin.HandlerFunc) Route {
	return Route{Method: method, Path: path, Demand: d, Body: JSON, Unmatched: method == http.MethodPost, Handle: h}
}

// Reads sets the body that the route reads.
func (r Route) Reads(b Body) Route {
	r.Body = b
	return r
}

// Rehearses declares support for ?dryRun=true.
func (r Route) Rehearses() Route {
	r.Dry = true
	return r
}

// ShowsOnce declares that the response may have a secret that is shown only once: it is not stored for
// retries. If only a few responses have one, handlers use ops.ShownOnce.
func (r Route) ShowsOnce() Route {
	r.Secret = true
	return r
}

// Unconditional declares that the object has no revision: If-Match is refused.
func (r Route) Unconditional() Route {
	r.Unmatched = true
	return r
}

// Conditional declares that a POST changes an object with a revision: If-Match is supported.
func (r Route) Conditional() Route {
	r.Unmatched = false
	return r
}

// Makes declares that a PUT also creates the object unless If-Match requires it to exist, and supports
// If-None-Match: *. See Condition.
func (r Route) Makes() Route {
	r.Making = true
	return r
}

// IssuesTickets declares that the route issues stream tickets.
func (r Route) IssuesTickets() Route {
	r.Tickets = true
	return r
}

// Audits makes reads appear in the audit under an action.
func (r Route) Audits(action string) Route {
	r.Audited = action
	return r
}

// Under returns the routes with base prepended to their paths.
func Under(base string, routes ...Route) []Route {
	out := slices.Clone(routes)
	for n := range out {
		out[n].Path = base + out[n].Path
	}
	return out
}

// Add mounts routes, GET routes also for HEAD unless they are streams. Like gin, it panics if a path
// is mounted twice.
func (s *Server) Add(routes ...Route) {
	for _, r := range routes {
		s.mount(r)
		if r.Method == http.MethodGet && r.Demand.caller != ticketHolder {
			r.Method = http.MethodHead
			s.mount(r)
		}
	}
}

func (s *Server) mount(r Route) {
	handle := r.Handle
	if r.Audited != "" {
		handle = func(c *gin.Context) {
			r.Handle(c)
			if c.Writer.Status() < http.StatusBadRequest {
				s.noteRead(c, r.Audited)
			}
		}
	}
	s.engine.Handle(r.Method, r.Path, handle)
	byPath := s.routes[r.Method]
	if byPath == nil {
		byPath = map[string]*Route{}
		s.routes[r.Method] = byPath
	}
	byPath[r.Path] = &r
}

// noteRead audits a read of the instance or template in the path.
func (s *Server) noteRead(c *gin.Context, action string) {
	path := cmp.Or(strings.TrimPrefix(c.Param("path"), "/"), c.Query("path"))
	if i, ok := s.cfg.View.Snapshot().Find(c.Param("id")); ok {
		s.cfg.Operations.NoteRead(Actor(c), action, "instance", string(i.Intent.ID), path)
		return
	}
	ref := content.ParseTemplateRef(c.Param("name"))
	ref.Group = cmp.Or(c.Param("group"), ref.Group)
	s.cfg.Operations.NoteRead(Actor(c), action, "template", ref.String(), path)
}

// Routes returns all mounted routes, sorted by path and method.
func (s *Server) Routes() []Route {
	var out []Route
	for method, byPath := range s.routes {
		if method == http.MethodHead {
			continue
		}
		for _, r := range byPath {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b Route) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return out
}

// noRoute applies to requests without a route, which anybody may send.
var noRoute = &Route{Demand: Public, Body: JSON}

// routeOf returns the route of a request. A route unknown to the table admits no caller.
func (s *Server) routeOf(c *gin.Context) *Route {
	path := c.FullPath()
	if path == "" {
		return noRoute
	}
	if r, ok := s.routes[c.Request.Method][path]; ok {
		return r
	}
	return &Route{Body: JSON}
}

// readable reports whether a route reads bodies of a media type: JSON, and YAML instead of it. JSON
// is also accepted without a type or as a form, which is what curl sends by default.
func (b Body) readable(contentType string) bool {
	if b.Raw || contentType == "" || isYAML(contentType) {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch media {
	case "application/json", "application/merge-patch+json", "application/x-www-form-urlencoded":
		return true
	}
	return strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}
