package rest

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// What quotas, secrets and sources have in common: records by name, which are read, put in
// place of what was there, and removed.

// sendRecord answers with one at a revision, unless it could not be had.
func sendRecord(c *gin.Context, shown any, rev int64, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, rev)
	c.JSON(http.StatusOK, shown)
}

// bindRecord reads what is to be put under the name in the path, and the revision that is
// there now if the caller knows it, as server.Condition has it. given is the name in the body,
// once that is read. ok is false when the request was answered.
func bindRecord(c *gin.Context, what string, body any, given func() *string) (name string, ifMatch int64, ok bool) {
	if !server.Bind(c, body) {
		return "", 0, false
	}
	name = c.Param("name")
	if in := given(); in != nil && *in != name {
		server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a %s cannot be renamed", *in, name, what))
		return name, 0, false
	}
	ifMatch, err := server.Condition(c)
	if err != nil {
		server.Fail(c, err)
	}
	return name, ifMatch, err == nil
}

// sendPut answers with what was put in a place, which is the path of what was created.
func sendPut(c *gin.Context, created bool, rev int64, shown any) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.Header("Location", c.Request.URL.EscapedPath())
	}
	server.ETag(c, rev)
	c.JSON(status, shown)
}

// deleteRecord removes one; a dry run is answered with what it would be.
func deleteRecord(c *gin.Context, do func(ctx context.Context, by operate.Actor, name string, ifMatch int64, dryRun bool) error, dry any) {
	rev, err := server.IfMatch(c)
	if err == nil {
		err = do(c.Request.Context(), server.Actor(c), c.Param("name"), rev, server.DryRun(c))
	}
	switch {
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		c.JSON(http.StatusOK, dry)
	default:
		c.Status(http.StatusNoContent)
	}
}
