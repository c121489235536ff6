package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// unlessSame answers 304 to who has the object as it is: a GET whose If-None-Match has the
// ETag of the answer, where that names all there is in it; see WholeETag.
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

// conditional drops an answer that its reader has.
type conditional struct {
	gin.ResponseWriter
	known string
	// more is true when the answer has more than its ETag names.
	more bool
	same bool
}

// WriteHeader turns the status of what is known into 304.
func (w *conditional) WriteHeader(status int) {
	if etag := w.Header().Get("ETag"); status == http.StatusOK && !w.more && etag != "" && knows(w.known, etag) {
		w.same = true
		w.Header().Del("Content-Length")
		status = http.StatusNotModified
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes what is not known.
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

// Same is the ETag of an answer that is a file of a hash, and reports whether the caller has
// it: then it was answered.
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

// knows reports whether a list of ETags has one, strong or weak.
func knows(list, etag string) bool {
	etag = strings.TrimPrefix(etag, "W/")
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == etag || one == "*" {
			return true
		}
	}
	return false
}
