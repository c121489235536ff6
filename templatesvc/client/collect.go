package client

import (
	"context"
	"net/http"

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
