package rest

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// loginView is a login of a user that has not ended.
type loginView struct {
	ID string `json:"id"`
	// Current is true for the login whose token is sent.
	Current     bool       `json:"current"`
	SignedInAt  time.Time  `json:"signedInAt"`
	RefreshedAt *time.Time `json:"refreshedAt"` // null when it was not
	ExpiresAt   time.Time  `json:"expiresAt"`
	IPAddress   string     `json:"ipAddress"`
	UserAgent   string     `json:"userAgent"`
}

// listLogins shows a user's logins, the newest first.
func (a *API) listLogins(c *gin.Context) {
	if !own(c, auth.UsersView) {
		return
	}
	s := a.snapshot()
	u, ok := s.Users.Get(userName(c))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no user %s", c.Param("name")))
		return
	}
	who, _ := server.Identity(c)
	server.SendPage(c, operate.Logins(s, u, a.cfg.Now()), pageFew, func(l *fleet.Login) loginView {
		out := loginView{
			ID: l.ID, Current: l.ID == who.Credential().Login, SignedInAt: l.SignedInAt, ExpiresAt: l.Ends(), IPAddress: l.IPAddress, UserAgent: l.UserAgent,
		}
		if !l.RefreshedAt.IsZero() {
			out.RefreshedAt = &l.RefreshedAt
		}
		return out
	})
}

// endLogin ends one login of a user.
func (a *API) endLogin(c *gin.Context) {
	if !own(c, auth.UsersUpdate) {
		return
	}
	who, _ := server.Identity(c)
	a.ended(c, a.cfg.Operations.EndLoginOf(c.Request.Context(), server.Actor(c), userName(c), c.Param("id"), who.Permissions))
}

// endLogins ends all logins of a user, that of the request too.
func (a *API) endLogins(c *gin.Context) {
	if !own(c, auth.UsersUpdate) {
		return
	}
	who, _ := server.Identity(c)
	a.ended(c, a.cfg.Operations.EndLogins(c.Request.Context(), server.Actor(c), userName(c), who.Permissions))
}

func (a *API) ended(c *gin.Context, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
