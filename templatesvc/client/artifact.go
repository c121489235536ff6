package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// PinRequest asks for the hash of a URL's content.
type PinRequest struct {
	URL string `json:"url"`
}

// Artifact opens an artifact of the catalog by its hash; templatesvc downloads it if
// necessary. The caller closes it and verifies the hash. It returns NotFound when the
// catalog does not list it or its URL does not exist, Conflict with both hashes when the
// URL has another file, and Unavailable when the host does not answer.
func (c *Client) Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	resp, err := c.call(ctx, http.MethodGet, "/v1/artifacts/"+url.PathEscape(sha256), nil, nil)
	if err != nil {
		return nil, errs.Wrap("templatesvc.Artifact", err)
	}
	return resp.Body, nil
}

// Pin makes templatesvc download the file at a URL and keep it for a while. It returns the
// hash and the size. It returns Invalid with the field downloadUrl when the URL is wrong or
// its host does not answer.
func (c *Client) Pin(ctx context.Context, downloadURL string) (content.Content, error) {
	var out content.Content
	err := c.callJSON(ctx, http.MethodPost, "/v1/artifacts", PinRequest{URL: downloadURL}, &out)
	return out, errs.Wrap("templatesvc.Pin", err)
}
