// Package sources serves the sources that templates, groups and the catalog are synchronized from.
package sources

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// API holds the handlers.
type API struct{ sources *sourceops.Sources }

// New returns the handlers.
func New(s *sourceops.Sources) *API { return &API{sources: s} }

// sourceFields are the writable fields of a source.
type sourceFields struct {
	Kind            content.SourceKind `json:"kind"`
	URL             string             `json:"url"`
	Program         string             `json:"program"`
	Branch          string             `json:"branch"`
	Tag             string             `json:"tag"`
	Commit          string             `json:"commit"`
	Path            string             `json:"path"`
	KnownHosts      string             `json:"knownHosts"`
	Bucket          string             `json:"bucket"`
	Prefix          string             `json:"prefix"`
	Region          string             `json:"region"`
	PathStyle       bool               `json:"pathStyle"`
	SHA256          string             `json:"sha256"`
	HashURL         string             `json:"hashUrl"`
	File            string             `json:"file"`
	Template        string             `json:"template"`
	Group           string             `json:"group"`
	Declares        bool               `json:"declares"`
	IntervalSeconds int                `json:"intervalSeconds"`
	Paused          bool               `json:"paused"`
}

// sourceView is a source in an answer.
type sourceView struct {
	Name string `json:"name"`
	sourceFields
	// CredentialNames are the names of its credentials. Their values are never shown.
	CredentialNames []string     `json:"credentialNames"`
	Status          sourceStatus `json:"status"`
	UpdatedBy       string       `json:"updatedBy"`
	CreatedAt       time.Time    `json:"createdAt"`
	UpdatedAt       time.Time    `json:"updatedAt"`
}

type sourceStatus struct {
	// State is IN_SYNC, FAILED, HELD or PAUSED. It is SYNCING until the latest change was checked.
	State    string `json:"state"`
	Message  string `json:"message"`
	Revision string `json:"revision"`
	// Held identifies the removals that wait for confirmation. It is "" if there are none.
	Held  string           `json:"held"`
	At    *time.Time       `json:"at"`
	Items []sourceTemplate `json:"items"`
}

type sourceTemplate struct {
	Template string `json:"template"`
	Hash     string `json:"hash"`
	Message  string `json:"message"`
}

// sourceBody is the body of a request. It accepts the read-only fields so that a client can send
// back what it read.
type sourceBody struct {
	Name *string `json:"name"`
	sourceFields
	// Credentials replace all credentials. Without the field they stay.
	Credentials     *content.SourceCredentials `json:"credentials"`
	CredentialNames json.RawMessage            `json:"credentialNames"`
	Status          json.RawMessage            `json:"status"`
	UpdatedBy       json.RawMessage            `json:"updatedBy"`
	CreatedAt       json.RawMessage            `json:"createdAt"`
	UpdatedAt       json.RawMessage            `json:"updatedAt"`
}

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/gitops", server.Needs(auth.GroupsView), a.gitops),
		server.Get("/api/v1/template-sources", server.Needs(auth.TemplatesView), a.listSources),
		server.Get("/api/v1/template-sources/:name", server.Needs(auth.TemplatesView), a.getSource),
		server.Put("/api/v1/template-sources/:name", server.Needs(auth.SystemSettings), a.putSource).Rehearses().Makes(),
		server.Delete("/api/v1/template-sources/:name", server.Needs(auth.SystemSettings), a.deleteSource).Rehearses(),
		server.Post("/api/v1/template-sources/:name/sync", server.Needs(auth.TemplatesUpdate), a.syncSource),
		server.Post("/api/v1/template-sources/:name/webhook", server.Public, a.sourceWebhook).Reads(server.Any),
	}
}

func sourceViewOf(s sourceops.Source) sourceView {
	v := sourceView{
		Name: s.Name,
		sourceFields: sourceFields{
			Kind: s.Kind, URL: s.URL, Program: s.Program, Branch: s.Branch, Tag: s.Tag, Commit: s.Commit, Path: s.Path, KnownHosts: s.KnownHosts,
			Bucket: s.Bucket, Prefix: s.Prefix, Region: s.Region, PathStyle: s.PathStyle, SHA256: s.SHA256, HashURL: s.HashURL, File: s.File,
			Group: s.Group, Declares: s.Declares, IntervalSeconds: int(s.Interval() / time.Second), Paused: s.Paused,
		},
		CredentialNames: s.Credentials, UpdatedBy: s.By, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		Status: sourceStatus{State: string(s.Status.State), Message: s.Status.Message, Revision: s.Status.Revision, Held: s.Status.Held, Items: []sourceTemplate{}},
	}
	if s.Template != (content.TemplateRef{}) {
		v.Template = s.Template.Short()
	}
	if s.Status.Observed != s.ModRev {
		v.Status.State, v.Status.Message, v.Status.Held = "SYNCING", "", ""
	}
	if !s.Status.At.IsZero() {
		v.Status.At = &s.Status.At
	}
	for _, i := range s.Status.Items {
		v.Status.Items = append(v.Status.Items, sourceTemplate{Template: i.Template.Short(), Hash: i.Digest, Message: i.Message})
	}
	return v
}

func (f sourceFields) record(name string) content.TemplateSource {
	s := content.TemplateSource{
		Name: name, Kind: f.Kind, URL: f.URL, Program: f.Program, Branch: f.Branch, Tag: f.Tag, Commit: f.Commit, Path: f.Path, KnownHosts: f.KnownHosts,
		Bucket: f.Bucket, Prefix: f.Prefix, Region: f.Region, PathStyle: f.PathStyle, SHA256: strings.ToLower(f.SHA256), HashURL: f.HashURL, File: f.File,
		Group: f.Group, Declares: f.Declares, IntervalSeconds: f.IntervalSeconds, Paused: f.Paused,
	}
	if f.Template != "" {
		s.Template = content.ParseTemplateRef(f.Template)
	}
	if s.IntervalSeconds == content.DefaultSourceInterval {
		s.IntervalSeconds = 0 // the stored form of the default
	}
	return s
}

func (a *API) listSources(c *gin.Context) {
	all, err := a.sources.List(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.SendPage(c, all, resource.MediumPage, sourceViewOf)
}

func (a *API) getSource(c *gin.Context) {
	s, err := a.sources.Get(c.Request.Context(), c.Param("name"))
	resource.SendRecord(c, sourceViewOf(s), s.ModRev, err)
}

// putSource creates or replaces a source.
func (a *API) putSource(c *gin.Context) {
	var b sourceBody
	name, rev, ok := resource.BindRecord(c, "source", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	w := sourceops.SourceWrite{Source: b.record(name), Credentials: b.Credentials, IfMatch: rev, DryRun: server.DryRun(c)}
	written, created, err := a.sources.Write(c.Request.Context(), server.Actor(c), w)
	switch shown := sourceViewOf(written); {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "created": created, "source": shown})
	default:
		resource.SendPut(c, created, written.ModRev, shown)
	}
}

func (a *API) deleteSource(c *gin.Context) {
	resource.DeleteRecord(c, a.sources.Delete, gin.H{"dryRun": true})
}

// syncSource starts a synchronization. The status of the source shows the result.
func (a *API) syncSource(c *gin.Context) {
	var b struct {
		// Confirm is the status.held of the removals to confirm.
		Confirm string `json:"confirm"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	if b.Confirm != "" {
		s, err := a.sources.Get(c.Request.Context(), c.Param("name"))
		if err == nil {
			err = mayConfirm(c, s.Declares)
		}
		if err != nil {
			server.Fail(c, err)
			return
		}
	}
	if err := a.sources.Sync(c.Request.Context(), server.Actor(c), c.Param("name"), b.Confirm); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}

// mayConfirm returns Denied if the caller may not delete what the source removes.
func mayConfirm(c *gin.Context, declares bool) error {
	for _, p := range []auth.Permission{auth.TemplatesDelete, auth.GroupsDelete, auth.CatalogManage} {
		if (p == auth.TemplatesDelete || declares) && !server.Allowed(c, p) {
			return errs.New(errs.Denied, "confirming the removals requires the permission %s", p)
		}
	}
	return nil
}

// sourceWebhook handles the webhook of a Git forge.
func (a *API) sourceWebhook(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, wire.BodyLimit))
	if err != nil {
		err = errs.New(errs.TooLarge, "cannot read the webhook, or it is larger than 1 MiB: send fewer events")
	} else {
		err = a.sources.Webhook(c.Request.Context(), server.Actor(c), c.Param("name"), sourceops.Call{
			Body: body, Signature: c.GetHeader("X-Hub-Signature-256"), Token: c.GetHeader("X-Gitlab-Token"),
		})
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}
