package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// sourceFields are what may be written of a source of templates.
type sourceFields struct {
	Kind            fleet.SourceKind `json:"kind"`
	URL             string           `json:"url"`
	Program         string           `json:"program"`
	Branch          string           `json:"branch"`
	Tag             string           `json:"tag"`
	Commit          string           `json:"commit"`
	Path            string           `json:"path"`
	KnownHosts      string           `json:"knownHosts"`
	Bucket          string           `json:"bucket"`
	Prefix          string           `json:"prefix"`
	Region          string           `json:"region"`
	PathStyle       bool             `json:"pathStyle"`
	SHA256          string           `json:"sha256"`
	HashURL         string           `json:"hashUrl"`
	File            string           `json:"file"`
	Template        string           `json:"template"`
	Group           string           `json:"group"`
	Declares        bool             `json:"declares"`
	IntervalSeconds int              `json:"intervalSeconds"`
	Paused          bool             `json:"paused"`
}

// sourceView is a source as it is read.
type sourceView struct {
	Name string `json:"name"`
	sourceFields
	// CredentialNames are the credentials it has, whose values are shown to nobody.
	CredentialNames []string     `json:"credentialNames"`
	Status          sourceStatus `json:"status"`
	UpdatedBy       string       `json:"updatedBy"`
	CreatedAt       time.Time    `json:"createdAt"`
	UpdatedAt       time.Time    `json:"updatedAt"`
}

type sourceStatus struct {
	// State is IN_SYNC, FAILED, HELD or PAUSED; SYNCING until its latest change was looked at.
	State    string `json:"state"`
	Message  string `json:"message"`
	Revision string `json:"revision"`
	// Held names the removals that wait to be confirmed; "" when none do.
	Held  string           `json:"held"`
	At    *time.Time       `json:"at"`
	Items []sourceTemplate `json:"items"`
}

type sourceTemplate struct {
	Template string `json:"template"`
	Hash     string `json:"hash"`
	Message  string `json:"message"`
}

// sourceBody is what a client sends; what can only be read is taken and ignored.
type sourceBody struct {
	Name *string `json:"name"`
	sourceFields
	// Credentials replace all there are; without them those there are stay.
	Credentials     *fleet.SourceCredentials `json:"credentials"`
	CredentialNames json.RawMessage          `json:"credentialNames"`
	Status          json.RawMessage          `json:"status"`
	UpdatedBy       json.RawMessage          `json:"updatedBy"`
	CreatedAt       json.RawMessage          `json:"createdAt"`
	UpdatedAt       json.RawMessage          `json:"updatedAt"`
}

// sourceRoutes are where templates are published from, and what repositories declare.
func (a *API) sourceRoutes() []server.Route {
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

func sourceViewOf(s operate.Source) sourceView {
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
	if s.Template != (fleet.TemplateRef{}) {
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

func (f sourceFields) record(name string) fleet.TemplateSource {
	s := fleet.TemplateSource{
		Name: name, Kind: f.Kind, URL: f.URL, Program: f.Program, Branch: f.Branch, Tag: f.Tag, Commit: f.Commit, Path: f.Path, KnownHosts: f.KnownHosts,
		Bucket: f.Bucket, Prefix: f.Prefix, Region: f.Region, PathStyle: f.PathStyle, SHA256: strings.ToLower(f.SHA256), HashURL: f.HashURL, File: f.File,
		Group: f.Group, Declares: f.Declares, IntervalSeconds: f.IntervalSeconds, Paused: f.Paused,
	}
	if f.Template != "" {
		s.Template = fleet.ParseTemplateRef(f.Template)
	}
	if s.IntervalSeconds == fleet.DefaultSourceInterval {
		s.IntervalSeconds = 0 // as it is stored when nobody says otherwise
	}
	return s
}

func (a *API) listSources(c *gin.Context) {
	all, err := a.cfg.Sources.List(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.SendPage(c, all, pageSome, sourceViewOf)
}

func (a *API) getSource(c *gin.Context) {
	s, err := a.cfg.Sources.Get(c.Request.Context(), c.Param("name"))
	sendRecord(c, sourceViewOf(s), s.ModRev, err)
}

// putSource creates or replaces.
func (a *API) putSource(c *gin.Context) {
	var b sourceBody
	name, rev, ok := bindRecord(c, "source", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	w := operate.SourceWrite{Source: b.record(name), Credentials: b.Credentials, IfMatch: rev, DryRun: server.DryRun(c)}
	written, created, err := a.cfg.Sources.Write(c.Request.Context(), server.Actor(c), w)
	switch shown := sourceViewOf(written); {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "created": created, "source": shown})
	default:
		sendPut(c, created, written.ModRev, shown)
	}
}

func (a *API) deleteSource(c *gin.Context) {
	deleteRecord(c, a.cfg.Sources.Delete, gin.H{"dryRun": true})
}

// syncSource has a source looked at; its status tells what came of it.
func (a *API) syncSource(c *gin.Context) {
	var b struct {
		// Confirm is the held of the status that may go.
		Confirm string `json:"confirm"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	if b.Confirm != "" {
		s, err := a.cfg.Sources.Get(c.Request.Context(), c.Param("name"))
		if err == nil {
			err = mayConfirm(c, s.Declares)
		}
		if err != nil {
			server.Fail(c, err)
			return
		}
	}
	if err := a.cfg.Sources.Sync(c.Request.Context(), server.Actor(c), c.Param("name"), b.Confirm); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}

// mayConfirm refuses who may not remove what a source removes.
func mayConfirm(c *gin.Context, declares bool) error {
	for _, p := range []auth.Permission{auth.TemplatesDelete, auth.GroupsDelete, auth.CatalogManage} {
		if (p == auth.TemplatesDelete || declares) && !server.Allowed(c, p) {
			return errs.New(errs.Denied, "to confirm what the source removes, the permission %s is missing", p)
		}
	}
	return nil
}

// sourceWebhook is what a forge calls after a push.
func (a *API) sourceWebhook(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, wire.BodyLimit))
	if err != nil {
		err = errs.New(errs.TooLarge, "the call cannot be read, or is larger than 1 MiB: let the forge send less")
	} else {
		err = a.cfg.Sources.Webhook(c.Request.Context(), server.Actor(c), c.Param("name"), operate.Call{
			Body: body, Signature: c.GetHeader("X-Hub-Signature-256"), Token: c.GetHeader("X-Gitlab-Token"),
		})
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}
