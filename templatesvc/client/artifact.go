package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// PinRequest asks which hash a URL's content has.
type PinRequest struct {
	URL string `json:"url"`
}

// Artifact opens an artifact of the catalog by its hash; templatesvc downloads it
// first if need be. The caller closes it and verifies the hash. NotFound when the
// catalog or its URL does not have it, Conflict, naming both hashes, when the URL has
// another file, Unavailable when the host does not answer.
func (c *Client) Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	resp, err := c.call(ctx, http.MethodGet, "/v1/artifacts/"+url.PathEscape(sha256), nil, nil)
	if err != nil {
		return nil, errs.Wrap("templatesvc.Artifact", err)
	}
	return resp.Body, nil
}

// Pin has templatesvc download the file at a URL and keep it for a while. It returns hash and
// size. Invalid with the field downloadUrl when the URL is wrong or its host does not answer.
func (c *Client) Pin(ctx context.Context, downloadURL string) (fleet.Content, error) {
	var out fleet.Content
	err := c.callJSON(ctx, http.MethodPost, "/v1/artifacts", PinRequest{URL: downloadURL}, &out)
	return out, errs.Wrap("templatesvc.Pin", err)
}
