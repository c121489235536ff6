package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

const (
	// maxWarm bounds the versions of one call, and warmTimeout its duration.
	maxWarm     = 256
	warmTimeout = 10 * time.Minute
)

// Content is the node's cache of template content.
type Content interface {
	Status(after int) client.Cache
	WarmUp(ctx context.Context, digests []string) []blobcache.WarmResult
}

func readCache(content Content) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		text := r.URL.Query().Get("after")
		if text == "" {
			return content.Status(0), nil
		}
		after, err := strconv.Atoi(text)
		if err != nil || after < 0 {
			return nil, errs.Field("after", "must be a number of versions, not negative")
		}
		return content.Status(after), nil
	})
}

func warmCache(content Content) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		var body client.WarmRequest
		if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
			return nil, err
		}
		if len(body.Digests) > maxWarm {
			return nil, errs.Field("digests", "must be %d at most, are %d", maxWarm, len(body.Digests))
		}
		ctx, cancel := context.WithTimeout(r.Context(), warmTimeout)
		defer cancel()
		answer := client.WarmAnswer{Versions: []client.WarmedVersion{}}
		for _, w := range content.WarmUp(ctx, body.Digests) {
			v := client.WarmedVersion{Digest: w.Digest, Status: client.WarmOK, Bytes: w.Bytes}
			if w.Err != nil {
				v.Status, v.Error = client.WarmFailed, why(w.Err)
			}
			answer.Versions = append(answer.Versions, v)
		}
		return answer, nil
	})
}

// why returns the error's message, or advice if the disk is full.
func why(err error) string {
	message := errs.MessageOf(err)
	if errs.Is(err, errs.Exhausted) && message == errs.MessageOf(nil) {
		return fleet.ReasonDiskFull.Text() + ": free space on it, or lower cache-mib, and retry"
	}
	return message
}
