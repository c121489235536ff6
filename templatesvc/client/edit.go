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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// Headers of a change. Their text is escaped as in a query.
const (
	// HeaderActor is the header with the author of a change.
	HeaderActor = "X-Orrery-Actor"
	// HeaderMessage is the header with the message of a change.
	HeaderMessage = "X-Orrery-Message"
)

// Stale is the field of a Conflict when IfMatch or the revision does not match.
const Stale = "If-Match"

// Reused is the field of an Invalid error when Asked.Operation was used for another change
// within the last hour: of another template, kind or content.
const Reused = "Idempotency-Key"

// Change describes a change of a template and its preconditions.
type Change struct {
	Ref content.TemplateRef
	Asked
	Message string
	// Kind defaults to edit, or import for an archive or form.
	Kind content.MoveKind
	// Create creates the template if it does not exist.
	Create bool
	// Draft stages the change in the author's draft instead of publishing it.
	Draft bool
	// DryRun only computes the result of the change.
	DryRun bool
	// Path is the changed file or directory. IfMatch is the required hash of the file
	// there; "*" means any file, "" no condition.
	Path, IfMatch string
}

// Edited is the result of a change.
type Edited struct {
	Head content.TemplateHead `json:"head"`
	// Revision is the revision of the head in the store.
	Revision int64 `json:"revision"`
	// Paths lists the files that an upload wrote.
	Paths []string `json:"paths,omitempty"`
	// Files is the number of files in the extracted archives.
	Files int `json:"files,omitempty"`
	// Changes lists the files that a dry run would change, without the chunks of large
	// files. More is true when there are others.
	Changes []content.FileChange `json:"changes,omitempty"`
	More    bool                 `json:"more,omitempty"`
}

// Op is one operation: mkdir, rename, delete or extract.
type Op struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// To is the new path of a rename.
	To string `json:"to,omitempty"`
	// Remove deletes the archive after extract.
	Remove bool `json:"remove,omitempty"`
}

// Ops are operations that are performed in order, all or none.
type Ops struct {
	Ops []Op `json:"ops"`
}

// PutFile writes the file c.Path. Mode 0 keeps the mode of an existing file. With only,
// PutFile does not overwrite a file. It returns Malformed for an invalid path,
// AlreadyExists because of only, and Conflict when a directory or link is in the way or the
// template belongs to a source. If IfMatch does not match, the Conflict has the field
// Stale.
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

// Edit performs operations in order, all or none. It returns the errors of PutFile.
func (c *Client) Edit(ctx context.Context, ch Change, ops ...Op) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPost, "/edits", Ops{ops})
}

// Import adds the files of an archive to the directory c.Path of a template or, with
// replace, replaces all files by them. format is zip, tar, tar.gz or tar.zst; "" means that
// it is detected.
func (c *Client) Import(ctx context.Context, ch Change, replace bool, format string, body io.Reader) (Edited, error) {
	q := url.Values{"format": {format}}
	if replace {
		q.Set("replace", "true")
	}
	return c.change(ctx, ch, http.MethodPost, "/archive", q, upload{body: body})
}

// Upload writes the files of a form into the directory c.Path. With extract, it unpacks
// them as archives. contentType has the boundary of the form.
func (c *Client) Upload(ctx context.Context, ch Change, extract bool, contentType string, form io.Reader) (Edited, error) {
	return c.change(ctx, ch, http.MethodPost, "/upload", url.Values{"extract": {strconv.FormatBool(extract)}}, upload{body: form, kind: contentType})
}

// CreateOf creates a template from a form with the fields name, description, platform and
// file.
func (c *Client) CreateOf(ctx context.Context, ch Change, contentType string, form io.Reader) (Edited, error) {
	var out Edited
	err := c.send(ctx, http.MethodPost, "/v1/imports?dryRun="+strconv.FormatBool(ch.DryRun), ch, upload{body: form, kind: contentType}, &out)
	return out.revised(), errs.Wrap("templatesvc.CreateOf", err)
}

// Definitions are the variable definitions of a template.
type Definitions struct {
	Variables []content.Variable `json:"variables"`
}

// Define replaces the variable definitions of a template. It returns the errors of PutFile.
func (c *Client) Define(ctx context.Context, ch Change, d Definitions) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPut, "/variables", d)
}

// PublishDraft publishes the draft of c.Author; without a draft, the head stays as it is.
// It returns Conflict, with the files, when others have changed them meanwhile.
func (c *Client) PublishDraft(ctx context.Context, ch Change) (Edited, error) {
	return c.changeJSON(ctx, ch, http.MethodPost, "/draft/publish", nil)
}

// DropDraft deletes the draft of c.Author. It returns NotFound when there is none.
func (c *Client) DropDraft(ctx context.Context, ch Change) error {
	_, err := c.changeJSON(ctx, ch, http.MethodDelete, "/draft", nil)
	return err
}

func (c *Client) changeJSON(ctx context.Context, ch Change, method, what string, body any) (Edited, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return Edited{}, errs.WrapAs(errs.Internal, "templatesvc.encode", err)
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

// revised sets the revision of the head, which its JSON does not contain.
func (e Edited) revised() Edited {
	e.Head.SetRev(e.Head.CreateRev, e.Revision)
	return e
}

// upload is a body that can be sent once, or a payload that can be sent again.
type upload struct {
	body    io.Reader
	payload []byte
	kind    string // media type; "" means bytes
}

// send makes a call. If the body cannot be repeated, it tries another replica only if
// nothing of the body was read. All tries use the same operation ID.
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
		case broke != nil: // the sender's fault, so no other replica helps
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
		return errs.WrapAs(errs.Internal, "templatesvc.send", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.cfg.Secret)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return errs.Wrap("templatesvc.send", ctx.Err())
		}
		return errs.WrapAs(errs.Unavailable, "templatesvc.send", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return wire.DecodeError(resp)
	}
	return errs.WrapAs(errs.Unavailable, "templatesvc.decode", json.NewDecoder(io.LimitReader(resp.Body, content.MaxManifestBytes)).Decode(into))
}

// tracked records whether reading a body has begun, and its error.
type tracked struct {
	r io.Reader

	mu    sync.Mutex
	began bool
	err   error
}

// Read implements io.Reader.
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

// state returns whether reading has begun, and why the body could not be read completely.
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
