package accounts

import (
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// loginView is an active login in an answer.
type loginView struct {
	ID string `json:"id"`
	// Current is true for the login of the sent token.
	Current     bool       `json:"current"`
	SignedInAt  time.Time  `json:"signedInAt"`
	RefreshedAt *time.Time `json:"refreshedAt"` // null if it never was
	ExpiresAt   time.Time  `json:"expiresAt"`
	IPAddress   string     `json:"ipAddress"`
	UserAgent   string     `json:"userAgent"`
}

// listLogins lists a user's logins, newest first.
func (a *API) listLogins(c *gin.Context) {
	if !own(c, auth.UsersView) {
		return
	}
	s := a.cfg.Operations.Snapshot()
	u, ok := s.Users.Get(userName(c))
	if !ok || u.Service {
		server.Fail(c, errs.New(errs.NotFound, "there is no user %s", c.Param("name")))
		return
	}
	who, _ := server.Identity(c)
	server.SendPage(c, accountops.Logins(s, u, a.cfg.Operations.Now()), resource.SmallPage, func(l *account.Login) loginView {
		out := loginView{
			ID: l.ID, Current: l.ID == who.Credential().Login, SignedInAt: l.SignedInAt, ExpiresAt: l.Ends(), IPAddress: l.IPAddress, UserAgent: l.UserAgent,
		}
		if !l.RefreshedAt.IsZero() {
			out.RefreshedAt = &l.RefreshedAt
		}
		return out
	})
}

func (a *API) endLogin(c *gin.Context) {
	if !own(c, auth.UsersUpdate) {
		return
	}
	who, _ := server.Identity(c)
	resource.SendDeleted(c, a.cfg.Operations.EndLoginOf(c.Request.Context(), server.Actor(c), userName(c), c.Param("id"), who.Permissions))
}

// endLogins ends all logins of a user, including the caller's own.
func (a *API) endLogins(c *gin.Context) {
	if !own(c, auth.UsersUpdate) {
		return
	}
	who, _ := server.Identity(c)
	resource.SendDeleted(c, a.cfg.Operations.EndLogins(c.Request.Context(), server.Actor(c), userName(c), who.Permissions))
}
