package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// headerRevision is a revision of the store. In a response it is that of the change, or the latest one
	// if the requested revision was lost in a restore. In a request it is the minimum revision that
	// the response must reflect.
	headerRevision = "Orrery-Revision"
	// revisionPatience limits how long a request waits for a revision.
	revisionPatience = 2 * time.Second
	// lostAfter is how long a request waits before the store is asked whether the revision exists.
	lostAfter = 200 * time.Millisecond
)

// revisions lets clients read their own writes through any gateway: the response to a change has its
// revision, and a request that sends it waits until this gateway has seen it.
func (s *Server) revisions(c *gin.Context) {
	if wanted := named(c); wanted != "" && !s.reached(c, wanted) {
		return
	}
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	last := int64(0)
	c.Request = c.Request.WithContext(txn.Telling(c.Request.Context(), func(rev int64) {
		if last = max(last, rev); last > 0 {
			c.Header(headerRevision, strconv.FormatInt(last, 10))
		}
	}))
}

// named returns the revision that a request sends; empty without one.
func named(c *gin.Context) string {
	if c.Request.URL.RawQuery != "" {
		if text := c.Query("minRevision"); text != "" {
			return text
		}
	}
	return c.GetHeader(headerRevision)
}

// reached waits until the view has seen a revision. It returns false if an error response was sent. A
// revision above the store's latest was lost when the store was restored; the request then
// waits for the latest one, which the response names.
func (s *Server) reached(c *gin.Context, wanted string) bool {
	rev, err := strconv.ParseInt(wanted, 10, 64)
	if err != nil || rev < 0 {
		Fail(c, &errs.Error{Kind: errs.Malformed, Field: "minRevision", Message: "minRevision must be the " + headerRevision + " of a response, a whole number"})
		return false
	}
	if probe(c.FullPath()) { // probes need no revision and must stay cheap, because they need no token
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
			Message: fmt.Sprintf("this gateway has not seen revision %d yet: retry in a moment", rev),
		})
		return false
	}
	return true
}

// soon reports whether the view reaches a revision before lostAfter.
func (s *Server) soon(ctx context.Context, rev int64) bool {
	ctx, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	_, err := s.cfg.View.WaitRev(ctx, rev)
	return err == nil
}
