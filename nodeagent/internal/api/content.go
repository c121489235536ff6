package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-kit/kit/endpoint"

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
	Status(after int) blobcache.Status
	WarmUp(ctx context.Context, digests []string) []blobcache.WarmResult
}

func readCache(content Content) endpoint.Endpoint {
	return func(_ context.Context, after any) (any, error) {
		s := content.Status(after.(int))
		c := client.Cache{TotalBytes: s.Bytes, LimitBytes: s.Limit, MoreVersions: s.More, Versions: make([]client.CachedVersion, 0, len(s.Versions))}
		for _, v := range s.Versions {
			c.Versions = append(c.Versions, client.CachedVersion{
				Digest: v.Digest, Bytes: v.Bytes, Complete: v.Complete, UsedAt: v.UsedAt.UTC(), InUse: v.InUse,
			})
		}
		for _, a := range s.Artifacts {
			c.Artifacts = append(c.Artifacts, client.CachedArtifact{SHA256: a.Hash, Bytes: a.Bytes, CachedAt: a.CachedAt.UTC(), UsedAt: a.UsedAt.UTC()})
		}
		return c, nil
	}
}

func decodeAfter(_ context.Context, r *http.Request) (any, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.Atoi(text)
	if err != nil || after < 0 {
		return nil, errs.Field("after", "must be a number of versions, not negative")
	}
	return after, nil
}

func warmCache(content Content) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, warmTimeout)
		defer cancel()
		answer := client.WarmAnswer{Versions: []client.WarmedVersion{}}
		for _, w := range content.WarmUp(ctx, request.(client.WarmRequest).Digests) {
			v := client.WarmedVersion{Digest: w.Digest, Status: client.WarmOK, Bytes: w.Bytes}
			if w.Err != nil {
				v.Status, v.Error = client.WarmFailed, why(w.Err)
			}
			answer.Versions = append(answer.Versions, v)
		}
		return answer, nil
	}
}

// why returns the error's message, or advice if the disk is full.
func why(err error) string {
	message := errs.MessageOf(err)
	if errs.Is(err, errs.Exhausted) && message == errs.MessageOf(nil) {
		return fleet.ReasonDiskFull.Text() + ": free space on it, or lower cache-mib, and retry"
	}
	return message
}

func decodeWarm(_ context.Context, r *http.Request) (any, error) {
	var body client.WarmRequest
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	if len(body.Digests) > maxWarm {
		return nil, errs.Field("digests", "must be %d at most, are %d", maxWarm, len(body.Digests))
	}
	return body, nil
}
