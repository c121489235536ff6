package client

import (
	"context"
	"encoding/json"
	"io"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Held opens a blob or a large file that a replica stores itself. Replicas use it among
// each other. It returns NotFound when none of them has it, and Unavailable when a replica
// that may have it does not answer.
func (c *Client) Held(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	body, err := c.held(ctx, "/v1/held/blobs/"+url.PathEscape(sha256))
	return body, errs.Wrap("templatesvc.Held", err)
}

// Recipe returns the chunks of a large file from a replica. It returns the errors of Held.
func (c *Client) Recipe(ctx context.Context, sha256 string) (recipe content.Content, err error) {
	body, err := c.held(ctx, "/v1/held/recipes/"+url.PathEscape(sha256))
	if err != nil {
		return recipe, errs.Wrap("templatesvc.Recipe", err)
	}
	defer body.Close()
	err = json.NewDecoder(io.LimitReader(body, answerLimit)).Decode(&recipe)
	return recipe, errs.WrapAs(errs.Unavailable, "templatesvc.Recipe", err)
}

// held asks all replicas in turn. It returns NotFound only if all of them answer so.
func (c *Client) held(ctx context.Context, path string) (io.ReadCloser, error) {
	var none error = errs.New(errs.NotFound, "this content is damaged or lost here, and no other replica has it: publish its file again, by an upload or by touching it in its directory")
	for _, base := range c.order() {
		body, err := c.readFrom(ctx, base, path)
		if err == nil {
			return body, nil
		}
		if !errs.Is(err, errs.NotFound) {
			none = err
		}
		if ctx.Err() != nil {
			break
		}
		c.cfg.Log.Debug("templatesvc replica did not help", "url", base, "error", err)
	}
	return nil, none
}
