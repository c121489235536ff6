package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server/bodycache"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// DialectOf returns the dialect of a path: Universe below /api without a version, else Orrery's.
func DialectOf(path string) wire.Dialect {
	rest, ok := strings.CutPrefix(path, "/api/")
	if !ok {
		return wire.V1
	}
	for _, own := range []string{"v1", "plugin", "proxy"} {
		if rest == own || strings.HasPrefix(rest, own+"/") {
			return wire.V1
		}
	}
	return wire.Universe
}

// Fail ends a request with an error in the dialect of its path, or with 408 if its body did not
// arrive in time.
func Fail(c *gin.Context, err error) {
	var moved *txn.MovedError
	if errors.As(err, &moved) {
		Refuse(c, wire.Reply{Status: http.StatusPreconditionFailed, Code: "PRECONDITION_FAILED", Message: moved.Error()})
		return
	}
	c.Abort()
	_ = c.Error(err) // for the access log
	if leaveBody(c) {
		wire.Write(c.Writer, DialectOf(c.Request.URL.Path), wire.Reply{
			Status: http.StatusRequestTimeout, Code: "REQUEST_TIMEOUT", Message: "the body did not arrive in time: send the request again",
		})
		return
	}
	wire.Encode(c.Writer, DialectOf(c.Request.URL.Path), RequestID(c), err)
}

// Refuse ends a request with an error response for which there is no Kind.
func Refuse(c *gin.Context, r wire.Reply) {
	c.Abort()
	leaveBody(c)
	wire.Write(c.Writer, DialectOf(c.Request.URL.Path), r)
}

// SendJSON sends an encoded JSON body.
func SendJSON(c *gin.Context, body []byte) {
	c.Data(http.StatusOK, "application/json; charset=utf-8", body)
}

// SendKept sends a cached JSON body, compressed if the client accepts gzip.
func SendKept(c *gin.Context, body *bodycache.Body) {
	bytes := body.Plain
	if len(bytes) >= gzipFrom && c.Request.Method != http.MethodHead && takesGzip(every(c, "Accept-Encoding")) {
		varies(c.Writer.Header())
		c.Header("Content-Encoding", "gzip")
		bytes = body.Gzipped()
	}
	SendJSON(c, bytes)
}

// Bind decodes the JSON body. It returns false after sending a 400 that names the unknown field, the
// wrong type or the position of the syntax error.
func Bind(c *gin.Context, into any) bool {
	if err := wire.DecodeJSON(c.Request.Body, 0, into); err != nil {
		Fail(c, err)
		return false
	}
	return true
}

// BindOptional is Bind for a body that may be absent.
func BindOptional(c *gin.Context, into any) bool {
	if c.Request.ContentLength == 0 {
		return true
	}
	return Bind(c, into)
}

// RequestID returns the request's ID.
func RequestID(c *gin.Context) string { return c.Writer.Header().Get(headerRequestID) }

// DryRun reports whether the request is a dry run.
func DryRun(c *gin.Context) bool { return c.Query("dryRun") == "true" }

// IfMatch returns the revision in the If-Match header, 0 without one or for "*". It returns Malformed
// for anything else.
func IfMatch(c *gin.Context) (int64, error) {
	h := strings.TrimSpace(c.GetHeader("If-Match"))
	if h == "" || h == "*" {
		return 0, nil
	}
	rev, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(h, "W/"), `"`), 10, 64)
	if err != nil || rev <= 0 {
		return 0, &errs.Error{Kind: errs.Malformed, Message: `If-Match must be the ETag of the object as it was read, like "42"`}
	}
	return rev, nil
}

// Condition is IfMatch for a route that Makes. It returns ops.Present for If-Match: *, and ops.Absent
// for If-None-Match, which can only be * there.
func Condition(c *gin.Context) (int64, error) {
	rev, err := IfMatch(c)
	switch {
	case err != nil || rev != 0:
	case every(c, "If-Match") != "":
		rev = txn.Present
	case every(c, "If-None-Match") != "":
		rev = txn.Absent
	}
	return rev, err
}

// ETag sends the revision of the object for use in If-Match. The response may have more than the
// record, such as current figures, so the ETag does not support If-None-Match.
func ETag(c *gin.Context, rev int64) {
	WholeETag(c, rev)
	notAll(c)
}

// PartETag is ETag for an object without a revision. hash is the hash of a file.
func PartETag(c *gin.Context, hash string) {
	c.Header("ETag", strconv.Quote(hash))
	notAll(c)
}

// notAll marks the response as having more than its ETag covers.
func notAll(c *gin.Context) {
	if w, ok := c.Writer.(*conditional); ok {
		w.more = true
	}
}

// WholeETag is ETag for a response that contains only the record, so that it also works with
// If-None-Match.
func WholeETag(c *gin.Context, rev int64) { c.Header("ETag", `"`+strconv.FormatInt(rev, 10)+`"`) }
