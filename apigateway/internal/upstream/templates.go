package upstream

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// templateService is how the sessions of templatesvc are filed.
const templateService = "templatesvc"

// Templates reaches templatesvc for what only it may do.
type Templates struct {
	client *client.Client
	// bulk has connections of its own: what takes long keeps them.
	bulk     *client.Client
	breakers *breakers
}

// NewTemplates makes a client of the replicas in the view; bulk is for uploads. Calls that
// nothing comes of are given up.
func NewTemplates(h *Health, v *view.View, secret string, httpClient, bulk *http.Client, log *slog.Logger) *Templates {
	resolve := func() []string {
		var urls []string
		for _, s := range v.Snapshot().ServiceSessions(templateService) {
			if s.URL != "" {
				urls = append(urls, s.URL)
			}
		}
		return urls
	}
	return &Templates{
		client:   client.New(client.Config{Resolve: resolve, Secret: secret, HTTP: attend(httpClient, askPatience), Log: log}),
		bulk:     client.New(client.Config{Resolve: resolve, Secret: secret, HTTP: attend(bulk, uploadPatience), Log: log}),
		breakers: h.of[kindTemplates],
	}
}

// Files lists a directory of a version, or with deep all below it. Errors as of client.Files.
func (t *Templates) Files(ctx context.Context, digest, dir string, deep bool) ([]fleet.ManifestEntry, error) {
	return ask(t, func() ([]fleet.ManifestEntry, error) { return t.client.Files(ctx, digest, dir, deep) })
}

// File opens a file of a version. Errors as of client.File.
func (t *Templates) File(ctx context.Context, digest, path string) (*client.File, error) {
	return ask(t, func() (*client.File, error) { return t.client.File(ctx, digest, path) })
}

// Search looks for a text in a version. Errors as of client.Search.
func (t *Templates) Search(ctx context.Context, digest, text string, most int) (client.Found, error) {
	return ask(t, func() (client.Found, error) { return t.client.Search(ctx, digest, text, most) })
}

// Placeholders are the keys that a version's files use.
func (t *Templates) Placeholders(ctx context.Context, digest string) (client.Placeholders, error) {
	return ask(t, func() (client.Placeholders, error) { return t.client.Placeholders(ctx, digest) })
}

// Archive packs a directory of a version. Errors as of client.Archive.
func (t *Templates) Archive(ctx context.Context, digest, dir, format string) (io.ReadCloser, error) {
	return ask(t, func() (io.ReadCloser, error) { return t.client.Archive(ctx, digest, dir, format) })
}

// Export packs a version with the definitions of its variables. Errors as of client.Export.
func (t *Templates) Export(ctx context.Context, digest, format string, most fleet.Visibility) (io.ReadCloser, error) {
	return ask(t, func() (io.ReadCloser, error) { return t.client.Export(ctx, digest, format, most) })
}

// PutFile writes a file. Errors as of client.PutFile.
func (t *Templates) PutFile(ctx context.Context, c client.Change, only bool, body io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.PutFile(ctx, c, 0, only, body) })
}

// Edit performs operations, all or none. Errors as of client.Edit.
func (t *Templates) Edit(ctx context.Context, c client.Change, ops ...client.Op) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Edit(ctx, c, ops...) })
}

// Import lays an archive over a directory of a template. Errors as of client.Import.
func (t *Templates) Import(ctx context.Context, c client.Change, format string, body io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Import(ctx, c, false, format, body) })
}

// Upload writes the files of a form and tells their paths. Errors as of client.Upload.
func (t *Templates) Upload(ctx context.Context, c client.Change, extract bool, kind string, form io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Upload(ctx, c, extract, kind, form) })
}

// CreateOf makes a template of a form. Errors as of client.CreateOf.
func (t *Templates) CreateOf(ctx context.Context, c client.Change, kind string, form io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.CreateOf(ctx, c, kind, form) })
}

// Create makes an empty template. Errors as of client.CreateTemplate.
func (t *Templates) Create(ctx context.Context, ref fleet.TemplateRef, d client.Description, by client.Asked) (fleet.TemplateHead, error) {
	return ask(t, func() (fleet.TemplateHead, error) { return t.client.CreateTemplate(ctx, ref, d, by) })
}

// Describe changes what a template says of itself. Errors as of client.DescribeTemplate.
func (t *Templates) Describe(ctx context.Context, ref fleet.TemplateRef, d client.Description, by client.Asked) (fleet.TemplateHead, error) {
	return ask(t, func() (fleet.TemplateHead, error) { return t.client.DescribeTemplate(ctx, ref, d, by) })
}

// Delete removes a template. Errors as of client.DeleteTemplate.
func (t *Templates) Delete(ctx context.Context, ref fleet.TemplateRef, by client.Asked) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DeleteTemplate(ctx, ref, by) })
	return err
}

// DeleteVersion removes a version. Errors as of client.DeleteVersion.
func (t *Templates) DeleteVersion(ctx context.Context, ref fleet.TemplateRef, digest string, by client.Asked) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DeleteVersion(ctx, ref, digest, by) })
	return err
}

// Diff tells how to come from one version to another. Errors as of client.Diff.
func (t *Templates) Diff(ctx context.Context, from, to, path string) (client.Difference, error) {
	return ask(t, func() (client.Difference, error) { return t.client.Diff(ctx, from, to, path) })
}

// Define replaces the definitions of a template's variables. Errors as of client.Define.
func (t *Templates) Define(ctx context.Context, c client.Change, variables []fleet.Variable) (client.Edited, error) {
	return ask(t, func() (client.Edited, error) {
		return t.client.Define(ctx, c, client.Definitions{Variables: variables})
	})
}

// Variables are the definitions that a version has. Errors as of client.Manifest.
func (t *Templates) Variables(ctx context.Context, digest string) ([]fleet.Variable, error) {
	return ask(t, func() ([]fleet.Variable, error) {
		body, err := t.client.Manifest(ctx, digest)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, fleet.MaxManifestBytes+1))
		if err != nil {
			return nil, errs.As(errs.Unavailable, "upstream.Variables", err)
		}
		m, err := fleet.DecodeManifest(b, digest, fleet.VersionLimits())
		return m.Variables, err
	})
}

// PublishDraft publishes what c.Author has staged. Errors as of client.PublishDraft.
func (t *Templates) PublishDraft(ctx context.Context, c client.Change) (client.Edited, error) {
	return ask(t, func() (client.Edited, error) { return t.client.PublishDraft(ctx, c) })
}

// DropDraft forgets what c.Author has staged. Errors as of client.DropDraft.
func (t *Templates) DropDraft(ctx context.Context, c client.Change) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DropDraft(ctx, c) })
	return err
}

// Pin tells the hash of what a URL has. Errors as of client.Pin.
func (t *Templates) Pin(ctx context.Context, url string) (fleet.Content, error) {
	return send(t, func(to *client.Client) (fleet.Content, error) { return to.Pin(ctx, url) })
}

// ask calls through the one breaker: any replica answers.
func ask[T any](t *Templates, f func() (T, error)) (T, error) {
	return through(t.breakers, templateService, "the template service", f)
}

// send is ask for what may take minutes.
func send[T any](t *Templates, f func(to *client.Client) (T, error)) (T, error) {
	return beside(t.breakers, templateService, "the template service", func() (T, error) { return f(t.bulk) })
}

// Text reports whether a file's content is text: UTF-8 without NUL. Where only a part of
// the content is at hand, its last character may be cut.
func Text(content []byte, whole bool) bool {
	if !whole {
		for range min(len(content), utf8.UTFMax) {
			if r, _ := utf8.DecodeLastRune(content); r != utf8.RuneError {
				break
			}
			content = content[:len(content)-1]
		}
	}
	return bytes.IndexByte(content, 0) < 0 && utf8.Valid(content)
}

// Rollback makes an older version the current one; an empty digest means the one
// before. NotFound when there is no such template or version.
func (t *Templates) Rollback(ctx context.Context, ref fleet.TemplateRef, digest string, by client.Asked) (fleet.TemplateHead, error) {
	return ask(t, func() (fleet.TemplateHead, error) {
		return t.client.Rollback(ctx, ref, client.RollbackRequest{Digest: digest}, by)
	})
}
