package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/share"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// maxDiagnosed bounds each list of a diagnosis.
	maxDiagnosed = 500
	// diagnosedRecords is how many records of its log a gateway adds to one.
	diagnosedRecords = 200
)

// diagnosis is what somebody who looks for a fault needs first, without secrets.
type diagnosis struct {
	ControllerID  string  `json:"controllerId"` // the gateway that answers
	GeneratedAtMs int64   `json:"generatedAtMs"`
	Version       string  `json:"version"`
	Readiness     gin.H   `json:"readiness"`
	Overview      figures `json:"overview"`
	// Settings and RedactedConfig are those that hold on this gateway.
	Settings       systemSettings `json:"settings"`
	RedactedConfig map[string]any `json:"redactedConfig"`
	// RedisKeyspace are the numbers of keys in etcd; it is called so where known clients look.
	RedisKeyspace map[string]int `json:"redisKeyspace"`
	Leases        []lease        `json:"leases"`
	LogBuffer     logBuffer      `json:"logBuffer"`
	// Logs are the last records of this gateway's log, the oldest first; of who may not see
	// logs, none.
	Logs   []telemetry.Record `json:"logs"`
	Nodes  []node             `json:"nodes"`
	Groups []groupDigest      `json:"groups"`
	// Instances are those that lists show, InstanceStates counts of all by state.
	Instances      []instance          `json:"instances"`
	InstanceStates map[fleet.State]int `json:"instanceStates"`
	Templates      []templateDigest    `json:"templates"`
}

// logBuffer is how much of its log this gateway keeps.
type logBuffer struct {
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
}

// groupDigest is a group in short.
type groupDigest struct {
	Name         fleet.GroupName `json:"name"`
	Platform     string          `json:"platform"`
	MinInstances int             `json:"minInstances"`
	MaxInstances int             `json:"maxInstances"`
	Instances    int             `json:"instances"`
	Deleting     bool            `json:"deleting"`
}

// templateDigest is a template in short.
type templateDigest struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	SizeBytes int64  `json:"sizeBytes"`
}

// diagnosticRoutes tell what somebody who looks for a fault needs first.
func (a *API) diagnosticRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/system/diagnostics", server.Needs(auth.SystemSettings), a.diagnostics),
		server.Post("/api/v1/system/diagnostics/share", sharing(fleet.ShareDiagnostics), a.shareDiagnostics).ShowsOnce(),
	}
}

func (a *API) diagnostics(c *gin.Context) {
	out, err := a.diagnose(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) shareDiagnostics(c *gin.Context) {
	_, draft, ok := a.shareWish(c, share.Draft{Kind: fleet.ShareDiagnostics})
	if !ok {
		return
	}
	out, err := a.diagnose(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		server.Fail(c, err)
		return
	}
	draft.Text, draft.HasLogs = string(text), server.Allowed(c, auth.SystemLogsView)
	a.share(c, draft)
}

// diagnose is a diagnosis without what looks like a credential.
func (a *API) diagnose(c *gin.Context) (map[string]any, error) {
	ctx, s := c.Request.Context(), a.snapshot()
	readiness, _ := a.checks(c)
	records := a.cfg.Logs.Own()
	out := diagnosis{
		ControllerID: a.cfg.Replica, GeneratedAtMs: a.cfg.Now().UnixMilli(), Version: a.cfg.Version, Readiness: readiness,
		Overview: figuresOf(s), Settings: a.settingsOf(s), LogBuffer: logBuffer{records.Size(), records.Capacity()},
		RedactedConfig: map[string]any{
			"replica": a.cfg.Replica, "clusterName": a.cfg.ClusterName, "apiUrl": a.cfg.APIURL, "sharing": !a.cfg.NoShares,
			"effective": nested(a.cfg.Settings.Now().Patch()),
		},
		Logs: []telemetry.Record{}, Nodes: []node{}, Groups: []groupDigest{}, Instances: []instance{}, InstanceStates: map[fleet.State]int{}, Templates: []templateDigest{},
	}
	if server.Allowed(c, auth.SystemLogsView) {
		out.Logs = append(out.Logs, records.Last(telemetry.RecordFilter{}, diagnosedRecords)...)
	}
	templates := currentTemplates(s)
	out.list(s, func(n *fleet.Node) node { return a.nodeOf(s, n, templates) })
	now := a.cfg.Now()
	for _, i := range a.instances.listed(s, instanceFilter{}, now) {
		if len(out.Instances) < maxDiagnosed {
			out.Instances = append(out.Instances, instanceOf(s, i, now))
		}
	}
	var err error
	if out.Leases, err = a.leasesOf(ctx); err != nil {
		return nil, err
	}
	if out.RedisKeyspace, err = a.keyspace(ctx); err != nil {
		return nil, err
	}
	return share.RedactJSON(out)
}

// list adds what there is, so much of it.
func (d *diagnosis) list(s *view.Snapshot, show func(*fleet.Node) node) {
	for _, n := range s.Nodes.All() {
		if len(d.Nodes) < maxDiagnosed {
			d.Nodes = append(d.Nodes, show(n))
		}
	}
	held := map[fleet.GroupName]int{}
	for _, i := range s.Instances.All() {
		d.InstanceStates[i.State()]++
		if !i.Terminal() {
			held[i.Intent.Group]++
		}
	}
	for name, g := range s.Groups.All() {
		if len(d.Groups) < maxDiagnosed {
			d.Groups = append(d.Groups, groupDigest{
				Name: name, Platform: g.Spec.Software.Platform, MinInstances: g.Spec.Scaling.Min, MaxInstances: g.Spec.Scaling.Max, Instances: held[name], Deleting: g.Deleting,
			})
		}
	}
	for name, h := range s.TemplateHeads.All() {
		if len(d.Templates) < maxDiagnosed {
			d.Templates = append(d.Templates, templateDigest{name, h.Digest, h.SizeBytes})
		}
	}
}

// keyspace counts the keys of etcd that there are most of.
func (a *API) keyspace(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	err := operate.InTime(ctx, func(ctx context.Context) error {
		for name, count := range map[string]func(context.Context, *store.Client) (int, error){
			"groups": counted(store.Groups()), "instances": counted(store.Intents()), "plans": counted(store.Plans()), "shards": counted(store.AllShards()),
			"template-heads": counted(store.TemplateHeads()), "template-versions": counted(store.AllTemplateVersions()), "crashes": counted(store.Crashes()),
			"audit": counted(store.AuditLog()), "users": counted(store.Users()), "secrets": counted(store.Secrets()), "shares": counted(store.Shares()),
			"tickets": counted(store.Tickets()),
		} {
			n, err := count(ctx, a.cfg.Store)
			if err != nil {
				return err
			}
			out[name] = n
		}
		return nil
	})
	return out, err
}

// counted counts what is below a prefix.
func counted[T any](p store.Prefix[T]) func(context.Context, *store.Client) (int, error) {
	return func(ctx context.Context, c *store.Client) (int, error) { return store.Count(ctx, c, p) }
}
