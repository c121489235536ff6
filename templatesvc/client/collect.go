package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
)

// Collected is the result of a collection.
type Collected struct {
	Marked  int   `json:"marked"`  // referenced blobs
	Removed int   `json:"removed"` // removed blobs
	Bytes   int64 `json:"bytes"`   // their size on the disk
}

// Collect makes one replica remove unreferenced content now. It waits for open publishes.
func (c *Client) Collect(ctx context.Context) (Collected, error) {
	var r Collected
	err := c.callJSON(ctx, http.MethodPost, "/v1/collect", nil, &r)
	return r, errs.Wrap("templatesvc.Collect", err)
}

// Replicated says where a version's content was copied to.
type Replicated struct {
	// Store is the ID of the replica's store. Replicas that share a store have the same ID.
	Store string `json:"store"`
}

// Replicate makes a replica copy the missing content of a version from the others. It
// returns the ID of the replica's store when everything is on the disk.
func (c *Client) Replicate(ctx context.Context, digest string) (id string, err error) {
	var r Replicated
	err = c.callJSON(ctx, http.MethodPost, "/v1/replicate?digest="+url.QueryEscape(digest), nil, &r)
	return r.Store, errs.Wrap("templatesvc.Replicate", err)
}
