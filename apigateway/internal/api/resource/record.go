// Package resource holds what the handlers of /api/v1 share: page sizes, records that are read and
// written by name, merge patches, and the differences that dry runs answer with.
package resource

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

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

// BindPatch is BindRecord for a merge patch (RFC 7396). body has the types of all fields, so that an unknown
// field or a wrong type is refused. patch keeps the fields that writable has.
func BindPatch(c *gin.Context, what string, body any, given func() *string, writable any) (name string, ifMatch int64, patch map[string]any, ok bool) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		server.Fail(c, errs.WrapAs(errs.TooLarge, "resource.BindPatch", err))
		return "", 0, nil, false
	}
	c.Request.Body = io.NopCloser(bytes.NewReader(raw))
	if name, ifMatch, ok = BindRecord(c, what, body, given); !ok {
		return name, 0, nil, false
	}
	if patch, err = DecodePatch(raw, slices.Collect(maps.Keys(AsMap(writable)))...); err != nil {
		server.Fail(c, err)
	}
	return name, ifMatch, patch, err == nil
}

// Patched returns the fields of a record after a merge patch that BindPatch returned.
func Patched[T any](present T, patch map[string]any) (out T, err error) {
	merged := AsMap(present)
	MergePatch(merged, patch)
	b, err := json.Marshal(merged)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, errs.WrapAs(errs.Internal, "resource.Patched", err)
}

// SendPut answers a PUT with the record: 201 and its location if it was created, else 200.
func SendPut(c *gin.Context, created bool, rev int64, shown any) {
	SendWritten(c, c.Request.URL.EscapedPath(), created, rev, shown)
}

// SendWritten is SendPut for a record whose location may differ from the path of the request.
func SendWritten(c *gin.Context, location string, created bool, rev int64, shown any) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.Header("Location", location)
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
