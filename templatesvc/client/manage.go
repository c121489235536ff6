package client

import (
	"context"
	"net/http"
	"net/url"

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

// asked says who changes something, and from which head.
func asked(base, author string) string {
	return "?" + url.Values{"base": {base}, "author": {author}}.Encode()
}

// CreateTemplate makes a template without files, for author. AlreadyExists when there
// is one, Invalid when its name cannot be used.
func (c *Client) CreateTemplate(ctx context.Context, ref fleet.TemplateRef, d Description, author string) (fleet.TemplateHead, error) {
	var head fleet.TemplateHead
	err := c.callJSON(ctx, http.MethodPost, templatePath(ref)+asked("", author), d, &head)
	return head, errs.Wrap("templatesvc.CreateTemplate", err)
}

// DescribeTemplate changes what a template says of itself. NotFound when there is none,
// Conflict when its head is not base, unless that is "".
func (c *Client) DescribeTemplate(ctx context.Context, ref fleet.TemplateRef, d Description, base, author string) (fleet.TemplateHead, error) {
	var head fleet.TemplateHead
	err := c.callJSON(ctx, http.MethodPatch, templatePath(ref)+asked(base, author), d, &head)
	return head, errs.Wrap("templatesvc.DescribeTemplate", err)
}

// DeleteTemplate removes a template and its versions but those that plans are composed
// of. Errors as of DescribeTemplate.
func (c *Client) DeleteTemplate(ctx context.Context, ref fleet.TemplateRef, base, author string) error {
	err := c.callJSON(ctx, http.MethodDelete, templatePath(ref)+asked(base, author), nil, &struct{}{})
	return errs.Wrap("templatesvc.DeleteTemplate", err)
}

// DeleteVersion deletes a version. NotFound when there is none, Conflict when it is the
// head or in use.
func (c *Client) DeleteVersion(ctx context.Context, ref fleet.TemplateRef, digest, author string) error {
	err := c.callJSON(ctx, http.MethodDelete, templatePath(ref)+"/versions/"+url.PathEscape(digest)+asked("", author), nil, &struct{}{})
	return errs.Wrap("templatesvc.DeleteVersion", err)
}

// History are the moves of a template's head, oldest first; of one that was deleted too.
func (c *Client) History(ctx context.Context, ref fleet.TemplateRef) ([]fleet.TemplateMove, error) {
	var moves []fleet.TemplateMove
	err := c.callJSON(ctx, http.MethodGet, templatePath(ref)+"/history", nil, &moves)
	return moves, errs.Wrap("templatesvc.History", err)
}

// Diff tells how to come from one version to another. NotFound when no replica has both.
func (c *Client) Diff(ctx context.Context, from, to string) ([]fleet.FileChange, error) {
	var changes []fleet.FileChange
	err := c.callJSON(ctx, http.MethodGet, "/v1/diff?"+url.Values{"from": {from}, "to": {to}}.Encode(), nil, &changes)
	return changes, errs.Wrap("templatesvc.Diff", err)
}
