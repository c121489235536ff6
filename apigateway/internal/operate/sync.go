package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// SyncRequest asks for templates to be had by nodes.
type SyncRequest struct {
	// Pattern is *, group/*, group/name, or a name in the group default.
	Pattern string
	// Nodes are whom to bring them; none means all.
	Nodes []fleet.NodeID
	// DryRun brings nothing: the report tells what would be brought, and to whom.
	DryRun bool
}

// What comes of bringing templates to a node.
const (
	SyncOK      = "OK" // the node has all of them, every hash verified
	SyncPartial = "PARTIAL"
	SyncFailed  = "FAILED"
	SyncOffline = "OFFLINE"
	SyncDryRun  = "DRY_RUN" // nothing was asked of it
)

// SyncReport says what came of it.
type SyncReport struct {
	// Status is of all nodes together: OK, PARTIAL, FAILED when none has all, or
	// DRY_RUN.
	Status    string           `json:"status"`
	Message   string           `json:"message"`
	Pattern   string           `json:"pattern"`
	Templates []SyncedTemplate `json:"templates"`
	Nodes     []SyncedNode     `json:"nodes"`
}

// SyncedTemplate is a template, its version and, below a node, what came of it there.
type SyncedTemplate struct {
	Template string `json:"template"`
	Digest   string `json:"digest"`
	Status   string `json:"status,omitempty"`
	// Bytes is what the version's files hold; below a node what was fetched, 0 when the
	// node had it.
	Bytes *int64 `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// SyncedNode is a node and what came of it.
type SyncedNode struct {
	Node      fleet.NodeID     `json:"node"`
	Status    string           `json:"status"`
	Bytes     int64            `json:"bytes"`
	Seconds   float64          `json:"seconds"`
	Error     string           `json:"error"`
	Templates []SyncedTemplate `json:"templates"`
}

// syncedAtOnce bounds the nodes that are brought templates at the same time.
const syncedAtOnce = 8

// SyncTemplates has nodes fetch the current versions of templates, and answers when
// each has verified them or failed, which may take minutes. Invalid when the pattern is
// none or a node is not known. No match is no error: the message says so.
func (o *Operations) SyncTemplates(ctx context.Context, by Actor, q SyncRequest) (SyncReport, error) {
	out := SyncReport{Pattern: q.Pattern, Nodes: []SyncedNode{}}
	s, err := o.published(ctx)
	if err != nil {
		return out, err
	}
	if out.Templates, err = matching(s, q.Pattern); err != nil {
		return out, err
	}
	nodes, err := syncedNodes(s, q.Nodes)
	if err != nil {
		return out, err
	}
	if len(out.Templates) == 0 {
		out.Status, out.Message = SyncOK, noMatch(s, q.Pattern)
		return out, nil
	}
	if q.DryRun {
		out.Status, out.Message = SyncDryRun, fmt.Sprintf("%s would be brought to %s", counted(len(out.Templates), "template"), counted(len(nodes), "node"))
		for _, id := range nodes {
			out.Nodes = append(out.Nodes, SyncedNode{Node: id, Status: SyncDryRun, Templates: []SyncedTemplate{}})
		}
		return out, nil
	}
	if err := o.claim(ctx, entry{action: "template.sync", resource: "template", id: q.Pattern}); err != nil {
		return out, err
	}
	out.Nodes = o.syncAll(ctx, s, nodes, out.Templates)
	if err := ctx.Err(); err != nil {
		return out, errs.Wrap("operate.SyncTemplates", err)
	}
	fine, some := 0, false
	for _, n := range out.Nodes {
		if n.Status == SyncOK {
			fine++
		}
		some = some || n.Status == SyncOK || n.Status == SyncPartial
	}
	out.Status = summed(fine, len(out.Nodes), some)
	out.Message = fmt.Sprintf("%s on %d of %s", are(len(out.Templates), "template"), fine, counted(len(out.Nodes), "node"))
	if _, err = o.Record(ctx, by, "template.sync", "template", q.Pattern, out.Message); err != nil {
		o.yield(ctx) // what nodes have already they are not brought again
	}
	return out, err
}

// published is the fleet with every version that was published before the call, which this
// gateway may not have seen yet.
func (o *Operations) published(ctx context.Context) (s *view.Snapshot, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		s, err = o.current(ctx)
		return err
	})
	return s, errs.Wrap("operate.published", err)
}

// noMatch tells that no template has a pattern's name, and of which group it was looked for.
func noMatch(s *view.Snapshot, pattern string) string {
	if pattern == "*" || strings.Contains(pattern, "/") {
		return "no template matches " + pattern
	}
	told := "no template matches " + fleet.ParseTemplateRef(pattern).String()
	for _, h := range s.TemplateHeads.All() {
		if h.Group == pattern && !h.Internal() {
			return told + ": the templates of the group " + pattern + " are " + pattern + "/*"
		}
	}
	return told
}

// summed is the status of many of which some went well, wholly or in part.
func summed(fine, all int, some bool) string {
	switch {
	case fine == all:
		return SyncOK
	case some:
		return SyncPartial
	}
	return SyncFailed
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return counted(n, what) + " are"
}

// matching are the templates of a pattern, in order of name.
func matching(s *view.Snapshot, pattern string) ([]SyncedTemplate, error) {
	group, name, found := strings.Cut(pattern, "/")
	switch {
	case pattern == "*":
		group, name = "*", "*"
	case !found:
		group, name = fleet.DefaultTemplateGroup, pattern
	}
	probe := fleet.TemplateRef{Group: strings.Replace(group, "*", "x", 1), Name: strings.Replace(name, "*", "x", 1)}
	if !probe.Valid() || pattern != "*" && (strings.Contains(group, "*") || name != "*" && strings.Contains(name, "*")) {
		return nil, errs.Field("pattern", "must be *, <group>/* or <group>/<name>")
	}
	out := []SyncedTemplate{}
	for _, h := range s.TemplateHeads.All() {
		if !h.Internal() && (group == "*" && !h.Hidden() || group == h.Group) && (name == "*" || name == h.Name) {
			out = append(out, SyncedTemplate{Template: h.TemplateRef.String(), Digest: h.Digest, Bytes: &h.SizeBytes})
		}
	}
	slices.SortFunc(out, func(a, b SyncedTemplate) int { return cmp.Compare(a.Template, b.Template) })
	return out, nil
}

// syncedNodes are the nodes asked for, or all, in order of name.
func syncedNodes(s *view.Snapshot, asked []fleet.NodeID) ([]fleet.NodeID, error) {
	if len(asked) > 0 {
		for i, id := range asked {
			if _, ok := s.Nodes.Get(id); !ok {
				return nil, errs.Field(fmt.Sprintf("nodes[%d]", i), "names a node that does not exist: %s", clip(string(id)))
			}
		}
		asked = slices.Clone(asked)
	} else {
		for id := range s.Nodes.All() {
			asked = append(asked, id)
		}
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

func (o *Operations) syncAll(ctx context.Context, s *view.Snapshot, nodes []fleet.NodeID, templates []SyncedTemplate) []SyncedNode {
	out := make([]SyncedNode, len(nodes))
	turns := make(chan struct{}, syncedAtOnce)
	var wg sync.WaitGroup
	for i, id := range nodes {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			out[i] = o.syncOne(ctx, s, id, templates)
		})
	}
	wg.Wait()
	return out
}

// syncOne brings templates to a node.
func (o *Operations) syncOne(ctx context.Context, s *view.Snapshot, id fleet.NodeID, templates []SyncedTemplate) SyncedNode {
	out := SyncedNode{Node: id, Templates: []SyncedTemplate{}}
	if _, alive := s.NodeSessions.Get(id); !alive {
		out.Status, out.Error = SyncOffline, "the node is not connected: it fetches what it needs when it is back"
		return out
	}
	began := o.cfg.Now()
	warmed, err := o.cfg.Agents.Warm(ctx, id, digestsOf(templates))
	out.Seconds = math.Round(o.cfg.Now().Sub(began).Seconds()*1000) / 1000
	by := map[string]client.WarmedVersion{}
	for _, w := range warmed {
		by[w.Digest] = w
		out.Bytes += w.Bytes
	}
	fine := 0
	for _, t := range templates {
		w, told := by[t.Digest]
		switch {
		case told && w.Status == client.WarmOK:
			fine++
			t.Status = SyncOK
		case told:
			t.Status, t.Error = SyncFailed, w.Error
		case err != nil:
			t.Status, t.Error = SyncFailed, errs.MessageOf(err)
		default:
			t.Status, t.Error = SyncFailed, "the node told nothing of it"
		}
		t.Bytes = &w.Bytes
		out.Templates = append(out.Templates, t)
	}
	out.Status = summed(fine, len(templates), fine > 0)
	if err != nil {
		out.Error = errs.MessageOf(err)
	}
	return out
}

// digestsOf are the versions of templates, each once.
func digestsOf(templates []SyncedTemplate) []string {
	var all []string
	for _, t := range templates {
		all = append(all, t.Digest)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// groupTemplates adds the current versions of all templates a group may use: those it draws
// one of as well, and those that lie below by their name.
func groupTemplates(s *view.Snapshot, g *fleet.Group, add func(*fleet.TemplateHead)) {
	t := s.Whole(g).Spec.Templates
	wanted := map[string]bool{}
	for _, l := range slices.Concat(t.AllOf, t.OneOf) {
		wanted[l.TemplateRef.String()] = true
	}
	for _, name := range []string{"base", "base-" + strings.ToLower(g.Spec.Software.Platform), string(g.Name)} {
		wanted[fleet.DefaultTemplateGroup+"/"+name] = true
	}
	groups := slices.Concat(t.AllInGroups, t.OneInGroups)
	for _, h := range s.TemplateHeads.All() {
		if wanted[h.TemplateRef.String()] || slices.Contains(groups, h.Group) {
			add(h)
		}
	}
}

// NodeCache is what a node keeps of templates. NotFound when there is no such node, or it
// is not connected.
func (o *Operations) NodeCache(ctx context.Context, id fleet.NodeID) (client.Cache, error) {
	if err := o.reachable(id); err != nil {
		return client.Cache{}, err
	}
	return o.cfg.Agents.Cache(ctx, id)
}

// reachable refuses a node that cannot be asked.
func (o *Operations) reachable(id fleet.NodeID) error {
	s := o.Snapshot()
	if _, ok := s.Nodes.Get(id); !ok {
		return errs.New(errs.NotFound, "there is no node %s", clip(string(id)))
	}
	if _, alive := s.NodeSessions.Get(id); !alive {
		return errs.New(errs.NotFound, "node %s is not connected: its cache can be asked for when it is back", id)
	}
	return nil
}

// WarmRequest asks for templates, and those that groups use, to be had by a node. Without
// either they are those of all groups.
type WarmRequest struct {
	Node      fleet.NodeID
	Templates []string
	Groups    []fleet.GroupName
}

// versions are the current versions that a request asks for, in order of name, with what
// each holds. Invalid when a template or a group is not known.
func (q WarmRequest) versions(s *view.Snapshot) ([]SyncedTemplate, error) {
	by := map[string]SyncedTemplate{}
	add := func(h *fleet.TemplateHead) {
		by[h.TemplateRef.String()] = SyncedTemplate{Template: h.TemplateRef.String(), Digest: h.Digest, Bytes: &h.SizeBytes}
	}
	for i, name := range q.Templates {
		h, err := Template(s, fleet.ParseTemplateRef(name))
		if err != nil {
			return nil, errs.Field(fmt.Sprintf("templates[%d]", i), "%s", errs.MessageOf(err))
		}
		add(h)
	}
	for i, name := range q.Groups {
		g, ok := s.Groups.Get(name)
		if !ok {
			return nil, errs.Field(fmt.Sprintf("groups[%d]", i), "names a group that does not exist: list the groups")
		}
		groupTemplates(s, g, add)
	}
	if len(q.Templates)+len(q.Groups) == 0 {
		for _, g := range s.Groups.All() {
			groupTemplates(s, g, add)
		}
	}
	out := []SyncedTemplate{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[name])
	}
	return out, nil
}

// WarmNode has a node fetch the current versions of templates, which it returns, behind the
// answer: it is done, or fails, later. Errors as of NodeCache, Invalid when a template or a
// group is not known, and Exhausted when too much is being done already.
func (o *Operations) WarmNode(ctx context.Context, by Actor, q WarmRequest) ([]SyncedTemplate, error) {
	s, err := o.published(ctx)
	if err != nil {
		return nil, err
	}
	templates, err := q.versions(s)
	if err == nil {
		err = o.reachable(q.Node)
	}
	if err != nil {
		return nil, err
	}
	digests := digestsOf(templates)
	job := func(ctx context.Context) {
		began := time.Now()
		warmed, err := o.cfg.Agents.Warm(ctx, q.Node, digests)
		failed := 0
		for _, w := range warmed {
			if w.Status != client.WarmOK {
				failed++
			}
		}
		if err != nil || failed > 0 {
			o.cfg.Log.Warn("a node's cache was not warmed wholly", "node", q.Node, "versions", len(digests), "failed", failed, "took", time.Since(began), "error", err)
		}
	}
	said := entry{action: "node.cache.warm", resource: "node", id: string(q.Node), details: counted(len(digests), "version")}
	if err := o.claim(ctx, said); err != nil {
		return nil, err
	}
	select {
	case o.jobs <- job:
	default:
		o.yield(ctx)
		return nil, errs.New(errs.Exhausted, "too many caches are being warmed now: try again in a moment")
	}
	_, err = o.record(ctx, by, said)
	return templates, err
}

// Run does what was asked for behind an answer, a few things at a time, until ctx ends;
// what is under way then is given up.
func (o *Operations) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range syncedAtOnce {
		wg.Go(func() {
			for {
				select {
				case job := <-o.jobs:
					job(ctx)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
}
