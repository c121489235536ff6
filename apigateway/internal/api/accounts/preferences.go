package accounts

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// accountRoutes serve what users manage for themselves. Other callers need users.view or
// users.update.
func (a *API) accountRoutes() []server.Route {
	return append(a.avatarRoutes(), server.Under("/api/v1/users/:name",
		server.Get("/preferences", server.Anyone, a.getPreferences),
		server.Put("/preferences", server.Anyone, a.putPreferences).Rehearses(),
		server.Put("/minecraft", server.Anyone, a.linkPlayer).Rehearses(),
		server.Delete("/minecraft", server.Anyone, a.unlinkPlayer).Rehearses(),
		server.Get("/sessions", server.Anyone, a.listLogins),
		server.Delete("/sessions", server.Anyone, a.endLogins).Unconditional(),
		server.Delete("/sessions/:id", server.Anyone, a.endLogin).Unconditional(),
	)...)
}

// own reports whether the caller may manage the user in the path: with permission p, or as that
// user and logged in. Otherwise it answers the request and returns false.
func own(c *gin.Context, p auth.Permission) bool {
	who, _ := server.Identity(c)
	if who.Can(p) || userName(c) == who.User && who.TokenID == "" {
		return true
	}
	server.Fail(c, errs.New(errs.Denied, "%s; without it you can manage only your own account, with a login", who.Lacks(p)))
	return false
}

// defaultPreferences are the preferences of a user who stored none, in the form of PrexorCloud's
// dashboard.
func defaultPreferences() gin.H {
	notified := gin.H{}
	for _, name := range []string{
		"INSTANCE_SCHEDULED", "INSTANCE_STARTED", "INSTANCE_STOPPED", "INSTANCE_STATE_CHANGED", "PLAYER_CONNECTED", "PLAYER_DISCONNECTED",
		"GROUP_UPDATED", "DEPLOYMENT_CREATED", "TEMPLATE_UPDATED",
	} {
		notified[name] = false
	}
	for _, name := range []string{
		"NODE_CONNECTED", "NODE_DISCONNECTED", "INSTANCE_CRASHED", "GROUP_CREATED", "GROUP_DELETED", "GROUP_CRASH_LOOP", "DEPLOYMENT_COMPLETED",
		"DEPLOYMENT_ROLLED_BACK",
	} {
		notified[name] = true
	}
	return gin.H{"notifications": notified, "defaultLandingPage": "/", "theme": "system", "sidebarExpanded": true}
}

func (a *API) getPreferences(c *gin.Context) {
	if !own(c, auth.UsersView) {
		return
	}
	p, err := a.cfg.Operations.Preferences(c.Request.Context(), userName(c))
	switch {
	case err != nil:
		server.Fail(c, err)
	case p.ModRev == 0:
		c.JSON(http.StatusOK, defaultPreferences())
	default:
		server.ETag(c, p.ModRev)
		c.JSON(http.StatusOK, p.Value)
	}
}

func (a *API) putPreferences(c *gin.Context) {
	var value map[string]json.RawMessage
	if !own(c, auth.UsersUpdate) || !server.Bind(c, &value) {
		return
	}
	match, err := server.IfMatch(c)
	if kept, _ := json.Marshal(value); err == nil && len(kept) > account.MaxPreferences {
		err = errs.New(errs.TooLarge, "the preferences have %d bytes, the limit is %d", len(kept), account.MaxPreferences)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	who, _ := server.Identity(c)
	rev, err := a.cfg.Operations.WritePreferences(c.Request.Context(), server.Actor(c), userName(c), accountops.PreferencesWrite{
		Value: value, IfMatch: match, DryRun: server.DryRun(c), May: who.Permissions,
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !server.DryRun(c) {
		server.ETag(c, rev)
	}
	c.JSON(http.StatusOK, value)
}

// linkPlayer links a user to a player of the game.
func (a *API) linkPlayer(c *gin.Context) {
	var b struct {
		UUID *string `json:"uuid"`
		Name *string `json:"name"`
	}
	if !own(c, auth.UsersUpdate) || !server.Bind(c, &b) {
		return
	}
	for _, required := range []struct {
		field string
		value *string
	}{{"uuid", b.UUID}, {"name", b.Name}} {
		if required.value == nil {
			server.Fail(c, errs.Field(required.field, "is missing"))
			return
		}
	}
	id, err := players.ParsePlayerID(*b.UUID)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if u, ok := a.writeLink(c, accountops.LinkWrite{ID: id, Name: *b.Name}); ok {
		c.JSON(http.StatusOK, userOf(a.cfg.Operations.Snapshot(), &u))
	}
}

func (a *API) unlinkPlayer(c *gin.Context) {
	if !own(c, auth.UsersUpdate) {
		return
	}
	u, ok := a.writeLink(c, accountops.LinkWrite{})
	switch {
	case ok && server.DryRun(c):
		c.JSON(http.StatusOK, userOf(a.cfg.Operations.Snapshot(), &u))
	case ok:
		c.Status(http.StatusNoContent)
	}
}

// writeLink returns the changed user. It returns false if it answered the request.
func (a *API) writeLink(c *gin.Context, w accountops.LinkWrite) (u account.User, ok bool) {
	who, _ := server.Identity(c)
	w.May, w.DryRun = who.Permissions, server.DryRun(c)
	var err error
	if w.IfMatch, err = server.IfMatch(c); err == nil {
		u, err = a.cfg.Operations.LinkPlayer(c.Request.Context(), server.Actor(c), userName(c), w)
	}
	if err != nil {
		server.Fail(c, err)
		return u, false
	}
	if !w.DryRun {
		server.ETag(c, u.ModRev)
	}
	return u, true
}
