package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// DefaultPatience is how long a read waits for data.
	DefaultPatience = 15 * time.Second
	// silenceKept is how long a silent replica is tried last.
	silenceKept = time.Minute
)

// HeaderSize is the header with the size of a blob's content in bytes, uncompressed.
const HeaderSize = "X-Orrery-Size"

// Manifest opens a version's manifest: the bytes that its digest is the hash of. The caller
// closes it and verifies the hash. It returns NotFound when no replica has it. If the
// replica stops sending, a read fails with Unavailable; the next call tries another
// replica.
func (c *Client) Manifest(ctx context.Context, digest string) (io.ReadCloser, error) {
	body, err := c.read(ctx, "/v1/manifests/"+url.PathEscape(digest))
	return body, errs.Wrap("templatesvc.Manifest", err)
}

// Blob opens a blob by its hash, like Manifest.
func (c *Client) Blob(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	body, err := c.read(ctx, "/v1/blobs/"+url.PathEscape(sha256))
	return body, errs.Wrap("templatesvc.Blob", err)
}

// Suspect reports that content had a wrong hash. Each replica verifies its own copy and
// replaces it if it is damaged. Suspect returns Unavailable when it reaches no replica.
func (c *Client) Suspect(ctx context.Context, sha256 string) error {
	urls := c.cfg.Resolve()
	failed := make([]error, 0, len(urls))
	for _, base := range urls {
		if err := c.suspect(ctx, base+"/v1/blobs/"+url.PathEscape(sha256)+"/suspect"); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) < len(urls) {
		return nil
	}
	if len(urls) == 0 {
		return noReplica()
	}
	return errs.Wrap("templatesvc.Suspect", errors.Join(failed...))
}

func (c *Client) suspect(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	resp, err := c.try(ctx, http.MethodPost, target, nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// read opens content at the first replica that sends some; see first.
func (c *Client) read(ctx context.Context, path string) (io.ReadCloser, error) {
	return first(c, func(base string) (io.ReadCloser, error) { return c.readFrom(ctx, base, path) })
}

// order returns the replicas in random order, with silent ones last.
func (c *Client) order() []string {
	urls := slices.Clone(c.cfg.Resolve())
	rand.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	slices.SortStableFunc(urls, func(a, b string) int {
		return asInt(c.silent[a].After(now)) - asInt(c.silent[b].After(now))
	})
	return urls
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wasSilent makes a replica be tried last for a while.
func (c *Client) wasSilent(base string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for u, until := range c.silent {
		if until.Before(now) {
			delete(c.silent, u)
		}
	}
	c.silent[base] = now.Add(silenceKept)
}

func (c *Client) readFrom(outer context.Context, base, path string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(outer)
	b := &body{client: c, base: base, cancel: cancel}
	b.timer = time.AfterFunc(c.cfg.Patience, func() {
		b.silent.Store(true)
		cancel()
	})
	resp, err := c.try(ctx, http.MethodGet, base+path, nil, nil)
	b.timer.Stop()
	if err != nil {
		cancel()
		return nil, b.word(err)
	}
	b.raw, b.content = resp.Body, watched{b}
	switch parts := resp.Header.Get(HeaderParts); {
	case parts != "":
		var left []Part
		left, err = parseParts(parts)
		b.content = &row{body: b, left: left}
	case resp.Header.Get("Content-Encoding") == "zstd":
		b.decoder, err = c.decoder(watched{b})
		b.content = b.decoder
	}
	if err != nil {
		return nil, errors.Join(errs.WrapAs(errs.Unavailable, "templatesvc.read", err), b.Close())
	}
	return b, nil
}

// decoder returns a pooled decoder if there is one, because they are expensive to create.
func (c *Client) decoder(r io.Reader) (*zstd.Decoder, error) {
	if d, ok := c.decoders.Get().(*zstd.Decoder); ok {
		return d, d.Reset(r)
	}
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(64<<20))
}

// body is content that is being read from a replica.
type body struct {
	client  *Client
	base    string
	cancel  context.CancelFunc
	timer   *time.Timer // runs during each wait for data
	silent  atomic.Bool // the timer has expired
	raw     io.ReadCloser
	content io.Reader // raw, with timeouts and decoded
	decoder *zstd.Decoder
}

func (b *body) Read(p []byte) (int, error) { return b.content.Read(p) }

// Close ends the call. Call it once.
func (b *body) Close() error {
	b.timer.Stop()
	if b.decoder != nil {
		if b.decoder.Reset(nil) == nil {
			b.client.decoders.Put(b.decoder)
		}
		b.decoder = nil
	}
	err := b.raw.Close()
	b.cancel()
	return err
}

// word returns an error that names the silent replica if the timer has expired.
func (b *body) word(err error) error {
	if !b.silent.Load() {
		return err
	}
	b.client.wasSilent(b.base)
	return errs.WrapAs(errs.Unavailable, "templatesvc.read", fmt.Errorf("%s has sent nothing for %v", b.base, b.client.cfg.Patience))
}

// watched reads the raw body with a timeout for each read.
type watched struct{ *body }

func (w watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.client.cfg.Patience)
	n, err := w.raw.Read(p)
	w.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = w.word(err)
	}
	return n, err
}
