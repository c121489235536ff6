package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// Cache is what a node keeps of templates.
type Cache struct {
	// TotalBytes is all of it. LimitBytes is what it may be but for what is in use; 0: no limit.
	TotalBytes int64 `json:"totalBytes"`
	LimitBytes int64 `json:"limitBytes"`
	// Versions are in order of their last use, the latest first.
	Versions []CachedVersion `json:"versions"`
	// MoreVersions is how many are left out.
	MoreVersions int `json:"moreVersions,omitempty"`
	// Artifacts are those of the catalog that are there, in order of their last use; 500 at most.
	Artifacts []CachedArtifact `json:"artifacts,omitempty"`
}

// CachedArtifact is an artifact of the catalog on a node.
type CachedArtifact struct {
	// SHA256 is its hash, hex, Bytes what it holds.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// CachedAt is when it came, UsedAt when it was used last.
	CachedAt time.Time `json:"cachedAt"`
	UsedAt   time.Time `json:"usedAt"`
}

// maxCached is how many versions are read of a node, and a few more.
const maxCached = 5000

// CachedVersion is a template version a node knows.
type CachedVersion struct {
	Digest string `json:"digest"`
	// Bytes is what its files hold, each content once.
	Bytes int64 `json:"bytes"`
	// Complete is true when all of it is there.
	Complete bool      `json:"complete"`
	UsedAt   time.Time `json:"usedAt"`
	// InUse is true while a directory is built of it, an instance runs that was, or it is warmed.
	InUse bool `json:"inUse,omitempty"`
}

// WarmRequest asks a node to have template versions at hand.
type WarmRequest struct {
	// Digests are the versions; 256 at most.
	Digests []string `json:"digests"`
}

// What comes of warming a version.
const (
	WarmOK     = "OK" // all of it is there, every hash verified
	WarmFailed = "FAILED"
)

// WarmAnswer says what came of each, in the order they were asked for.
type WarmAnswer struct {
	Versions []WarmedVersion `json:"versions"`
}

// WarmedVersion is what came of one.
type WarmedVersion struct {
	Digest string `json:"digest"`
	// Status is WarmOK or WarmFailed.
	Status string `json:"status"`
	// Bytes is what was fetched; 0 when it was there.
	Bytes int64 `json:"bytes"`
	// Error says why it failed.
	Error string `json:"error,omitempty"`
}

// Cache reads what the node keeps of templates, page by page; about 5,000 versions at most.
func (c *Client) Cache(ctx context.Context) (Cache, error) {
	var all []CachedVersion
	var artifacts []CachedArtifact
	for {
		var page Cache
		err := wire.Call(ctx, c.http, wire.Request{
			Method: http.MethodGet, URL: c.base + "/v1/cache?after=" + strconv.Itoa(len(all)), Token: c.secret,
		}, &page)
		if err != nil {
			return Cache{}, errs.Wrap("nodeagent.Cache", err)
		}
		artifacts = append(artifacts, page.Artifacts...) // with the first page
		if all = append(all, page.Versions...); page.MoreVersions == 0 || len(page.Versions) == 0 || len(all) >= maxCached {
			page.Versions, page.Artifacts = all, artifacts
			return page, nil
		}
	}
}

// Warm has the node fetch template versions and answers when all are there or have
// failed, which takes ten minutes at most. Invalid when more than 256 are asked for.
func (c *Client) Warm(ctx context.Context, digests []string) (WarmAnswer, error) {
	var answer WarmAnswer
	err := wire.Call(ctx, c.http, wire.Request{
		Method: http.MethodPost, URL: c.base + "/v1/cache/warm", Token: c.secret, Body: WarmRequest{Digests: digests},
	}, &answer)
	return answer, errs.Wrap("nodeagent.Warm", err)
}
