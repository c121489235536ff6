package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/encoded"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// DialectOf is the dialect a path is answered in: Universe's for what lies under
// /api without a version, Orrery's own for everything else.
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

// Fail ends a request with an error in the dialect of its path; with 408 when its body did not
// come in time.
func Fail(c *gin.Context, err error) {
	var moved *operate.MovedError
	if errors.As(err, &moved) {
		Refuse(c, wire.Reply{Status: http.StatusPreconditionFailed, Code: "PRECONDITION_FAILED", Message: moved.Error()})
		return
	}
	c.Abort()
	_ = c.Error(err) // for the access log
	if leaveBody(c) {
		wire.Write(c.Writer, DialectOf(c.Request.URL.Path), wire.Reply{
			Status: http.StatusRequestTimeout, Code: "REQUEST_TIMEOUT", Message: "the body did not come in time: send the request again",
		})
		return
	}
	wire.Encode(c.Writer, DialectOf(c.Request.URL.Path), RequestID(c), err)
}

// Refuse ends a request with a reply that has no Kind.
func Refuse(c *gin.Context, r wire.Reply) {
	c.Abort()
	leaveBody(c)
	wire.Write(c.Writer, DialectOf(c.Request.URL.Path), r)
}

// SendJSON answers with a body that was encoded already.
func SendJSON(c *gin.Context, body []byte) {
	c.Data(http.StatusOK, "application/json; charset=utf-8", body)
}

// SendKept answers with a body of JSON that is kept, as it is or packed: the same bytes for
// all who take them.
func SendKept(c *gin.Context, body *encoded.Body) {
	bytes := body.Plain
	if len(bytes) >= packedFrom && c.Request.Method != http.MethodHead && takesGzip(every(c, "Accept-Encoding")) {
		varies(c.Writer.Header())
		c.Header("Content-Encoding", "gzip")
		bytes = body.Packed()
	}
	SendJSON(c, bytes)
}

// Bind reads the JSON body into a struct; false means that the request was
// answered: 400 names the unknown field, the wrong type or the place of the syntax error.
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

// RequestID is the request's id.
func RequestID(c *gin.Context) string { return c.Writer.Header().Get(headerRequestID) }

// DryRun reports whether the request only asks what would happen.
func DryRun(c *gin.Context) bool { return c.Query("dryRun") == "true" }

// IfMatch is the revision an If-Match header demands, 0 without one or for "*".
// Malformed when it is not a revision.
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

// Condition is IfMatch on a route that Makes: operate.Present for "*", and operate.Absent for
// an If-None-Match, which can be nothing but "*" there.
func Condition(c *gin.Context) (int64, error) {
	rev, err := IfMatch(c)
	switch {
	case err != nil || rev != 0:
	case every(c, "If-Match") != "":
		rev = operate.Present
	case every(c, "If-None-Match") != "":
		rev = operate.Absent
	}
	return rev, err
}

// ETag tells the revision of the object in the answer, which may have more than its record
// has, such as figures of the moment: it is for If-Match, and nothing is told to be the same.
func ETag(c *gin.Context, rev int64) {
	WholeETag(c, rev)
	notAll(c)
}

// PartETag is ETag for what has no revision: the hash of a file, in an answer that tells more
// than the file.
func PartETag(c *gin.Context, hash string) {
	c.Header("ETag", strconv.Quote(hash))
	notAll(c)
}

// notAll says that the answer has more than its ETag names.
func notAll(c *gin.Context) {
	if w, ok := c.Writer.(*conditional); ok {
		w.more = true
	}
}

// WholeETag is ETag of an answer that has nothing but the record: If-None-Match is for it too.
func WholeETag(c *gin.Context, rev int64) { c.Header("ETag", `"`+strconv.FormatInt(rev, 10)+`"`) }
