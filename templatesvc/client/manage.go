package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Description is what a template says of itself beside its files; nil says nothing.
type Description struct {
	Description *string `json:"description,omitempty"`
	Platform    *string `json:"platform,omitempty"`
}

// templatePath is the path of one template's routes.
func templatePath(ref fleet.TemplateRef) string {
	return "/v1/templates/" + url.PathEscape(ref.Group) + "/" + url.PathEscape(ref.Name)
}

// Asked says who asks for a change, which one it is, and under which condition.
type Asked struct {
	Author string
	// Owner is whose drafts are meant, whatever the author is called meanwhile, in letters and
	// digits; empty: those of the author's name.
	Owner string
	// Operation names the change, in letters and digits: asked for again within the hour
	// it is not made twice, but answered with what it came to; another change under its
	// name is Invalid and blames Reused. Each call that leaves it empty gets a name of
	// its own, under which it is repeated where an answer was lost.
	Operation string
	// Request tells what is asked for from others under one Operation, in letters and digits,
	// where what is sent for it may differ each time. Empty: what is sent tells.
	Request string
	// Revision is the one that the template must still have, or of what concerns a draft
	// the draft; 0 for any. A Conflict blames Stale when it does not hold.
	Revision int64
	// Shown is what of the values that not everybody is shown the author is: definitions of
	// variables that are hidden from them are not removed or changed with the template, or
	// by going back to a version without them. Denied names the variable.
	Shown fleet.Visibility
}

// Headers of a change that say more of who asks for it: HeaderOperation names it,
// HeaderOwner, HeaderRequest and HeaderShown have Asked.Owner, Asked.Request and Asked.Shown.
const (
	HeaderOwner     = "X-Orrery-Owner"
	HeaderOperation = "X-Orrery-Operation"
	HeaderRequest   = "X-Orrery-Request"
	HeaderShown     = "X-Orrery-Shown"
)

// header is what of it travels in headers.
func (a Asked) header() http.Header {
	h := http.Header{}
	h.Set(HeaderActor, url.QueryEscape(a.Author))
	h.Set(HeaderOwner, a.Owner)
	h.Set(HeaderOperation, cmp.Or(a.Operation, rand.Text()))
	h.Set(HeaderRequest, a.Request)
	h.Set(HeaderShown, string(a.Shown))
	return h
}

// query is what of it travels in a query, which it adds to.
func (a Asked) query(q url.Values) {
	if a.Revision != 0 {
		q.Set("revision", strconv.FormatInt(a.Revision, 10))
	}
}

// manage makes a change that is answered with a head.
func (c *Client) manage(ctx context.Context, method, path string, body any, by Asked) (fleet.TemplateHead, error) {
	q := url.Values{}
	by.query(q)
	var out Edited
	err := c.callAs(ctx, method, path+"?"+q.Encode(), by.header(), body, &out)
	return out.revised().Head, err
}

// CreateTemplate makes a template without files. AlreadyExists when there is one, Invalid
// when its name cannot be used.
func (c *Client) CreateTemplate(ctx context.Context, ref fleet.TemplateRef, d Description, by Asked) (fleet.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPost, templatePath(ref), d, by)
	return head, errs.Wrap("templatesvc.CreateTemplate", err)
}

// DescribeTemplate changes what a template says of itself. NotFound when there is none,
// Conflict as of Asked.
func (c *Client) DescribeTemplate(ctx context.Context, ref fleet.TemplateRef, d Description, by Asked) (fleet.TemplateHead, error) {
	head, err := c.manage(ctx, http.MethodPatch, templatePath(ref), d, by)
	return head, errs.Wrap("templatesvc.DescribeTemplate", err)
}

// DeleteTemplate removes a template and its versions but those that plans are composed
// of. Errors as of DescribeTemplate.
func (c *Client) DeleteTemplate(ctx context.Context, ref fleet.TemplateRef, by Asked) error {
	_, err := c.manage(ctx, http.MethodDelete, templatePath(ref), nil, by)
	return errs.Wrap("templatesvc.DeleteTemplate", err)
}

// DeleteVersion deletes a version. NotFound when there is none, Conflict when it is the
// head or in use.
func (c *Client) DeleteVersion(ctx context.Context, ref fleet.TemplateRef, digest string, by Asked) error {
	_, err := c.manage(ctx, http.MethodDelete, templatePath(ref)+"/versions/"+url.PathEscape(digest), nil, by)
	return errs.Wrap("templatesvc.DeleteVersion", err)
}

// History are the moves of a template's head, oldest first; of one that was deleted too.
func (c *Client) History(ctx context.Context, ref fleet.TemplateRef) ([]fleet.TemplateMove, error) {
	var moves []fleet.TemplateMove
	err := c.callJSON(ctx, http.MethodGet, templatePath(ref)+"/history", nil, &moves)
	return moves, errs.Wrap("templatesvc.History", err)
}

// Difference is how to come from one version to another.
type Difference struct {
	// Changes are in order of path, without the chunks of large files.
	Changes []fleet.FileChange `json:"changes"`
	// More says that there are others, which are not told.
	More bool `json:"more,omitempty"`
}

// Diff tells how to come from one version to another; with a path of that file only.
// NotFound when no replica has both.
func (c *Client) Diff(ctx context.Context, from, to, path string) (Difference, error) {
	var out Difference
	err := c.callJSON(ctx, http.MethodGet, "/v1/diff?"+url.Values{"from": {from}, "to": {to}, "path": {path}}.Encode(), nil, &out)
	return out, errs.Wrap("templatesvc.Diff", err)
}
