// Package client speaks to templatesvc: manifests and blobs for agents,
// rollbacks for the gateway.
//
// It tries the live replicas in turn until one answers; one that is silent in the
// middle of content is asked last for a while. What it returns is not verified,
// because whoever stores a blob hashes it anyway. Errors keep the Kind they had in
// the service.
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
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

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
	// Patience is how long content is waited for that does not come, before another
	// replica is asked. 0 means DefaultPatience.
	Patience time.Duration
	// Log hears of replicas that did not answer. Nil discards.
	Log *slog.Logger
}

// Client calls templatesvc. It is safe for concurrent use.
type Client struct {
	cfg      Config
	decoders sync.Pool // of *zstd.Decoder

	mu     sync.Mutex
	silent map[string]time.Time // replicas that were, until when they are asked last
}

// New makes a client; it opens no connection.
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

// answerLimit bounds an answer in JSON.
const answerLimit = 64 << 20

// RollbackRequest asks for an older version to become the head again.
type RollbackRequest struct {
	// Digest is the version wanted; empty means the one before the head.
	Digest string `json:"digest,omitempty"`
}

// Rollback moves a template's head to an older version. NotFound when template
// or version do not exist, Conflict when the head moved meanwhile.
func (c *Client) Rollback(ctx context.Context, ref fleet.TemplateRef, r RollbackRequest, by Asked) (fleet.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPost, templatePath(ref)+"/rollback", r, by)
	return head, errs.Wrap("templatesvc.Rollback", err)
}

func (c *Client) callJSON(ctx context.Context, method, path string, body, into any) error {
	return c.callAs(ctx, method, path, nil, body, into)
}

// callAs is callJSON with further headers.
func (c *Client) callAs(ctx context.Context, method, path string, header http.Header, body, into any) error {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return errs.As(errs.Internal, "templatesvc.encode", err)
		}
	}
	resp, err := c.call(ctx, method, path, header, payload)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(into); err != nil {
		return errs.As(errs.Unavailable, "templatesvc.decode", err)
	}
	return nil
}

// call asks the replicas in random order until one answers. A replica that says
// NotFound may only not have heard of it yet, and one that is Exhausted has a full disk, so
// the next one is asked as well.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, payload []byte) (*http.Response, error) {
	urls := c.cfg.Resolve()
	if len(urls) == 0 {
		return nil, noReplica()
	}
	var last error
	for _, n := range rand.Perm(len(urls)) {
		resp, err := c.try(ctx, method, urls[n]+path, header, payload)
		if err == nil {
			return resp, nil
		}
		if !elsewhere(err) || errors.Is(err, errFinal) {
			return nil, err
		}
		last = worse(last, err)
		c.cfg.Log.Debug("templatesvc replica did not help", "url", urls[n], "error", err)
	}
	return nil, last
}

// elsewhere reports whether another replica may do what one could not: it does not answer,
// has not heard of it, or has no room on its disk.
func elsewhere(err error) bool {
	k := errs.KindOf(err)
	return k == errs.Unavailable || k == errs.NotFound || k == errs.Exhausted
}

// worse is which of two replicas' errors is told: the later one, but a full disk, which would
// have to be mended, before all others.
func worse(last, err error) error {
	if errs.Is(last, errs.Exhausted) {
		return last
	}
	return err
}

func (c *Client) try(ctx context.Context, method, target string, header http.Header, payload []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return nil, errs.As(errs.Internal, "templatesvc.call", err)
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

// noReplica is the error of a call that nobody could be asked.
func noReplica() error {
	return errs.New(errs.Unavailable, "the template service does not run: start templatesvc, or retry when it is back")
}

// errFinal is in an error that no other replica would answer otherwise.
var errFinal = errors.New("no other replica knows better")
