// Package resource holds what the handlers of /api/v1 share: page sizes, records that are read and
// written by name, merge patches, and the differences that dry runs answer with.
package resource

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// SendRecord answers with a record and its ETag, or with err if that is not nil.
func SendRecord(c *gin.Context, shown any, rev int64, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, rev)
	c.JSON(http.StatusOK, shown)
}

// BindRecord decodes the body of a PUT. It returns the name in the path and the precondition, see
// server.Condition. given returns the name in the body, if any; another name than in the path is
// refused. ok is false if BindRecord answered the request.
func BindRecord(c *gin.Context, what string, body any, given func() *string) (name string, ifMatch int64, ok bool) {
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

// SendPut answers a PUT with the record: 201 and its location if it was created, else 200.
func SendPut(c *gin.Context, created bool, rev int64, shown any) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.Header("Location", c.Request.URL.EscapedPath())
	}
	server.ETag(c, rev)
	c.JSON(status, shown)
}

// SendDeleted answers a DELETE without a body, or with err if that is not nil.
func SendDeleted(c *gin.Context, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

// DryRun returns the answer to the dry run of a write of the record called name, with the fields that would change.
func DryRun(kind, name string, exists bool, diff []FieldChange) gin.H {
	action := "create"
	switch {
	case exists && len(diff) == 0:
		action = "none"
	case exists:
		action = "update"
	}
	return gin.H{"dryRun": true, "action": action, kind: name, "diff": diff}
}

// DeleteRecord deletes the record that the path names. It answers a dry run with dry.
func DeleteRecord(c *gin.Context, do func(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error, dry any) {
	rev, err := server.IfMatch(c)
	if err == nil {
		err = do(c.Request.Context(), server.Actor(c), c.Param("name"), rev, server.DryRun(c))
	}
	if err == nil && server.DryRun(c) {
		c.JSON(http.StatusOK, dry)
		return
	}
	SendDeleted(c, err)
}
