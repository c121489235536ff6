package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
)

// Collected is what a collection came to.
type Collected struct {
	Marked  int   `json:"marked"`  // blobs that are referred to
	Removed int   `json:"removed"` // blobs that were not
	Bytes   int64 `json:"bytes"`   // what they took on the disk
}

// Collect makes one replica remove what nothing refers to now. It waits for publishes
// that are under way.
func (c *Client) Collect(ctx context.Context) (Collected, error) {
	var r Collected
	err := c.callJSON(ctx, http.MethodPost, "/v1/collect", nil, &r)
	return r, errs.Wrap("templatesvc.Collect", err)
}

// Replicated says where a version's content was copied to.
type Replicated struct {
	// Store is the id of the directory of blobs: replicas that share one have the same.
	Store string `json:"store"`
}

// Replicate makes a replica copy what it lacks of a version from the others, and returns
// the id of its store when all of it is there and on the disk.
func (c *Client) Replicate(ctx context.Context, digest string) (id string, err error) {
	var r Replicated
	err = c.callJSON(ctx, http.MethodPost, "/v1/replicate?digest="+url.QueryEscape(digest), nil, &r)
	return r.Store, errs.Wrap("templatesvc.Replicate", err)
}
