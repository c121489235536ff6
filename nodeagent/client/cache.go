package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Cache describes a node's cache of template content.
type Cache struct {
	// TotalBytes is its size. LimitBytes bounds it, not counting content in use; 0 means no limit.
	TotalBytes int64 `json:"totalBytes"`
	LimitBytes int64 `json:"limitBytes"`
	// Versions are ordered by their last use, the latest first.
	Versions []CachedVersion `json:"versions"`
	// MoreVersions is the number of omitted versions.
	MoreVersions int `json:"moreVersions,omitempty"`
	// Artifacts are the cached artifacts of the catalog, at most 500, ordered by their last use.
	Artifacts []CachedArtifact `json:"artifacts,omitempty"`
}

// CachedArtifact is an artifact of the catalog on a node.
type CachedArtifact struct {
	// SHA256 is its hexadecimal hash, and Bytes its size.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// CachedAt is when it was fetched, and UsedAt when it was last used.
	CachedAt time.Time `json:"cachedAt"`
	UsedAt   time.Time `json:"usedAt"`
}

// maxCached bounds the versions that Cache reads, rounded up to a page.
const maxCached = 5000

// CachedVersion is a template version in a node's cache.
type CachedVersion struct {
	Digest string `json:"digest"`
	// Bytes is the size of its files; equal contents count once.
	Bytes int64 `json:"bytes"`
	// Complete is true if all of its content is cached.
	Complete bool      `json:"complete"`
	UsedAt   time.Time `json:"usedAt"`
	// InUse is true while a directory is built from it, an instance with it runs, or it is warmed.
	InUse bool `json:"inUse,omitempty"`
}

// WarmRequest asks a node to fetch template versions into its cache.
type WarmRequest struct {
	// Digests are the versions, at most 256.
	Digests []string `json:"digests"`
}

// The results of warming a version.
const (
	WarmOK     = "OK" // all content is cached and its hashes are verified
	WarmFailed = "FAILED"
)

// WarmAnswer contains the result of each version, in the order of the request.
type WarmAnswer struct {
	Versions []WarmedVersion `json:"versions"`
}

// WarmedVersion is the result of warming a version.
type WarmedVersion struct {
	Digest string `json:"digest"`
	// Status is WarmOK or WarmFailed.
	Status string `json:"status"`
	// Bytes is how much was fetched; 0 if it was cached.
	Bytes int64 `json:"bytes"`
	// Error says why it failed.
	Error string `json:"error,omitempty"`
}

// Cache reads the node's cache page by page, at most about 5,000 versions.
func (c *Client) Cache(ctx context.Context) (Cache, error) {
	var all []CachedVersion
	var artifacts []CachedArtifact
	for {
		var page Cache
		if err := c.do(ctx, http.MethodGet, "/v1/cache?after="+strconv.Itoa(len(all)), nil, &page); err != nil {
			return Cache{}, errs.Wrap("nodeagent.Cache", err)
		}
		artifacts = append(artifacts, page.Artifacts...) // with the first page
		if all = append(all, page.Versions...); page.MoreVersions == 0 || len(page.Versions) == 0 || len(all) >= maxCached {
			page.Versions, page.Artifacts = all, artifacts
			return page, nil
		}
	}
}

// Warm makes the node fetch template versions. It returns when all are cached or have failed,
// after at most ten minutes. Invalid for more than 256 digests.
func (c *Client) Warm(ctx context.Context, digests []string) (WarmAnswer, error) {
	var answer WarmAnswer
	err := c.do(ctx, http.MethodPost, "/v1/cache/warm", WarmRequest{Digests: digests}, &answer)
	return answer, errs.Wrap("nodeagent.Warm", err)
}
