package groups

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// resetCrashLoop ends the pause of a group that crashed too often.
func (a *API) resetCrashLoop(c *gin.Context) {
	changed, err := a.cfg.Operations.ResetCrashLoop(c.Request.Context(), server.Actor(c), fleet.GroupName(c.Param("name")))
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
	server.ETag(c, g.ModRev)
	c.JSON(http.StatusOK, gin.H{"status": "reset", "changed": changed, "group": a.groupFor(c, s, g)})
}

// groupRoutes serve groups. Only who may declare groups in the whole fleet changes a spec: it names
// parents, templates and secrets, and its labels decide whom bindings admit.
func (a *API) groupRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/groups", server.Needs(auth.GroupsView), a.listGroups).Among(),
		server.Post("/api/v1/groups", server.Needs(auth.GroupsCreate), a.createGroup).Rehearses(),
		server.Get("/api/v1/groups/:name", server.Needs(auth.GroupsView), a.getGroup).In(server.GroupInPath),
		server.Get("/api/v1/groups/:name/resolved", server.Needs(auth.GroupsView), a.getResolved).In(server.GroupInPath),
		server.Put("/api/v1/groups/:name", server.Needs(auth.GroupsUpdate), a.putGroup).Rehearses().Makes(),
		server.Patch("/api/v1/groups/:name", server.Needs(auth.GroupsUpdate), a.patchGroup).Rehearses(),
		server.Delete("/api/v1/groups/:name", server.Needs(auth.GroupsDelete), a.deleteGroup).Rehearses(),
		server.Post("/api/v1/groups/:name/start", server.Needs(auth.GroupsStart), a.startGroup).Rehearses().In(server.GroupInPath),
		server.Post("/api/v1/groups/:name/scale", server.Needs(auth.GroupsUpdate), a.scaleGroup).Rehearses().In(server.GroupInPath),
		server.Post("/api/v1/groups/:name/autoscale/replay", server.Needs(auth.GroupsView), a.replayScaling).In(server.GroupInPath),
		server.Post("/api/v1/groups/:name/crash-loop/reset", server.Needs(auth.GroupsUpdate), a.resetCrashLoop).In(server.GroupInPath),
	}
}

// present returns a group that is not being deleted. It returns NotFound for a missing one.
func present(s *view.Snapshot, name string) (*fleet.Group, error) {
	g, ok := s.Groups.Get(fleet.GroupName(name))
	if !ok || g.Deleting {
		return nil, errs.New(errs.NotFound, "there is no group with that name")
	}
	return g, nil
}

func (a *API) listGroups(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*fleet.Group, 0, s.Groups.Len())
	sees := server.Sight(c, auth.GroupsView)
	for _, g := range s.Groups.All() {
		if !g.Deleting && (sees == nil || sees(g.Name)) {
			all = append(all, g)
		}
	}
	server.SendPage(c, all, resource.LargePage, a.groupsFor(c, s))
}

func (a *API) getGroup(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, g.ModRev)
	c.JSON(http.StatusOK, a.groupFor(c, s, g))
}

func (a *API) createGroup(c *gin.Context) {
	var b groupBody
	if !server.Bind(c, &b) {
		return
	}
	if b.Name == nil {
		server.Fail(c, errs.Field("name", "is missing: name the group"))
		return
	}
	a.writeGroup(c, groupops.GroupWrite{
		Name: *b.Name, Mode: groupops.Create, Written: b.writtenPath,
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) { return b.spec() },
	})
}

// putGroup creates or replaces a group. Fields that the body omits take their defaults. The
// environment stays if the body omits it and the caller lacks groups.env.
func (a *API) putGroup(c *gin.Context) {
	var b groupBody
	if !server.Bind(c, &b) || !sameName(c, b.Name) {
		return
	}
	w := groupops.GroupWrite{
		Name: fleet.GroupName(c.Param("name")), Mode: groupops.Put, Written: b.writtenPath,
		Make: func(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
			if old == nil && !server.Allowed(c, auth.GroupsCreate) {
				return fleet.GroupSpec{}, errs.New(errs.Denied, "the group does not exist, and you lack the permission %s to create it", auth.GroupsCreate)
			}
			spec, err := b.spec()
			if old != nil {
				keepDefaultsUnset(&spec, *old)
				if b.sentBack() {
					keepUnset(&spec, *old)
				}
			}
			if old != nil && b.Env == nil && !server.Allowed(c, auth.GroupsEnv) {
				spec.Env = old.Env // the caller could not read it
			}
			return spec, err
		},
	}
	a.writeGroup(c, w)
}

// DecodePut decodes a group like the body of a PUT: omitted fields take their defaults.
func DecodePut(name fleet.GroupName, body []byte) (groupops.GroupWrite, error) {
	var b groupBody
	if err := wire.DecodeJSON(bytes.NewReader(body), 0, &b); err != nil {
		return groupops.GroupWrite{}, err
	}
	if b.Name != nil && *b.Name != name {
		return groupops.GroupWrite{}, errs.Field("name", "is %q in a file for %q: rename one", *b.Name, name)
	}
	return groupops.GroupWrite{
		Name: name, Mode: groupops.Put, Written: b.writtenPath,
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) { return b.spec() },
	}, nil
}

// patchGroup changes only the fields in the body.
func (a *API) patchGroup(c *gin.Context) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		server.Fail(c, errs.WrapAs(errs.TooLarge, "groups.patchGroup", err))
		return
	}
	var b groupBody
	if err := wire.DecodeJSON(bytes.NewReader(raw), 0, &b); err != nil { // checks types and unknown fields
		server.Fail(c, err)
		return
	}
	if !sameName(c, b.Name) {
		return
	}
	patch, err := resource.DecodePatch(raw, slices.Collect(maps.Keys(SpecFields(fleet.DefaultSpec())))...)
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.writeGroup(c, groupops.GroupWrite{
		Name: fleet.GroupName(c.Param("name")), Mode: groupops.Update, Written: b.writtenPath,
		Make: func(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
			return patchedSpec(*old, patch)
		},
	})
}

// sameName refuses a body that names another group than the path. It returns false after it
// answered the request.
func sameName(c *gin.Context, name *fleet.GroupName) bool {
	if name == nil || string(*name) == c.Param("name") {
		return true
	}
	server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a group cannot be renamed", *name, c.Param("name")))
	return false
}

// writeGroup writes a group and answers with it. A dry run answers with the differences.
func (a *API) writeGroup(c *gin.Context, w groupops.GroupWrite) {
	var err error
	if w.IfMatch, err = server.Condition(c); err != nil {
		server.Fail(c, err)
		return
	}
	w.DryRun, w.Shown = server.DryRun(c), server.Shown(c)
	done, err := a.cfg.Operations.WriteGroup(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		out := a.dryRunOf(c, done)
		out.Message = groupOf(a.cfg.Operations.Snapshot(), &done.After, a.cfg.Operations.Now()).Message
		c.JSON(http.StatusOK, out)
		return
	}
	status := http.StatusOK
	if done.Before == nil {
		status = http.StatusCreated
		c.Header("Location", "/api/v1/groups/"+string(w.Name))
	}
	server.ETag(c, done.After.ModRev)
	c.JSON(status, a.groupFor(c, a.cfg.Operations.Snapshot(), &done.After))
}

func (a *API) dryRunOf(c *gin.Context, w groupops.GroupWritten) dryRun {
	r := newDryRun("create", w.After.Name)
	if w.Before != nil {
		r.Action = "update"
	}
	if r.Diff = diff(w.Before, w.After, server.Allowed(c, auth.GroupsEnv), maskedFor(c, a.cfg.Operations.Snapshot())); w.Before != nil && len(r.Diff) == 0 {
		r.Action = "none"
	}
	a.addCounts(c, a.cfg.Operations.Snapshot(), &r, w.Before, &w.After)
	return r
}

func (a *API) deleteGroup(c *gin.Context) {
	rev, err := server.IfMatch(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	name, dry := fleet.GroupName(c.Param("name")), server.DryRun(c)
	if _, err := a.cfg.Operations.DeleteGroup(c.Request.Context(), server.Actor(c), name, rev, dry); err != nil {
		server.Fail(c, err)
		return
	}
	if !dry {
		c.Status(http.StatusNoContent)
		return
	}
	r, s := newDryRun("delete", name), a.cfg.Operations.Snapshot()
	g, known := s.Groups.Get(name)
	static := known && s.Whole(g).Spec.Static.Enabled
	var data []string
	for i := range s.GroupInstances(name) {
		if !i.Terminal() {
			r.Stop = append(r.Stop, i.Intent.Name)
		}
		if static && i.Node() != "" {
			data = append(data, fmt.Sprintf("%s (%s)", i.Intent.Name, i.Node()))
		}
	}
	if len(data) > 0 {
		r.Notes = append(r.Notes, "these instances keep their data on their nodes, and a new group with this name will use it: "+strings.Join(data, ", "))
	}
	c.JSON(http.StatusOK, r)
}

func (a *API) startGroup(c *gin.Context) {
	b := struct {
		Count     *int              `json:"count"`
		Variables map[string]string `json:"variables"`
	}{}
	if !server.BindOptional(c, &b) {
		return
	}
	count, ok := server.Number(c, "count", 1)
	if !ok {
		return
	}
	if c.Query("count") != "" {
		c.Header("Deprecation", "true")
		c.Header("Warning", `299 orrery "?count= is deprecated: send count in the body"`)
	}
	resource.Set(&count, b.Count)
	r := instanceops.StartRequest{
		Group: fleet.GroupName(c.Param("name")), Count: count, Values: b.Variables,
		MayRefer: server.AllowedInFleet(c, auth.GroupsUpdate), DryRun: server.DryRun(c),
	}
	made, short, err := a.cfg.Operations.StartInstances(c.Request.Context(), server.Actor(c), r)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if r.DryRun {
		out := newDryRun("start", r.Group)
		for _, i := range made {
			out.Start = append(out.Start, i.Name)
		}
		if g, ok := a.cfg.Operations.Snapshot().Groups.Get(r.Group); ok {
			a.addPlacements(c, &out, g, len(made))
		}
		c.JSON(http.StatusOK, out)
		return
	}
	out := a.started(c.Request.Context(), made)
	if short != nil {
		out["message"] = fmt.Sprintf("%d of %d were started: %s", len(made), count, errs.MessageOf(short))
	}
	c.JSON(http.StatusOK, out)
}

// started waits for the placement of new instances, and returns them and those still waiting.
func (a *API) started(ctx context.Context, made []fleet.Intent) gin.H {
	ids := make([]fleet.InstanceID, 0, len(made))
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	s, shown, waits := instances.AwaitPlacement(ctx, a.cfg.Operations.View, ids...), make([]instances.Instance, 0, len(made)), []instances.Waiting{}
	for _, id := range ids {
		i, ok := s.Instances.Get(id)
		if !ok {
			continue
		}
		shown = append(shown, instances.InstanceOf(s, i, a.cfg.Operations.Now()))
		if w, ok := instances.WaitingOf(i); ok {
			waits = append(waits, w)
		}
	}
	return gin.H{"status": "scheduled", "count": len(made), "placed": len(shown) - len(waits), "waiting": waits, "instances": shown}
}

func (a *API) scaleGroup(c *gin.Context) {
	var b struct {
		TargetInstances *int `json:"targetInstances"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.TargetInstances == nil {
		server.Fail(c, errs.Field("targetInstances", "is missing: set the number of instances to run"))
		return
	}
	dry := server.DryRun(c)
	done, err := a.cfg.Operations.Scale(c.Request.Context(), server.Actor(c), fleet.GroupName(c.Param("name")), *b.TargetInstances, dry)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if dry {
		c.JSON(http.StatusOK, a.dryRunOf(c, done))
		return
	}
	server.ETag(c, done.After.ModRev)
	out := gin.H{
		"status": "scaling", "targetInstances": *b.TargetInstances, "revision": done.After.Revision,
		"minInstances": done.After.Spec.Scaling.Min, "maxInstances": done.After.Spec.Scaling.Max,
	}
	if before, after := done.Before.Spec.Scaling.Max, done.After.Spec.Scaling.Max; before != after {
		out["message"] = fmt.Sprintf("maxInstances was raised from %d to %d", before, after)
	}
	c.JSON(http.StatusOK, out)
}
