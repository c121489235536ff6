package server

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Route is one method of one path, and all the frame has to know of it. Make it with Get,
// Post, Put, Patch or Delete; path parameters are written as gin writes them.
type Route struct {
	Method, Path string
	Demand       Demand
	Body         Body
	// Dry is true where ?dryRun=true is understood, Secret where an answer may have a secret
	// that is shown once, Unmatched where nothing is compared with If-Match, Making where
	// If-None-Match: * has only what is not there be made.
	Dry, Secret, Unmatched, Making bool
	// Tickets is true where a user gets a ticket for a stream; Settings.Tickets bounds them.
	Tickets bool
	// Audited is the action under which a read is in the audit; empty for routes that read
	// nothing that is audited, and for those that note it themselves.
	Audited string
	Handle  gin.HandlerFunc
}

// Demand is what a route wants of its caller.
type Demand struct {
	caller      audience
	permissions []auth.Permission
	// renewing also lets in an instance whose token can only be exchanged any more.
	renewing bool
}

// audience is whom a route is for.
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

// What a route may demand beside permissions. The zero Demand lets nobody in.
var (
	// Public routes need no token.
	Public = Demand{caller: everybody}
	// Login is public too, and counted by the limit of logins.
	Login = Demand{caller: loggingIn}
	// Anyone with a good token may use the route.
	Anyone = Demand{caller: known}
	// Ticketed routes look at the caller themselves: a ticket is as good as a token.
	Ticketed = Demand{caller: ticketHolder}
	// Own routes are for an instance, which is the one whose own token is sent.
	Own = Demand{caller: itself}
	// OwnRenewing is Own for where an instance exchanges its token for another.
	OwnRenewing = Demand{caller: itself, renewing: true}
)

// Needs wants a token of somebody who has all the permissions.
func Needs(permissions ...auth.Permission) Demand {
	return Demand{caller: known, permissions: permissions}
}

// NeedsOrSelf is Needs that also lets in the instance that the path names as :id, with its
// own token.
func NeedsOrSelf(permissions ...auth.Permission) Demand {
	return Demand{caller: knownOrItself, permissions: permissions}
}

// NeedsOrInstance is Needs that also lets in every instance with its own token. The handler
// shows it only what OwnGroup may see.
func NeedsOrInstance(permissions ...auth.Permission) Demand {
	return Demand{caller: knownOrInstance, permissions: permissions}
}

// Open reports whether the route answers who sends no token.
func (d Demand) Open() bool { return d.caller == everybody || d.caller == loggingIn }

// Self reports whether the route lets an instance in with its own token.
func (d Demand) Self() bool {
	return d.caller == itself || d.caller == knownOrItself || d.caller == knownOrInstance
}

// Permissions are those the caller must have, all of them. Not to be changed.
func (d Demand) Permissions() []auth.Permission { return d.permissions }

// Body is what a route reads.
type Body struct {
	// Limit is the size of the largest body, in bytes.
	Limit int64
	// Raw bodies are of any type; the others are JSON.
	Raw bool
}

// Bodies of routes. Those that may be larger than wire.BodyLimit may take as long as they
// need, as long as something comes.
var (
	// JSON is what is read unless a route says otherwise.
	JSON = Body{Limit: wire.BodyLimit}
	// Text is a file's text in JSON.
	Text = Body{Limit: TextLimit}
	// Upload is a file or an archive; so many come at the same time and no more.
	Upload = Body{Limit: UploadLimit, Raw: true}
	// Any is a small body of any type.
	Any = Body{Limit: wire.BodyLimit, Raw: true}
)

// Get is a route that reads nothing but the query. It answers HEAD too, unless it is Ticketed.
func Get(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodGet, path, d, h) }

// Post is a route that makes something or has something done. It is Unconditional, unless
// it is said to be Conditional.
func Post(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodPost, path, d, h) }

// Put is a route that replaces.
func Put(path string, d Demand, h gin.HandlerFunc) Route { return route(http.MethodPut, path, d, h) }

// Patch is a route that changes a part.
func Patch(path string, d Demand, h gin.HandlerFunc) Route {
	return route(http.MethodPatch, path, d, h)
}

// Delete is a route that removes.
func Delete(path string, d Demand, h gin.HandlerFunc) Route {
	return route(http.MethodDelete, path, d, h)
}

func route(method, path string, d Demand, h gin.HandlerFunc) Route {
	return Route{Method: method, Path: path, Demand: d, Body: JSON, Unmatched: method == http.MethodPost, Handle: h}
}

// Reads is the route with another body.
func (r Route) Reads(b Body) Route {
	r.Body = b
	return r
}

// Rehearses is the route where ?dryRun=true answers what would happen, and nothing does.
func (r Route) Rehearses() Route {
	r.Dry = true
	return r
}

// ShowsOnce is the route where an answer may have a secret that is shown once: it is kept for
// nobody who sends the request again. Where few have one, those say so by operate.ShownOnce.
func (r Route) ShowsOnce() Route {
	r.Secret = true
	return r
}

// Unconditional is the route of what has no revision that a caller could have read: If-Match
// is refused.
func (r Route) Unconditional() Route {
	r.Unmatched = true
	return r
}

// Conditional is the route of a POST that changes what has a revision, with which If-Match
// is compared.
func (r Route) Conditional() Route {
	r.Unmatched = false
	return r
}

// Makes is the route of a PUT that also makes what is not there, unless If-Match says that
// it must be; with If-None-Match: * nothing that is there is replaced. See Condition.
func (r Route) Makes() Route {
	r.Making = true
	return r
}

// IssuesTickets is the route that gives a user a ticket for a stream.
func (r Route) IssuesTickets() Route {
	r.Tickets = true
	return r
}

// Audits is the route of a read that is in the audit, under an action.
func (r Route) Audits(action string) Route {
	r.Audited = action
	return r
}

// Under are routes below another path: what they have in common with others but their
// beginning is written once.
func Under(base string, routes ...Route) []Route {
	out := slices.Clone(routes)
	for n := range out {
		out[n].Path = base + out[n].Path
	}
	return out
}

// Add mounts routes, those of GET for HEAD too; a stream has no end that could be left out. It
// panics, as gin does, when a path leads to two of them.
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
		byPath = map[string]*mounted{}
		s.routes[r.Method] = byPath
	}
	byPath[r.Path] = &mounted{Route: r}
}

// noteRead audits a read of what the path names: an instance, else a template.
func (s *Server) noteRead(c *gin.Context, action string) {
	path := cmp.Or(strings.TrimPrefix(c.Param("path"), "/"), c.Query("path"))
	if i, ok := s.cfg.View.Snapshot().Find(c.Param("id")); ok {
		s.cfg.Operations.NoteRead(Actor(c), action, "instance", string(i.Intent.ID), path)
		return
	}
	ref := fleet.ParseTemplateRef(c.Param("name"))
	ref.Group = cmp.Or(c.Param("group"), ref.Group)
	s.cfg.Operations.NoteRead(Actor(c), action, "template", ref.String(), path)
}

// Routes are all routes that were added, by path and method.
func (s *Server) Routes() []Route {
	var out []Route
	for method, byPath := range s.routes {
		if method == http.MethodHead {
			continue
		}
		for _, r := range byPath {
			out = append(out, r.Route)
		}
	}
	slices.SortFunc(out, func(a, b Route) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return out
}

// noRoute is what a request to nowhere is judged by: it may be answered to everybody.
var noRoute = &Route{Demand: Public, Body: JSON}

// routeOf is the route a request goes to. One that gin knows and the table does not is
// open to nobody.
func (s *Server) routeOf(c *gin.Context) *Route {
	path := c.FullPath()
	if path == "" {
		return noRoute
	}
	if m, ok := s.routes[c.Request.Method][path]; ok {
		return &m.Route
	}
	return &Route{Body: JSON}
}

// readable reports whether a route reads bodies of a media type. JSON is also read from
// who says nothing, or that it is a form, as curl does of all it is given.
func (b Body) readable(contentType string) bool {
	if b.Raw || contentType == "" {
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
