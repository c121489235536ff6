// Package client is the client of templatesvc. Agents use it to read manifests and blobs,
// and the API gateway to manage templates.
//
// It tries the live replicas in random order until one answers. A replica that stops
// sending in the middle of content is tried last for a while. The client does not verify
// content, because its callers hash what they store. Errors keep their Kind.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config is what a Client needs.
type Config struct {
	// Resolve returns the base URLs of the live replicas. It is called for each request.
	Resolve func() []string
	// Secret is the cluster secret, which authenticates internal calls.
	Secret string
	// HTTP performs the calls. Nil means a new client without a timeout, because contexts
	// limit calls.
	HTTP *http.Client
	// Patience is how long a read waits for data before another replica is tried. 0 means
	// DefaultPatience.
	Patience time.Duration
	// Log receives failures of replicas. Nil discards them.
	Log *slog.Logger
}

// Client calls templatesvc. It is safe for concurrent use.
type Client struct {
	cfg      Config
	decoders sync.Pool // of *zstd.Decoder

	mu     sync.Mutex
	silent map[string]time.Time // silent replicas, and until when they are tried last
}

// New returns a Client. It opens no connection.
func New(cfg Config) *Client {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	return &Client{cfg: cfg, silent: map[string]time.Time{}}
}

// answerLimit is the maximum size of a JSON answer in bytes.
const answerLimit = 64 << 20

// RollbackRequest requests that an older version becomes the head.
type RollbackRequest struct {
	// Digest is the requested version; empty means the previous one.
	Digest string `json:"digest,omitempty"`
}

// Rollback moves a template's head to an older version. It returns NotFound when the
// template or the version does not exist, and Conflict when the head has moved meanwhile.
func (c *Client) Rollback(ctx context.Context, ref content.TemplateRef, r RollbackRequest, by Asked) (content.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPost, templatePath(ref)+"/rollback", r, by)
	return head, errs.Wrap("templatesvc.Rollback", err)
}

func (c *Client) callJSON(ctx context.Context, method, path string, body, into any) error {
	return c.callAs(ctx, method, path, nil, body, into)
}

// callAs is callJSON with additional headers.
func (c *Client) callAs(ctx context.Context, method, path string, header http.Header, body, into any) error {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return errs.WrapAs(errs.Internal, "templatesvc.encode", err)
		}
	}
	resp, err := c.call(ctx, method, path, header, payload)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(into); err != nil {
		return errs.WrapAs(errs.Unavailable, "templatesvc.decode", err)
	}
	return nil
}

// call makes a call at the first replica that can answer it; see first.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, payload []byte) (*http.Response, error) {
	return first(c, func(base string) (*http.Response, error) { return c.try(ctx, method, base+path, header, payload) })
}

// first tries the replicas in turn until one succeeds. It also tries the next one after
// NotFound, because a replica may not know the object yet, and after Exhausted, which means
// a full disk. If none succeeds, first reports a full disk before other errors, because
// that replica could have fetched the content, and an operator has to fix it.
func first[T any](c *Client, try func(base string) (T, error)) (none T, err error) {
	err = noReplica()
	for _, base := range c.order() {
		v, failed := try(base)
		if failed == nil {
			return v, nil
		}
		if !elsewhere(failed) || errors.Is(failed, errFinal) {
			return none, failed
		}
		if !errs.Is(err, errs.Exhausted) {
			err = failed
		}
		c.cfg.Log.Debug("templatesvc replica did not help", "url", base, "error", failed)
	}
	return none, err
}

// elsewhere reports whether another replica may succeed: this one does not answer, does not
// know the object yet, or has a full disk.
func elsewhere(err error) bool {
	k := errs.KindOf(err)
	return k == errs.Unavailable || k == errs.NotFound || k == errs.Exhausted
}

func (c *Client) try(ctx context.Context, method, target string, header http.Header, payload []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "templatesvc.call", err)
	}
	maps.Copy(req.Header, header)
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
		return nil, errs.WrapAs(errs.Unavailable, "templatesvc.call", fmt.Errorf("%s: %w", target, err))
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

// noReplica returns the error of a call when no replica is live.
func noReplica() error {
	return errs.New(errs.Unavailable, "the template service does not run: start templatesvc, or retry when it is back")
}

// errFinal marks an error that every replica would return.
var errFinal = errors.New("no other replica knows better")
