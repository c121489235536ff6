package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// headerRevision is the store's revision: of an answer, that of the change that was made,
	// or the latest where the request's is of a lost past; of a request, the one that its
	// answer must not be older than.
	headerRevision = "Orrery-Revision"
	// revisionPatience is how long a request waits for a revision.
	revisionPatience = 2 * time.Second
	// lostAfter is how long it waits before the store is asked whether there is one.
	lostAfter = 200 * time.Millisecond
)

// revisions has what a client changed through one gateway be there for it in another: the
// answer to a change tells its revision, and a request that names one waits for it.
func (s *Server) revisions(c *gin.Context) {
	if wanted := named(c); wanted != "" && !s.reached(c, wanted) {
		return
	}
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	last := int64(0)
	c.Request = c.Request.WithContext(operate.Telling(c.Request.Context(), func(rev int64) {
		if last = max(last, rev); last > 0 {
			c.Header(headerRevision, strconv.FormatInt(last, 10))
		}
	}))
}

// named is the revision that a request names; empty when it names none.
func named(c *gin.Context) string {
	if c.Request.URL.RawQuery != "" {
		if text := c.Query("minRevision"); text != "" {
			return text
		}
	}
	return c.GetHeader(headerRevision)
}

// reached waits until the view is at a revision; false when the request was answered. One that
// the store has not come to is of a past that was lost when it was restored: nothing can be
// older than that, and whoever names it is told the latest in its place.
func (s *Server) reached(c *gin.Context, wanted string) bool {
	rev, err := strconv.ParseInt(wanted, 10, 64)
	if err != nil || rev < 0 {
		Fail(c, &errs.Error{Kind: errs.Malformed, Field: "minRevision", Message: "minRevision must be the " + headerRevision + " of an answer, a whole number"})
		return false
	}
	if probe(c.FullPath()) { // it tells nothing that a revision has, and anybody may send many
		return true
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), revisionPatience)
	defer cancel()
	if s.soon(ctx, rev) {
		return true
	}
	if latest, err := s.cfg.Operations.Revision(ctx); err == nil && rev > latest {
		c.Header(headerRevision, strconv.FormatInt(latest, 10))
		rev = latest
	}
	if _, err := s.cfg.View.WaitRev(ctx, rev); err != nil {
		Refuse(c, wire.Reply{
			Status: http.StatusServiceUnavailable, Code: "REVISION_NOT_REACHED", RetryAfter: time.Second,
			Message: fmt.Sprintf("this gateway has not heard of revision %d yet: ask again in a moment", rev),
		})
		return false
	}
	return true
}

// soon reports whether the view comes to a revision before it is worth to ask the store for it.
func (s *Server) soon(ctx context.Context, rev int64) bool {
	ctx, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	_, err := s.cfg.View.WaitRev(ctx, rev)
	return err == nil
}
