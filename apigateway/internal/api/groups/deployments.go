package groups

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store/view"
)

// deploymentView is a deployment in an answer.
type deploymentView struct {
	ID        string              `json:"id"`
	GroupName fleet.GroupName     `json:"groupName"`
	Revision  int64               `json:"revision"`
	Trigger   deployment.Trigger  `json:"trigger"`
	Strategy  deployment.Strategy `json:"strategy"`
	State     deployment.State    `json:"state"`
	// TemplateSnapshot and ConfigSnapshot are JSON texts: the digests of the templates by name, and
	// the group's fields.
	TemplateSnapshot string `json:"templateSnapshot"`
	ConfigSnapshot   string `json:"configSnapshot"`
	TotalInstances   int    `json:"totalInstances"`
	UpdatedInstances int    `json:"updatedInstances"`
	ReadyInstances   int    `json:"readyInstances"`
	FailedInstances  int    `json:"failedInstances"`
	// Promoted is true once the first phase of a CANARY or BLUE_GREEN deployment is over.
	Promoted      bool              `json:"promoted"`
	GroupRevision int64             `json:"groupRevision"`
	CreatedAt     time.Time         `json:"createdAt"`
	CreatedBy     string            `json:"createdBy"`
	CompletedAt   *time.Time        `json:"completedAt"`
	RollbackOf    *int64            `json:"rollbackOf"`
	Restores      *int64            `json:"restores"`
	Reason        deployment.Reason `json:"reason"`
	Message       string            `json:"message"`
	Rollout       rolloutFields     `json:"rollout"`
}

// rolloutFields are the options of a deployment.
type rolloutFields struct {
	BatchSize                 *int     `json:"batchSize"`
	MaxSurge                  *int     `json:"maxSurge"`
	MaxUnavailable            *int     `json:"maxUnavailable"`
	CanaryInstances           *int     `json:"canaryInstances"`
	CanaryPercent             *int     `json:"canaryPercent"`
	HealthGateEnabled         *bool    `json:"healthGateEnabled"`
	AutoRollbackOnFailure     *bool    `json:"autoRollbackOnFailure"`
	PromotionTimeoutSeconds   *int     `json:"promotionTimeoutSeconds"`
	MinHealthySeconds         *int     `json:"minHealthySeconds"`
	MinHealthyTps             *float64 `json:"minHealthyTps"`
	ReplacementTimeoutSeconds *int     `json:"replacementTimeoutSeconds"`
	DeadlineSeconds           *int     `json:"deadlineSeconds"`
	GraceSeconds              *int     `json:"graceSeconds"`
}

func (f rolloutFields) requested() deployment.Requested {
	return deployment.Requested{
		BatchSize: f.BatchSize, MaxSurge: f.MaxSurge, MaxUnavailable: f.MaxUnavailable, CanaryInstances: f.CanaryInstances, CanaryPercent: f.CanaryPercent,
		HealthGate: f.HealthGateEnabled, AutoRollback: f.AutoRollbackOnFailure,
		PromotionTimeoutSeconds: f.PromotionTimeoutSeconds, MinHealthySeconds: f.MinHealthySeconds, MinHealthyTPS: f.MinHealthyTps,
		ReplacementTimeoutSeconds: f.ReplacementTimeoutSeconds, DeadlineSeconds: f.DeadlineSeconds, GraceSeconds: f.GraceSeconds,
	}
}

func rolloutOf(o deployment.Options) rolloutFields {
	return rolloutFields{
		BatchSize: &o.BatchSize, MaxSurge: &o.MaxSurge, MaxUnavailable: &o.MaxUnavailable, CanaryInstances: &o.CanaryInstances, CanaryPercent: &o.CanaryPercent,
		HealthGateEnabled: &o.HealthGate, AutoRollbackOnFailure: &o.AutoRollback,
		PromotionTimeoutSeconds: &o.PromotionTimeoutSeconds, MinHealthySeconds: &o.MinHealthySeconds, MinHealthyTps: &o.MinHealthyTPS,
		ReplacementTimeoutSeconds: &o.ReplacementTimeoutSeconds, DeadlineSeconds: &o.DeadlineSeconds, GraceSeconds: &o.GraceSeconds,
	}
}

func (a *API) deploymentRoutes() []server.Route {
	see, change := server.Needs(auth.GroupsView), server.Needs(auth.GroupsUpdate)
	return append(server.AllIn(server.GroupInPath, server.Under("/api/v1/groups/:name",
		server.Post("/restart", change, a.restartGroup).Rehearses(),
		server.Post("/deploy", change, a.deployGroup).Rehearses(),
		server.Get("/deployments", see, a.listDeployments),
		server.Get("/deployments/:rev", see, a.getDeployment),
		server.Post("/deployments/:rev/pause", change, a.control(groupops.Pause, "paused")).Rehearses().Conditional(),
		server.Post("/deployments/:rev/resume", change, a.control(groupops.Resume, "resumed")).Rehearses().Conditional(),
		server.Post("/deployments/:rev/promote", change, a.control(groupops.Promote, "promoted")).Rehearses().Conditional(),
		server.Post("/deployments/:rev/cancel", change, a.control(groupops.Cancel, "cancelled")).Rehearses().Conditional(),
	)...),
		server.Get("/api/v1/deployments", see, a.listAllDeployments).Among(),
		server.Post("/api/v1/groups/:name/deployments/:rev/rollback", change, a.rollBack).Rehearses().Conditional(), // changes the spec
	)
}

// deploymentFor returns a function that shows the deployments of a group to a caller.
func (a *API) deploymentFor(c *gin.Context, s *view.Snapshot, g *fleet.Group) func(deployment.Joined) deploymentView {
	show := a.groupsFor(c, s)
	return func(j deployment.Joined) deploymentView {
		then := *g
		then.Spec = j.Spec
		out := deploymentView{
			ID: fmt.Sprintf("%s/%d", j.Group, j.Number), GroupName: j.Group, Revision: j.Number, Trigger: j.Trigger, Strategy: j.Strategy, State: j.State(),
			TemplateSnapshot: textOf(digestsOf(j.Deployment)), ConfigSnapshot: textOf(show(&then).groupFields), GroupRevision: j.GroupRevision,
			CreatedAt: j.CreatedAt, CreatedBy: j.By, RollbackOf: numberOf(j.RollbackOf), Restores: numberOf(j.Restores),
			Promoted: j.Promoted, Rollout: rolloutOf(j.Options),
		}
		if p := j.Progress; p != nil {
			out.TotalInstances, out.UpdatedInstances, out.ReadyInstances, out.FailedInstances = p.Total, p.Updated, p.Ready, p.Failed
			out.Promoted = out.Promoted || j.Strategy.Gated() && p.Promoted
			out.Reason, out.Message = p.Reason, p.Message
			if !p.FinishedAt.IsZero() {
				out.CompletedAt = &p.FinishedAt
			}
		}
		if state := shownState(j); state != out.State { // the enforcer has not seen it yet
			out.State, out.Reason = state, deployment.ReasonRequested
		}
		return out
	}
}

func digestsOf(d *deployment.Deployment) map[string]string {
	out := map[string]string{}
	for _, h := range d.Templates {
		out[h.Short()] = h.Digest
	}
	return out
}

func textOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // only possible for types JSON cannot encode
		return ""
	}
	return string(b)
}

func numberOf(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// revOf parses the number of a deployment in the path. If ok is false, a 400 was sent.
func revOf(c *gin.Context) (number int64, ok bool) {
	number, err := strconv.ParseInt(c.Param("rev"), 10, 64)
	if err != nil {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "rev", Message: "must be a whole number"})
	}
	return number, err == nil
}

// deploymentPage is a page of deployments. Items has them once more, because existing clients read
// them there.
type deploymentPage struct {
	server.Page[deploymentView]
	Items []deploymentView `json:"items"`
}

func (a *API) listDeployments(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	wanted, ok := server.PageOf(c, deploymentsDefault, deploymentsMost)
	if !ok {
		return
	}
	all := s.Deployments(g.Name)
	slices.Reverse(all)
	out := deploymentPage{Page: server.Page[deploymentView]{Data: []deploymentView{}, Page: wanted.Number, PageSize: wanted.Size, Total: len(all)}}
	from := min((wanted.Number-1)*wanted.Size, len(all))
	show := a.deploymentFor(c, s, g)
	for _, j := range all[max(0, from):min(max(0, from)+wanted.Size, len(all))] {
		out.Data = append(out.Data, show(j))
	}
	out.Items = out.Data
	c.JSON(http.StatusOK, out)
}

// groupDeployment is a deployment of one of many groups.
type groupDeployment struct {
	group *fleet.Group
	deployment.Joined
}

// listAllDeployments lists the deployments of all groups, or those in a state, newest first.
func (a *API) listAllDeployments(c *gin.Context) {
	state := deployment.State(strings.ToUpper(c.Query("state")))
	if state != "" && !state.Valid() {
		server.Fail(c, errs.Field("state", "must be %s", deployment.States))
		return
	}
	s, sees := a.cfg.Operations.Snapshot(), server.Sight(c, auth.GroupsView)
	var all []groupDeployment
	for _, g := range s.Groups.All() {
		if g.Deleting || sees != nil && !sees(g.Name) {
			continue
		}
		for _, j := range s.Deployments(g.Name) {
			if state == "" || shownState(j) == state {
				all = append(all, groupDeployment{group: g, Joined: j})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y groupDeployment) int { return y.CreatedAt.Compare(x.CreatedAt) })
	server.SendPage(c, all, deploymentsMost, func(d groupDeployment) deploymentView { return a.deploymentFor(c, s, d.group)(d.Joined) })
}

// shownState is the state in answers: a deployment is paused as soon as a user asked for it.
func shownState(j deployment.Joined) deployment.State {
	if j.State() == deployment.InProgress && j.Paused {
		return deployment.Paused
	}
	return j.State()
}

const (
	deploymentsDefault = 50
	deploymentsMost    = 100
)

func (a *API) getDeployment(c *gin.Context) {
	number, ok := revOf(c)
	if !ok {
		return
	}
	s := a.cfg.Operations.Snapshot()
	j, g, err := groupops.FindDeployment(s, fleet.GroupName(c.Param("name")), number)
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, groupops.DeploymentRevision(j))
	c.JSON(http.StatusOK, a.deploymentFor(c, s, g)(j))
}

func (a *API) restartGroup(c *gin.Context) {
	if !server.BindOptional(c, &struct{}{}) {
		return
	}
	a.deploy(c, groupops.DeployRequest{Trigger: deployment.TriggerRestart, Strategy: deployment.Rolling})
}

func (a *API) deployGroup(c *gin.Context) {
	var b struct {
		Strategy *string `json:"strategy"`
		rolloutFields
	}
	if !server.BindOptional(c, &b) {
		return
	}
	r := groupops.DeployRequest{Trigger: deployment.TriggerManual, Options: b.requested()}
	if b.Strategy != nil {
		r.Strategy = deployment.Strategy(strings.ToUpper(*b.Strategy))
		if r.Strategy == "" {
			server.Fail(c, errs.Field("strategy", "must be %s; omit it for the group's updateStrategy", deployment.Strategies))
			return
		}
	}
	a.deploy(c, r)
}

func (a *API) deploy(c *gin.Context, r groupops.DeployRequest) {
	r.Group, r.DryRun = fleet.GroupName(c.Param("name")), server.DryRun(c)
	made, err := a.cfg.Operations.Deploy(c.Request.Context(), server.Actor(c), r)
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.sendMade(c, made, http.StatusAccepted)
}

// sendMade answers with a new deployment, or with what a dry run would replace.
func (a *API) sendMade(c *gin.Context, made deployment.Deployment, status int) {
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, string(made.Group))
	if err != nil {
		server.Fail(c, err)
		return
	}
	j := deployment.Joined{Deployment: &made}
	if stored, ok := s.Deployment(made.Group, made.Number); ok && !server.DryRun(c) {
		j.Progress = stored.Progress
	}
	shown := a.deploymentFor(c, s, g)(j)
	if server.DryRun(c) {
		c.JSON(http.StatusOK, deployDryRunOf(s, shown, &made))
		return
	}
	c.Header("Location", fmt.Sprintf("/api/v1/groups/%s/deployments/%d", made.Group, made.Number))
	c.JSON(status, shown)
}

// deployDryRun is the answer to the dry run of a deployment.
type deployDryRun struct {
	DryRun     bool           `json:"dryRun"`
	Action     string         `json:"action"`
	Group      string         `json:"group"`
	Deployment deploymentView `json:"deployment"`
	// Replace are the instances that would be replaced, in this order.
	Replace []replacedInstance `json:"replace"`
	// Notes are further effects, one sentence each.
	Notes []string `json:"notes"`
}

type replacedInstance struct {
	ID      string           `json:"id"`
	UID     fleet.InstanceID `json:"uid"`
	Players int              `json:"players"`
	// Wave is 1 for the instances that are replaced before the health gate of a canary deployment.
	Wave   int    `json:"wave"`
	Reason string `json:"reason"`
}

func deployDryRunOf(s *view.Snapshot, shown deploymentView, d *deployment.Deployment) deployDryRun {
	out := deployDryRun{DryRun: true, Action: "deploy", Group: string(d.Group), Deployment: shown, Replace: []replacedInstance{}, Notes: []string{}}
	all := slices.Collect(s.GroupInstances(d.Group))
	steps := groupops.Outdated(s, d, func(i *fleet.Instance) int {
		r, claims := instances.ReportOf(s, i), 0
		if c, ok := s.Claims.Get(i.Intent.ID); ok {
			claims = c.Slots(i, r.MaxPlayers)
		}
		return max(r.Players, claims) // players who are about to come count too
	})
	wave := len(steps)
	if d.Strategy == deployment.Canary {
		wave = min(d.Options.Wave(len(steps)), len(steps))
	}
	for n, step := range steps {
		r := replacedInstance{ID: step.Instance.Intent.Name, UID: step.Instance.Intent.ID, Players: step.Players, Wave: 1, Reason: step.Reason}
		if n >= wave {
			r.Wave = 2
		}
		out.Replace = append(out.Replace, r)
	}
	stays := 0
	for _, i := range all {
		if !deployment.Replaceable(i) && (i.Lost() || i.Intent.Frozen && !i.Terminal()) {
			stays++
		}
	}
	if d.Strategy == deployment.BlueGreen && len(steps) > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d replacements would start at once and take no players until all of them are healthy", len(steps)))
	}
	if stays > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d instances stay as they are, because they are frozen or on a lost node", stays))
	}
	if g, ok := s.Groups.Get(d.Group); ok && s.MaintenanceOf(g).On {
		out.Notes = append(out.Notes, "the deployment would begin after the maintenance")
	}
	return out
}

// control returns the handler of a decision about a deployment. status names the decision in the
// answer.
func (a *API) control(do groupops.Control, status string) gin.HandlerFunc {
	return func(c *gin.Context) {
		w, ok := deploymentWrite(c)
		if !ok || !server.BindOptional(c, &struct{}{}) {
			return
		}
		before, after, err := a.cfg.Operations.ControlDeployment(c.Request.Context(), server.Actor(c), w, do)
		if err != nil {
			server.Fail(c, err)
			return
		}
		s := a.cfg.Operations.Snapshot()
		g, err := present(s, c.Param("name"))
		if err != nil {
			server.Fail(c, err)
			return
		}
		show := a.deploymentFor(c, s, g)
		if w.DryRun {
			from, to := show(before), show(after)
			if do == groupops.Cancel {
				to.State = deployment.Canceled
			}
			c.JSON(http.StatusOK, resource.DryRun("deployment", to.ID, true, resource.Differences(from, to)))
			return
		}
		server.ETag(c, groupops.DeploymentRevision(after))
		c.JSON(http.StatusOK, gin.H{"status": status, "deployment": show(after)})
	}
}

// deploymentWrite reads which deployment a request changes. If ok is false, it was answered.
func deploymentWrite(c *gin.Context) (w groupops.DeploymentWrite, ok bool) {
	number, ok := revOf(c)
	if !ok {
		return w, false
	}
	rev, err := server.IfMatch(c)
	if err != nil {
		server.Fail(c, err)
		return w, false
	}
	return groupops.DeploymentWrite{Group: fleet.GroupName(c.Param("name")), Number: number, IfMatch: rev, DryRun: server.DryRun(c)}, true
}

func (a *API) rollBack(c *gin.Context) {
	w, ok := deploymentWrite(c)
	if !ok || !server.BindOptional(c, &struct{}{}) {
		return
	}
	_, made, err := a.cfg.Operations.RollbackDeployment(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		a.sendMade(c, made, http.StatusOK)
		return
	}
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "rolled_back", "deployment": a.deploymentFor(c, s, g)(deployment.Joined{Deployment: &made})})
}
