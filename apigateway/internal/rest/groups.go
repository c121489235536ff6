package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// groupRoutes are groups and what is done with their instances together.
func (a *API) groupRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/groups", server.Needs(auth.GroupsView), a.listGroups),
		server.Post("/api/v1/groups", server.Needs(auth.GroupsCreate), a.createGroup).Rehearses(),
		server.Get("/api/v1/groups/:name", server.Needs(auth.GroupsView), a.getGroup),
		server.Get("/api/v1/groups/:name/resolved", server.Needs(auth.GroupsView), a.getResolved),
		server.Put("/api/v1/groups/:name", server.Needs(auth.GroupsUpdate), a.putGroup).Rehearses().Makes(),
		server.Patch("/api/v1/groups/:name", server.Needs(auth.GroupsUpdate), a.patchGroup).Rehearses(),
		server.Delete("/api/v1/groups/:name", server.Needs(auth.GroupsDelete), a.deleteGroup).Rehearses(),
		server.Post("/api/v1/groups/:name/start", server.Needs(auth.GroupsStart), a.startGroup).Rehearses(),
		server.Post("/api/v1/groups/:name/scale", server.Needs(auth.GroupsUpdate), a.scaleGroup).Rehearses(),
		server.Post("/api/v1/groups/:name/crash-loop/reset", server.Needs(auth.GroupsUpdate), a.resetCrashLoop),
	}
}

// present is a group that is not being deleted.
func present(s *view.Snapshot, name string) (*fleet.Group, error) {
	g, ok := s.Groups.Get(fleet.GroupName(name))
	if !ok || g.Deleting {
		return nil, errs.New(errs.NotFound, "there is no group of that name")
	}
	return g, nil
}

func (a *API) listGroups(c *gin.Context) {
	s := a.snapshot()
	all := make([]*fleet.Group, 0, s.Groups.Len())
	for _, g := range s.Groups.All() {
		if !g.Deleting {
			all = append(all, g)
		}
	}
	server.SendPage(c, all, pageMany, a.groupsFor(c, s))
}

func (a *API) getGroup(c *gin.Context) {
	s := a.snapshot()
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
	a.writeGroup(c, operate.GroupWrite{
		Name: *b.Name, Mode: operate.Create, Written: b.written,
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) { return b.spec() },
	})
}

// putGroup creates or replaces: what the body does not say takes its default. A caller
// without groups.env who sends no environment keeps the present one.
func (a *API) putGroup(c *gin.Context) {
	var b groupBody
	if !server.Bind(c, &b) || !sameName(c, b.Name) {
		return
	}
	w := operate.GroupWrite{
		Name: fleet.GroupName(c.Param("name")), Mode: operate.Put, Written: b.written,
		Make: func(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
			if old == nil && !server.Allowed(c, auth.GroupsCreate) {
				return fleet.GroupSpec{}, errs.New(errs.Denied, "the group does not exist, and you may not create one: the permission %s is missing", auth.GroupsCreate)
			}
			spec, err := b.spec()
			if old != nil {
				keepUnsaid(&spec, *old)
			}
			if old != nil && b.Env == nil && !server.Allowed(c, auth.GroupsEnv) {
				spec.Env = old.Env // the caller could not read it
			}
			return spec, err
		},
	}
	a.writeGroup(c, w)
}

// ReadGroup understands a group as a PUT of it does: what is not said takes its default.
func ReadGroup(name fleet.GroupName, body []byte) (operate.GroupWrite, error) {
	var b groupBody
	if err := wire.DecodeJSON(bytes.NewReader(body), 0, &b); err != nil {
		return operate.GroupWrite{}, err
	}
	if b.Name != nil && *b.Name != name {
		return operate.GroupWrite{}, errs.Field("name", "is %q in a file for %q: rename one", *b.Name, name)
	}
	return operate.GroupWrite{
		Name: name, Mode: operate.Put, Written: b.written,
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) { return b.spec() },
	}, nil
}

// patchGroup changes what the body says and nothing else.
func (a *API) patchGroup(c *gin.Context) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		server.Fail(c, errs.As(errs.TooLarge, "rest.patchGroup", err))
		return
	}
	var b groupBody
	if err := wire.DecodeJSON(bytes.NewReader(raw), 0, &b); err != nil { // for its refusals
		server.Fail(c, err)
		return
	}
	if !sameName(c, b.Name) {
		return
	}
	patch, err := patchOf(raw, slices.Collect(maps.Keys(asMap(fieldsOf(fleet.DefaultSpec()))))...)
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.writeGroup(c, operate.GroupWrite{
		Name: fleet.GroupName(c.Param("name")), Mode: operate.Update, Written: b.written,
		Make: func(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
			fields, err := patched(*old, patch)
			if err != nil {
				return fleet.GroupSpec{}, err
			}
			return fields.spec()
		},
	})
}

// patchOf are the fields of a body that can be written.
func patchOf(raw []byte, names ...string) (map[string]any, error) {
	body := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, &errs.Error{Kind: errs.Malformed, Message: "the body must be a JSON object", Err: err}
	}
	maps.DeleteFunc(body, func(given string, _ any) bool { return !slices.Contains(names, given) })
	return body, nil
}

// sameName refuses a body that names another group than the path.
func sameName(c *gin.Context, name *fleet.GroupName) bool {
	if name == nil || string(*name) == c.Param("name") {
		return true
	}
	server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a group cannot be renamed", *name, c.Param("name")))
	return false
}

// writeGroup performs a write and answers with the group, of a dry run with the difference.
func (a *API) writeGroup(c *gin.Context, w operate.GroupWrite) {
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
		out := a.rehearsalOf(c, done)
		out.Message = groupOf(a.snapshot(), &done.After, a.cfg.Now()).Message
		c.JSON(http.StatusOK, out)
		return
	}
	status := http.StatusOK
	if done.Before == nil {
		status = http.StatusCreated
		c.Header("Location", "/api/v1/groups/"+string(w.Name))
	}
	server.ETag(c, done.After.ModRev)
	c.JSON(status, a.groupFor(c, a.snapshot(), &done.After))
}

func (a *API) rehearsalOf(c *gin.Context, w operate.GroupWritten) rehearsal {
	r := newRehearsal("create", w.After.Name)
	if w.Before != nil {
		r.Action = "update"
	}
	if r.Diff = diff(w.Before, w.After, server.Allowed(c, auth.GroupsEnv), maskedFor(c, a.snapshot())); w.Before != nil && len(r.Diff) == 0 {
		r.Action = "none"
	}
	a.addCounts(c, a.snapshot(), &r, w.Before, &w.After)
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
	r, s := newRehearsal("delete", name), a.snapshot()
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
		r.Notes = append(r.Notes, "the data of these instances stays on their nodes, and a new group with this name finds it there: "+strings.Join(data, ", "))
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
	set(&count, b.Count)
	r := operate.StartRequest{
		Group: fleet.GroupName(c.Param("name")), Count: count, Values: b.Variables,
		MayRefer: server.Allowed(c, auth.GroupsUpdate), DryRun: server.DryRun(c),
	}
	made, short, err := a.cfg.Operations.StartInstances(c.Request.Context(), server.Actor(c), r)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if r.DryRun {
		out := newRehearsal("start", r.Group)
		for _, i := range made {
			out.Start = append(out.Start, i.Name)
		}
		if g, ok := a.snapshot().Groups.Get(r.Group); ok {
			a.addPlaces(c, &out, g, len(made))
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

// started tells what was made, and what of it has a node.
func (a *API) started(ctx context.Context, made []fleet.Intent) gin.H {
	ids := make([]fleet.InstanceID, 0, len(made))
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	s, shown, waits := a.decided(ctx, ids...), make([]instance, 0, len(made)), []waiting{}
	for _, id := range ids {
		i, ok := s.Instances.Get(id)
		if !ok {
			continue
		}
		shown = append(shown, instanceOf(s, i, a.cfg.Now()))
		if w, ok := waitingOf(i); ok {
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
		server.Fail(c, errs.Field("targetInstances", "is missing: say how many instances shall run"))
		return
	}
	dry := server.DryRun(c)
	done, err := a.cfg.Operations.Scale(c.Request.Context(), server.Actor(c), fleet.GroupName(c.Param("name")), *b.TargetInstances, dry)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if dry {
		c.JSON(http.StatusOK, a.rehearsalOf(c, done))
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
