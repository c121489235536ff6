package system

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/nodes"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// maxDiagnosed bounds each list of a diagnosis.
	maxDiagnosed = 500
	// diagnosedRecords is the number of log records in a diagnosis.
	diagnosedRecords = 200
)

// diagnosis is an overview for troubleshooting. It contains no secrets.
type diagnosis struct {
	ControllerID  string  `json:"controllerId"` // the gateway that answers
	GeneratedAtMs int64   `json:"generatedAtMs"`
	Version       string  `json:"version"`
	Readiness     gin.H   `json:"readiness"`
	Overview      figures `json:"overview"`
	// Settings and RedactedConfig are those in force on this gateway.
	Settings       systemSettings `json:"settings"`
	RedactedConfig map[string]any `json:"redactedConfig"`
	// RedisKeyspace counts keys in etcd. The name is PrexorCloud's.
	RedisKeyspace map[string]int `json:"redisKeyspace"`
	Etcd          etcdDiagnosis  `json:"etcd"`
	Clocks        []clockOffset  `json:"clocks"`
	Leases        []lease        `json:"leases"`
	LogBuffer     logBuffer      `json:"logBuffer"`
	// Logs are the last records of this gateway's log, oldest first. They are empty for callers who
	// may not see logs.
	Logs   []telemetry.Record `json:"logs"`
	Nodes  []nodes.Node       `json:"nodes"`
	Groups []groupDigest      `json:"groups"`
	// Instances are those in lists. InstanceStates counts all instances by state.
	Instances      []instances.Instance `json:"instances"`
	InstanceStates map[fleet.State]int  `json:"instanceStates"`
	Templates      []templateDigest     `json:"templates"`
}

// logBuffer is the fill level of this gateway's log buffer.
type logBuffer struct {
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
}

type groupDigest struct {
	Name         fleet.GroupName `json:"name"`
	Platform     string          `json:"platform"`
	MinInstances int             `json:"minInstances"`
	MaxInstances int             `json:"maxInstances"`
	Instances    int             `json:"instances"`
	Deleting     bool            `json:"deleting"`
}

type templateDigest struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	SizeBytes int64  `json:"sizeBytes"`
}

func (a *API) diagnosticRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/system/diagnostics", server.Needs(auth.SystemSettings), a.diagnostics),
	}
}

func (a *API) diagnostics(c *gin.Context) {
	out, err := a.Diagnose(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}

// Diagnose returns a diagnosis. Values that look like credentials are redacted.
func (a *API) Diagnose(c *gin.Context) (map[string]any, error) {
	ctx, s := c.Request.Context(), a.cfg.Operations.Snapshot()
	readiness, _ := a.checks(c)
	records := a.cfg.Logs.Own()
	out := diagnosis{
		ControllerID: a.cfg.Replica, GeneratedAtMs: a.cfg.Operations.Now().UnixMilli(), Version: a.cfg.Version, Readiness: readiness,
		Overview: figuresOf(s, nil), Settings: a.settingsOf(s), LogBuffer: logBuffer{records.Size(), records.Capacity()},
		RedactedConfig: map[string]any{
			"replica": a.cfg.Replica, "clusterName": a.cfg.ClusterName, "apiUrl": a.cfg.APIURL, "sharing": !a.cfg.NoShares,
			"effective": nested(a.cfg.Settings.Now().Patch()),
		},
		Logs: []telemetry.Record{}, Nodes: []nodes.Node{}, Groups: []groupDigest{}, Instances: []instances.Instance{}, InstanceStates: map[fleet.State]int{}, Templates: []templateDigest{},
	}
	if server.Allowed(c, auth.SystemLogsView) {
		out.Logs = append(out.Logs, records.Last(telemetry.RecordFilter{}, diagnosedRecords)...)
	}
	out.list(s, a.cfg.Nodes.Viewer(s))
	for i := range a.cfg.Instances.ViewsOn(s, "") {
		if len(out.Instances) == maxDiagnosed {
			break
		}
		out.Instances = append(out.Instances, i)
	}
	var err error
	if out.Leases, err = a.leasesOf(ctx); err != nil {
		return nil, err
	}
	if out.RedisKeyspace, err = a.keyspace(ctx); err != nil {
		return nil, err
	}
	out.Etcd, out.Clocks = diagnoseEtcd(ctx, a.cfg.Operations.Store), a.clocks()
	return sharedtext.RedactJSON(out)
}

// list adds nodes, groups, instance counts and templates.
func (d *diagnosis) list(s *view.Snapshot, show func(*fleet.Node) nodes.Node) {
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

// keyspace counts the keys in etcd under the largest prefixes.
func (a *API) keyspace(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	err := txn.InTime(ctx, func(ctx context.Context) error {
		for name, count := range map[string]func(context.Context, *store.Client) (int, error){
			"groups": counted(keys.Groups()), "instances": counted(keys.Intents()), "plans": counted(keys.Plans()), "shards": counted(keys.AllShards()),
			"template-heads": counted(keys.TemplateHeads()), "template-versions": counted(keys.AllTemplateVersions()), "crashes": counted(keys.Crashes()),
			"audit": counted(keys.AuditLog()), "users": counted(keys.Users()), "secrets": counted(keys.Secrets()), "shares": counted(keys.Shares()),
			"tickets": counted(keys.Tickets()),
		} {
			n, err := count(ctx, a.cfg.Operations.Store)
			if err != nil {
				return err
			}
			out[name] = n
		}
		return nil
	})
	return out, err
}

// counted returns a function that counts the keys under a prefix.
func counted[T any](p keys.Prefix[T]) func(context.Context, *store.Client) (int, error) {
	return func(ctx context.Context, c *store.Client) (int, error) { return store.Count(ctx, c, p) }
}
