package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Headers of a change; their text is escaped as in a query.
const (
	// HeaderActor names who makes a change.
	HeaderActor = "X-Orrery-Actor"
	// HeaderMessage says what for.
	HeaderMessage = "X-Orrery-Message"
)

// Stale is the field that an error of Kind Conflict blames when IfMatch did not hold.
const Stale = "If-Match"

// Reused is the field that an error of Kind Invalid blames when another change was made
// under the same Asked.Operation within the hour: of another template, kind or content.
const Reused = "Idempotency-Key"

// Change says what is changed, by whom and under which conditions.
type Change struct {
	Ref fleet.TemplateRef
	Asked
	Message string
	// Kind is edit, or import of an archive or form, when it is empty.
	Kind fleet.MoveKind
	// Create makes the template when it does not exist.
	Create bool
	// Draft stages the change in the author's draft instead of publishing it.
	Draft bool
	// DryRun changes nothing and tells what would.
	DryRun bool
	// Path is the file or directory that is changed, IfMatch the hash the file there
	// must have, "*" any; empty demands nothing.
	Path, IfMatch string
}

// Edited is what a change came to.
type Edited struct {
	Head fleet.TemplateHead `json:"head"`
	// Revision is the head's in the store.
	Revision int64 `json:"revision"`
	// Paths are the files an upload wrote.
	Paths []string `json:"paths,omitempty"`
	// Files counts what the archives held that operations extracted.
	Files int `json:"files,omitempty"`
	// Changes are the files that a dry run would have changed, without the chunks of
	// large ones; More says that there are others.
	Changes []fleet.FileChange `json:"changes,omitempty"`
	More    bool               `json:"more,omitempty"`
}

// Op is one operation: mkdir, rename, delete or extract.
type Op struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// To is a rename's new path.
	To string `json:"to,omitempty"`
	// Remove deletes an archive that was extracted.
	Remove bool `json:"remove,omitempty"`
}

// Ops are operations, performed in order, all or none.
type Ops struct {
	Ops []Op `json:"ops"`
}

// PutFile writes what body yields into the file c.Path. mode 0 keeps the file's; only
// refuses to write over one. Malformed for a path that leads out, AlreadyExists as only
// says, Conflict when something else stands in the way or the template comes from a
// source; blaming Stale when IfMatch does not hold.
func (c *Client) PutFile(ctx context.Context, ch Change, mode uint32, only bool, body io.Reader) (Edited, error) {
	q := url.Values{}
	if mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(mode), 8))
	}
	if only {
		q.Set("only", "true")
	}
	return c.change(ctx, ch, http.MethodPut, "/file", q, upload{body: body})
}

// Edit performs operations in order, all or none. Errors as of PutFile.
func (c *Client) Edit(ctx context.Context, ch Change, ops ...Op) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPost, "/edits", Ops{ops})
}

// Import lays an archive over the directory c.Path of a template, or with replace puts it
// in the place of all its files. format is zip, tar, tar.gz or tar.zst; empty: found out.
func (c *Client) Import(ctx context.Context, ch Change, replace bool, format string, body io.Reader) (Edited, error) {
	q := url.Values{"format": {format}}
	if replace {
		q.Set("replace", "true")
	}
	return c.change(ctx, ch, http.MethodPost, "/archive", q, upload{body: body})
}

// Upload writes the files of a form into the directory c.Path; with extract, what the
// archives among them hold. contentType tells the form's boundary.
func (c *Client) Upload(ctx context.Context, ch Change, extract bool, contentType string, form io.Reader) (Edited, error) {
	return c.change(ctx, ch, http.MethodPost, "/upload", url.Values{"extract": {strconv.FormatBool(extract)}}, upload{body: form, kind: contentType})
}

// CreateOf makes a template of a form with the fields name, description, platform and file.
func (c *Client) CreateOf(ctx context.Context, ch Change, contentType string, form io.Reader) (Edited, error) {
	var out Edited
	err := c.send(ctx, http.MethodPost, "/v1/imports?dryRun="+strconv.FormatBool(ch.DryRun), ch, upload{body: form, kind: contentType}, &out)
	return out.revised(), errs.Wrap("templatesvc.CreateOf", err)
}

// Definitions are the definitions of a template's variables.
type Definitions struct {
	Variables []fleet.Variable `json:"variables"`
}

// Define replaces the definitions of a template's variables. Errors as of PutFile.
func (c *Client) Define(ctx context.Context, ch Change, d Definitions) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPut, "/variables", d)
}

// PublishDraft makes what c.Author has staged the head; without a draft that stays as it
// is. Conflict, naming the files, when others changed them since.
func (c *Client) PublishDraft(ctx context.Context, ch Change) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPost, "/draft/publish", nil)
}

// DropDraft forgets what c.Author has staged. NotFound when there is nothing.
func (c *Client) DropDraft(ctx context.Context, ch Change) error {
	_, err := c.changeJSON(ctx, ch, http.MethodDelete, "/draft", nil)
	return err
}

func (c *Client) changeJSON(ctx context.Context, ch Change, method, what string, body any) (Edited, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return Edited{}, errs.As(errs.Internal, "templatesvc.encode", err)
	}
	return c.change(ctx, ch, method, what, url.Values{}, upload{payload: payload, kind: "application/json"})
}

func (c *Client) change(ctx context.Context, ch Change, method, what string, q url.Values, up upload) (Edited, error) {
	for key, set := range map[string]bool{"create": ch.Create, "draft": ch.Draft, "dryRun": ch.DryRun} {
		if set {
			q.Set(key, "true")
		}
	}
	for key, text := range map[string]string{"path": ch.Path, "kind": string(ch.Kind)} {
		if text != "" {
			q.Set(key, text)
		}
	}
	ch.query(q)
	var out Edited
	err := c.send(ctx, method, templatePath(ch.Ref)+what+"?"+q.Encode(), ch, up, &out)
	return out.revised(), errs.Wrap("templatesvc.change", err)
}

// revised is the outcome with the revision in the head, where it does not travel.
func (e Edited) revised() Edited {
	e.Head.SetRev(e.Head.CreateRev, e.Revision)
	return e
}

// upload is a body that can be sent once, or a payload that can be sent again.
type upload struct {
	body    io.Reader
	payload []byte
	kind    string // its media type; empty: bytes
}

// send makes a call. Where its body cannot be repeated, another replica is asked only as
// long as nothing of it was read. All tries are one operation.
func (c *Client) send(ctx context.Context, method, path string, ch Change, up upload, into any) error {
	urls := c.cfg.Resolve()
	err := noReplica()
	header := ch.header()
	header.Set("Content-Type", cmp.Or(up.kind, "application/octet-stream"))
	header.Set(HeaderMessage, url.QueryEscape(ch.Message))
	if ch.IfMatch != "" {
		header.Set("If-Match", ch.IfMatch)
	}
	body := &tracked{r: up.body}
	for _, n := range rand.Perm(len(urls)) {
		if up.payload != nil {
			body = &tracked{r: bytes.NewReader(up.payload)}
		}
		err = c.sendTo(ctx, method, urls[n]+path, header, body, into)
		began, broke := body.state()
		switch {
		case broke != nil: // nobody is at fault but who sends it
			return broke
		case !errs.Is(err, errs.Unavailable), began && up.payload == nil:
			return err
		}
	}
	return err
}

func (c *Client) sendTo(ctx context.Context, method, target string, header http.Header, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, target, io.NopCloser(body))
	if err != nil {
		return errs.As(errs.Internal, "templatesvc.send", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.cfg.Secret)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return errs.Wrap("templatesvc.send", ctx.Err())
		}
		return errs.As(errs.Unavailable, "templatesvc.send", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return wire.DecodeError(resp)
	}
	return errs.As(errs.Unavailable, "templatesvc.decode", json.NewDecoder(io.LimitReader(resp.Body, fleet.MaxManifestBytes)).Decode(into))
}

// tracked knows whether a body was begun, and what it failed with.
type tracked struct {
	r io.Reader

	mu    sync.Mutex
	began bool
	err   error
}

// Read reads on.
func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = true
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

// state is whether the body was begun, and why it could not be read to its end.
func (t *tracked) state() (began bool, broke error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var large *http.MaxBytesError
	switch {
	case t.err == nil:
		return t.began, nil
	case errors.As(t.err, &large):
		return true, errs.New(errs.TooLarge, "the body is larger than %d bytes", large.Limit)
	}
	return true, &errs.Error{Op: "templatesvc.send", Kind: errs.Malformed, Message: "the body could not be read to its end", Err: t.err}
}
