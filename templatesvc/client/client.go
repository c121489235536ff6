// Package client speaks to templatesvc: manifests and blobs for agents,
// rollbacks for the gateway.
//
// It tries the live replicas in turn until one answers; what it returns is not
// verified, because whoever stores a blob hashes it anyway. Errors keep the Kind
// they had in the service.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config is what a client needs.
type Config struct {
	// Resolve returns the base URLs of the live replicas, asked anew for each call.
	Resolve func() []string
	// Secret is the cluster secret every internal call carries.
	Secret string
	// HTTP performs the calls. Nil means a client of its own without a time limit: contexts bound calls.
	HTTP *http.Client
	// Log hears of replicas that did not answer. Nil discards.
	Log *slog.Logger
}

// Client calls templatesvc. It is safe for concurrent use.
type Client struct{ cfg Config }

// New makes a client; it opens no connection.
func New(cfg Config) *Client {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{cfg: cfg}
}

// manifestLimit bounds a manifest's JSON: 50,000 entries of a few hundred bytes.
const manifestLimit = 64 << 20

// Manifest reads a version's manifest by its digest. NotFound when no replica has it.
func (c *Client) Manifest(ctx context.Context, digest string) (fleet.Manifest, error) {
	var m fleet.Manifest
	err := c.callJSON(ctx, http.MethodGet, "/v1/manifests/"+url.PathEscape(digest), nil, &m)
	return m, errs.Wrap("templatesvc.Manifest", err)
}

// Blob opens a blob by the hash of its content. The caller closes it and verifies the hash.
func (c *Client) Blob(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	resp, err := c.call(ctx, http.MethodGet, "/v1/blobs/"+url.PathEscape(sha256), nil)
	if err != nil {
		return nil, errs.Wrap("templatesvc.Blob", err)
	}
	if resp.Header.Get("Content-Encoding") != "zstd" {
		return resp.Body, nil
	}
	dec, err := zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		_ = resp.Body.Close()
		return nil, errs.As(errs.Internal, "templatesvc.Blob", err)
	}
	return &decoded{dec: dec, body: resp.Body}, nil
}

// decoded is a compressed body and its decoder, closed together.
type decoded struct {
	dec  *zstd.Decoder
	body io.Closer
}

func (d *decoded) Read(p []byte) (int, error) { return d.dec.Read(p) }

func (d *decoded) Close() error {
	d.dec.Close()
	return d.body.Close()
}

// RollbackRequest asks for an older version to become the head again.
type RollbackRequest struct {
	// Digest is the version wanted; empty means the one before the head.
	Digest string `json:"digest,omitempty"`
	// Author is who asked.
	Author string `json:"author,omitempty"`
}

// Rollback moves a template's head to an older version. NotFound when template
// or version do not exist, Conflict when the head moved meanwhile.
func (c *Client) Rollback(ctx context.Context, ref fleet.TemplateRef, r RollbackRequest) (fleet.TemplateHead, error) {
	var head fleet.TemplateHead
	path := "/v1/templates/" + url.PathEscape(ref.Group) + "/" + url.PathEscape(ref.Name) + "/rollback"
	err := c.callJSON(ctx, http.MethodPost, path, r, &head)
	return head, errs.Wrap("templatesvc.Rollback", err)
}

func (c *Client) callJSON(ctx context.Context, method, path string, body, into any) error {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return errs.As(errs.Internal, "templatesvc.encode", err)
		}
	}
	resp, err := c.call(ctx, method, path, payload)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, manifestLimit)).Decode(into); err != nil {
		return errs.As(errs.Unavailable, "templatesvc.decode", err)
	}
	return nil
}

// call asks the replicas in random order until one answers. A replica that says
// NotFound may only not have heard of it yet, so the next one is asked as well.
func (c *Client) call(ctx context.Context, method, path string, payload []byte) (*http.Response, error) {
	urls := c.cfg.Resolve()
	if len(urls) == 0 {
		return nil, errs.New(errs.Unavailable, "no templatesvc is running")
	}
	var last error
	for _, n := range rand.Perm(len(urls)) {
		resp, err := c.try(ctx, method, urls[n]+path, payload)
		if err == nil {
			return resp, nil
		}
		last = err
		if k := errs.KindOf(err); k != errs.Unavailable && k != errs.NotFound || errors.Is(err, errFinal) {
			return nil, err
		}
		c.cfg.Log.Debug("templatesvc replica did not help", "url", urls[n], "error", err)
	}
	return nil, last
}

func (c *Client) try(ctx context.Context, method, target string, payload []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return nil, errs.As(errs.Internal, "templatesvc.call", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.cfg.Secret)
	req.Header.Set("Accept-Encoding", "zstd")
	if len(payload) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errs.Wrap("templatesvc.call", ctx.Err())
		}
		return nil, errs.As(errs.Unavailable, "templatesvc.call", fmt.Errorf("%s: %w", target, err))
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		err := wire.DecodeError(resp)
		if resp.Header.Get(HeaderFinal) != "" {
			return nil, &errs.Error{Kind: errs.KindOf(err), Field: errs.FieldOf(err), Message: errs.MessageOf(err), Err: errors.Join(err, errFinal)}
		}
		return nil, err
	}
	return resp, nil
}

// errFinal is in an error that no other replica would answer otherwise.
var errFinal = errors.New("no other replica knows better")
