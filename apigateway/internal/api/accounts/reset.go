package accounts

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// resetRoutes reset forgotten passwords.
func (a *API) resetRoutes() []server.Route {
	return server.Under("/api/v1/auth/password-reset",
		server.Post("/request", server.Login, a.requestReset),
		server.Post("/complete", server.Login, a.completeReset),
	)
}

// resets reports whether password resets are enabled. If not, it answers the request.
func (a *API) resets(c *gin.Context) bool {
	if !a.cfg.Operations.Resets() {
		server.Refuse(c, wire.Reply{
			Status: http.StatusNotFound, Code: "NOT_ENABLED",
			Message: "password resets are disabled: ask a user who may change users for a new password",
		})
		return false
	}
	return true
}

// requestReset gives the same answer whether a user has that address or not.
func (a *API) requestReset(c *gin.Context) {
	var b struct {
		Email *string `json:"email"`
	}
	if !server.Bind(c, &b) || !a.resets(c) {
		return
	}
	if b.Email == nil {
		server.Fail(c, errs.Field("email", "is missing"))
		return
	}
	a.cfg.Operations.RequestReset(server.Actor(c), *b.Email)
	c.JSON(http.StatusAccepted, gin.H{"status": "accepted"})
}

func (a *API) completeReset(c *gin.Context) {
	var b struct {
		Token       *string `json:"token"`
		NewPassword *string `json:"newPassword"`
	}
	if !server.Bind(c, &b) || !a.resets(c) {
		return
	}
	switch {
	case b.Token == nil:
		server.Fail(c, errs.Field("token", "is missing"))
		return
	case b.NewPassword == nil:
		server.Fail(c, errs.Field("newPassword", "is missing"))
		return
	}
	ctx := c.Request.Context()
	err := a.cfg.Operations.ResetPassword(ctx, server.Actor(c), *b.Token, func() (string, error) {
		return a.cfg.Auth.HashPassword(ctx, "newPassword", *b.NewPassword)
	})
	switch {
	case errors.Is(err, accountops.ErrResetToken):
		server.Refuse(c, wire.Reply{Status: http.StatusBadRequest, Code: "INVALID_TOKEN", Message: errs.MessageOf(err)})
	case err != nil:
		server.Fail(c, err)
	default:
		c.JSON(http.StatusOK, gin.H{"status": "ok"})
	}
}
