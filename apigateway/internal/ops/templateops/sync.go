package templateops

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

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// SyncRequest makes nodes fetch templates.
type SyncRequest struct {
	// Pattern is *, group/*, group/name, or a name in the group default.
	Pattern string
	// Nodes are the nodes that fetch; empty selects all.
	Nodes []fleet.NodeID
	// DryRun fetches nothing. The report lists what would be fetched.
	DryRun bool
}

// Results of a sync on a node.
const (
	SyncOK      = "OK" // the node has all versions and verified their hashes
	SyncPartial = "PARTIAL"
	SyncFailed  = "FAILED"
	SyncOffline = "OFFLINE"
	SyncDryRun  = "DRY_RUN" // dry run
)

// SyncReport is the result of SyncTemplates.
type SyncReport struct {
	// Status is the result for all nodes: OK, PARTIAL, FAILED if no node succeeded, or DRY_RUN.
	Status    string           `json:"status"`
	Message   string           `json:"message"`
	Pattern   string           `json:"pattern"`
	Templates []SyncedTemplate `json:"templates"`
	Nodes     []SyncedNode     `json:"nodes"`
}

// SyncedTemplate is a template, its version and, within a SyncedNode, the result on that node.
type SyncedTemplate struct {
	Template string `json:"template"`
	Digest   string `json:"digest"`
	Status   string `json:"status,omitempty"`
	// Bytes is the size of the version's files. In a SyncedNode it is how much the node fetched, 0 if
	// it had the version.
	Bytes *int64 `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// SyncedNode is the result on one node.
type SyncedNode struct {
	Node      fleet.NodeID     `json:"node"`
	Status    string           `json:"status"`
	Bytes     int64            `json:"bytes"`
	Seconds   float64          `json:"seconds"`
	Error     string           `json:"error"`
	Templates []SyncedTemplate `json:"templates"`
}

// syncedAtOnce bounds the nodes that fetch templates at the same time.
const syncedAtOnce = 8

// SyncTemplates makes nodes fetch the current versions of templates. It returns when each node has
// verified them or failed, which may take minutes. Invalid when the pattern is malformed or a node
// is unknown. A pattern without a match is no error: the message says so.
func (o *Templates) SyncTemplates(ctx context.Context, by txn.Actor, q SyncRequest) (SyncReport, error) {
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
		out.Status, out.Message = SyncDryRun, fmt.Sprintf("%s would be brought to %s", txn.Count(len(out.Templates), "template"), txn.Count(len(nodes), "node"))
		for _, id := range nodes {
			out.Nodes = append(out.Nodes, SyncedNode{Node: id, Status: SyncDryRun, Templates: []SyncedTemplate{}})
		}
		return out, nil
	}
	if err := o.Claim(ctx, txn.Entry{Action: "template.sync", Resource: "template", ID: q.Pattern}); err != nil {
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
	out.Message = fmt.Sprintf("%s on %d of %s", are(len(out.Templates), "template"), fine, txn.Count(len(out.Nodes), "node"))
	if _, err = o.Record(ctx, by, "template.sync", "template", q.Pattern, out.Message); err != nil {
		o.Unclaim(ctx) // repeating it is harmless: nodes skip what they have
	}
	return out, err
}

// published returns a snapshot that has every version published before the call.
func (o *Templates) published(ctx context.Context) (s *view.Snapshot, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		s, err = o.Current(ctx)
		return err
	})
	return s, errs.Wrap("operate.published", err)
}

// noMatch is the message for a pattern that no template matches. It names the group that was
// searched.
func noMatch(s *view.Snapshot, pattern string) string {
	if pattern == "*" || strings.Contains(pattern, "/") {
		return "no template matches " + pattern
	}
	told := "no template matches " + content.ParseTemplateRef(pattern).String()
	for _, h := range s.TemplateHeads.All() {
		if h.Group == pattern && !h.Internal() {
			return told + ": the templates of the group " + pattern + " are " + pattern + "/*"
		}
	}
	return told
}

// summed returns the status of several nodes. fine of all succeeded; some is true when at least one
// succeeded in part.
func summed(fine, all int, some bool) string {
	switch {
	case fine == all:
		return SyncOK
	case some:
		return SyncPartial
	}
	return SyncFailed
}

// matching returns the templates that match a pattern, in order of name.
func matching(s *view.Snapshot, pattern string) ([]SyncedTemplate, error) {
	group, name, found := strings.Cut(pattern, "/")
	switch {
	case pattern == "*":
		group, name = "*", "*"
	case !found:
		group, name = content.DefaultTemplateGroup, pattern
	}
	probe := content.TemplateRef{Group: strings.Replace(group, "*", "x", 1), Name: strings.Replace(name, "*", "x", 1)}
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

// syncedNodes returns the requested nodes, or all, in order of name.
func syncedNodes(s *view.Snapshot, asked []fleet.NodeID) ([]fleet.NodeID, error) {
	if len(asked) > 0 {
		for i, id := range asked {
			if _, ok := s.Nodes.Get(id); !ok {
				return nil, errs.Field(fmt.Sprintf("nodes[%d]", i), "names a node that does not exist: %s", txn.Clip(string(id)))
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

func (o *Templates) syncAll(ctx context.Context, s *view.Snapshot, nodes []fleet.NodeID, templates []SyncedTemplate) []SyncedNode {
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

// syncOne makes one node fetch templates.
func (o *Templates) syncOne(ctx context.Context, s *view.Snapshot, id fleet.NodeID, templates []SyncedTemplate) SyncedNode {
	out := SyncedNode{Node: id, Templates: []SyncedTemplate{}}
	if _, alive := s.NodeSessions.Get(id); !alive {
		out.Status, out.Error = SyncOffline, "the node is not connected: it fetches what it needs when it is back"
		return out
	}
	began := o.Now()
	warmed, err := o.agents.Warm(ctx, id, digestsOf(templates))
	out.Seconds = math.Round(o.Now().Sub(began).Seconds()*1000) / 1000
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

// digestsOf returns the distinct digests of templates.
func digestsOf(templates []SyncedTemplate) []string {
	var all []string
	for _, t := range templates {
		all = append(all, t.Digest)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// groupTemplates adds the current versions of all templates a group may use, including those it
// picks one of and those that apply by their name.
func groupTemplates(s *view.Snapshot, g *fleet.Group, add func(*content.TemplateHead)) {
	whole := s.Whole(g).Spec
	t := whole.Templates
	wanted := map[string]bool{}
	for _, l := range slices.Concat(t.AllOf, t.OneOf) {
		wanted[l.TemplateRef.String()] = true
	}
	for _, name := range []string{"base", "base-" + strings.ToLower(whole.Software.Platform), string(g.Name)} {
		wanted[content.DefaultTemplateGroup+"/"+name] = true
	}
	groups := slices.Concat(t.AllInGroups, t.OneInGroups)
	for _, h := range s.TemplateHeads.All() {
		if wanted[h.TemplateRef.String()] || slices.Contains(groups, h.Group) {
			add(h)
		}
	}
}

// NodeCache returns the template cache of a node. NotFound when the node does not exist or is not
// connected.
func (o *Templates) NodeCache(ctx context.Context, id fleet.NodeID) (client.Cache, error) {
	if err := o.reachable(id); err != nil {
		return client.Cache{}, err
	}
	return o.agents.Cache(ctx, id)
}

// reachable returns an error for a node that does not exist or is not connected.
func (o *Templates) reachable(id fleet.NodeID) error {
	s := o.Snapshot()
	if _, ok := s.Nodes.Get(id); !ok {
		return errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(id)))
	}
	if _, alive := s.NodeSessions.Get(id); !alive {
		return errs.New(errs.NotFound, "node %s is not connected: try again when it is back", id)
	}
	return nil
}

// WarmRequest makes a node fetch templates, and the templates of groups. With neither, it fetches
// those of all groups.
type WarmRequest struct {
	Node      fleet.NodeID
	Templates []string
	Groups    []fleet.GroupName
}

// versions returns the requested current versions with their sizes, in order of name. Invalid when
// a template or a group is unknown.
func (q WarmRequest) versions(s *view.Snapshot) ([]SyncedTemplate, error) {
	by := map[string]SyncedTemplate{}
	add := func(h *content.TemplateHead) {
		by[h.TemplateRef.String()] = SyncedTemplate{Template: h.TemplateRef.String(), Digest: h.Digest, Bytes: &h.SizeBytes}
	}
	for i, name := range q.Templates {
		h, err := Template(s, content.ParseTemplateRef(name))
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

// WarmNode makes a node fetch the current versions of templates in the background, and returns
// them. Errors are those of NodeCache, Invalid when a template or a group is unknown, and Exhausted
// when too many background jobs wait.
func (o *Templates) WarmNode(ctx context.Context, by txn.Actor, q WarmRequest) ([]SyncedTemplate, error) {
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
		warmed, err := o.agents.Warm(ctx, q.Node, digests)
		failed := 0
		for _, w := range warmed {
			if w.Status != client.WarmOK {
				failed++
			}
		}
		if err != nil || failed > 0 {
			o.Log.Warn("a node's cache was not warmed wholly", "node", q.Node, "versions", len(digests), "failed", failed, "took", time.Since(began), "error", err)
		}
	}
	said := txn.Entry{Action: "node.cache.warm", Resource: "node", ID: string(q.Node), Details: txn.Count(len(digests), "version")}
	if err := o.Claim(ctx, said); err != nil {
		return nil, err
	}
	if !o.Enqueue(job) {
		o.Unclaim(ctx)
		return nil, errs.New(errs.Exhausted, "too many caches are being warmed now: try again in a moment")
	}
	_, err = o.RecordEntry(ctx, by, said)
	return templates, err
}

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return txn.Count(n, what) + " are"
}
