package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// unlessSame answers 304 to a GET whose If-None-Match has the ETag of the response, unless the
// response contains more than its ETag covers; see WholeETag.
func unlessSame(c *gin.Context) {
	known := every(c, "If-None-Match")
	if known == "" || c.Request.Method != http.MethodGet && c.Request.Method != http.MethodHead {
		return
	}
	w := &conditional{ResponseWriter: c.Writer, known: known}
	c.Writer = w
	defer func() { c.Writer = w.ResponseWriter }() // also in a panic
	c.Next()
}

// conditional drops a response that the client already has.
type conditional struct {
	gin.ResponseWriter
	known string
	// more is true if the response has more than its ETag covers.
	more bool
	same bool
}

// WriteHeader turns 200 into 304 if the client has the response.
func (w *conditional) WriteHeader(status int) {
	if etag := w.Header().Get("ETag"); status == http.StatusOK && !w.more && etag != "" && knows(w.known, etag) {
		w.same = true
		w.Header().Del("Content-Length")
		status = http.StatusNotModified
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write discards the body of a 304.
func (w *conditional) Write(p []byte) (int, error) {
	if !w.same && !w.Written() {
		w.WriteHeader(w.Status())
	}
	if w.same {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// WriteString is Write.
func (w *conditional) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Unwrap is for http.ResponseController.
func (w *conditional) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Same sets the ETag to the hash of the response's file and reports whether the client has it. If so,
// it has answered with 304.
func Same(c *gin.Context, hash string) bool {
	etag := strconv.Quote(hash)
	c.Header("ETag", etag)
	w, ok := c.Writer.(*conditional)
	if !ok || !knows(w.known, etag) {
		return false
	}
	c.Status(http.StatusNotModified)
	return true
}

// knows reports whether a list of ETags contains one, strong or weak.
func knows(list, etag string) bool {
	etag = strings.TrimPrefix(etag, "W/")
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == etag || one == "*" {
			return true
		}
	}
	return false
}
