package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Description is the description and the platform of a template. Nil fields stay unchanged.
type Description struct {
	Description *string `json:"description,omitempty"`
	Platform    *string `json:"platform,omitempty"`
}

// templatePath returns the URL path of a template.
func templatePath(ref content.TemplateRef) string {
	return "/v1/templates/" + url.PathEscape(ref.Group) + "/" + url.PathEscape(ref.Name)
}

// Asked describes a requested change: who requests it, its operation ID and its
// precondition.
type Asked struct {
	Author string
	// Owner is the stable ID of the drafts' owner, in letters and digits. Empty means the
	// author's name.
	Owner string
	// Operation is the idempotency key, in letters and digits. A change that is repeated
	// within an hour is not made twice, but returns its first result. Another change with
	// the same key is Invalid with the field Reused. If it is empty, each call uses a
	// random key for its retries.
	Operation string
	// Request identifies the content of the request, in letters and digits, for requests
	// whose body may differ each time. Empty means that the body identifies it.
	Request string
	// Revision is the required revision of the template or, for a change of a draft, of the
	// draft; 0 means any. If it does not match, the Conflict has the field Stale.
	Revision int64
	// Shown is which values the author may see. A change that would remove or change the
	// definition of a hidden variable, also by a rollback, is Denied. The error names the
	// variable.
	Shown content.Visibility
}

// Headers with the fields of Asked.
const (
	HeaderOwner     = "X-Orrery-Owner"
	HeaderOperation = "X-Orrery-Operation"
	HeaderRequest   = "X-Orrery-Request"
	HeaderShown     = "X-Orrery-Shown"
)

// header returns the headers for a.
func (a Asked) header() http.Header {
	h := http.Header{}
	h.Set(HeaderActor, url.QueryEscape(a.Author))
	h.Set(HeaderOwner, a.Owner)
	h.Set(HeaderOperation, cmp.Or(a.Operation, rand.Text()))
	h.Set(HeaderRequest, a.Request)
	h.Set(HeaderShown, string(a.Shown))
	return h
}

// query adds the query parameters for a.
func (a Asked) query(q url.Values) {
	if a.Revision != 0 {
		q.Set("revision", strconv.FormatInt(a.Revision, 10))
	}
}

// manage makes a change whose answer is a head.
func (c *Client) manage(ctx context.Context, method, path string, body any, by Asked) (content.TemplateHead, error) {
	q := url.Values{}
	by.query(q)
	var out Edited
	err := c.callAs(ctx, method, path+"?"+q.Encode(), by.header(), body, &out)
	return out.revised().Head, err
}

// CreateTemplate creates a template without files. It returns AlreadyExists when the
// template exists, and Invalid when its name is not valid.
func (c *Client) CreateTemplate(ctx context.Context, ref content.TemplateRef, d Description, by Asked) (content.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPost, templatePath(ref), d, by)
	return head, errs.Wrap("templatesvc.CreateTemplate", err)
}

// DescribeTemplate changes a template's description. It returns NotFound when the template
// does not exist, and Conflict when the revision does not match.
func (c *Client) DescribeTemplate(ctx context.Context, ref content.TemplateRef, d Description, by Asked) (content.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPatch, templatePath(ref), d, by)
	return head, errs.Wrap("templatesvc.DescribeTemplate", err)
}

// DeleteTemplate removes a template and all versions that no plan uses. It returns the
// errors of DescribeTemplate.
func (c *Client) DeleteTemplate(ctx context.Context, ref content.TemplateRef, by Asked) error {
	_, err := c.manage(ctx, http.MethodDelete, templatePath(ref), nil, by)
	return errs.Wrap("templatesvc.DeleteTemplate", err)
}

// DeleteVersion deletes a version. It returns NotFound when it does not exist, and Conflict
// when it is the head or in use.
func (c *Client) DeleteVersion(ctx context.Context, ref content.TemplateRef, digest string, by Asked) error {
	_, err := c.manage(ctx, http.MethodDelete, templatePath(ref)+"/versions/"+url.PathEscape(digest), nil, by)
	return errs.Wrap("templatesvc.DeleteVersion", err)
}

// History returns the moves of a template's head, oldest first. It also works for deleted
// templates.
func (c *Client) History(ctx context.Context, ref content.TemplateRef) ([]content.TemplateMove, error) {
	var moves []content.TemplateMove
	err := c.callJSON(ctx, http.MethodGet, templatePath(ref)+"/history", nil, &moves)
	return moves, errs.Wrap("templatesvc.History", err)
}

// Difference lists the differences between two versions.
type Difference struct {
	// Changes are sorted by path, without the chunks of large files.
	Changes []content.FileChange `json:"changes"`
	// More is true when there are more changes.
	More bool `json:"more,omitempty"`
}

// Diff compares two versions; with a path, only that file. It returns NotFound when no
// replica has both.
func (c *Client) Diff(ctx context.Context, from, to, path string) (Difference, error) {
	var out Difference
	err := c.callJSON(ctx, http.MethodGet, "/v1/diff?"+url.Values{"from": {from}, "to": {to}, "path": {path}}.Encode(), nil, &out)
	return out, errs.Wrap("templatesvc.Diff", err)
}
