// Package importer reads the configuration of older systems and converts it into the documents of
// Orrery. It changes nothing and connects to nothing. A setting without a counterpart becomes a Note.
//
// Each importer takes the fields of an object one by one. A field that it does not take is noted
// by construction, so that no setting is lost silently.
package importer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/policy"
	"github.com/orreryhq/orrery/cli/internal/manifest"
)

// Result is what was found, in the order in which it must be applied.
type Result struct {
	// Documents are groups and what refers to them. A document comes after those that it names.
	Documents []manifest.Document
	// Templates are the directories to upload. Upload them before the documents are applied.
	Templates []Template
	// Static is the data of static instances.
	Static []StaticData
	// Notes say what did not map.
	Notes []Note
}

// Template is a directory whose files become a template.
type Template struct {
	// Name is "group/name", or "name" in the group default.
	Name string
	// Dir is an absolute path.
	Dir string
	// Exclude are paths below Dir that must not be uploaded: links that leave the source's
	// directory, and files that are not regular.
	Exclude []string
}

// StaticData is the directory of a static instance. It belongs at static/Group/Instance below the
// data directory of the node.
type StaticData struct {
	Group, Instance string
	// Dir is an absolute path.
	Dir string
}

// Note says what did not map and what to do about it. There is one per object and field.
type Note struct {
	// Object is, for example, "task Lobby".
	Object string
	// Field is the name in the source, with a path: "processConfiguration.environment".
	Field string
	// Value is the field's value as JSON, shortened, or *** for a secret.
	Value string
	Text  string
}

// System is a system that can be imported from.
type System struct {
	Name, Summary string
	// Argument says what Import takes.
	Argument string
	Import   func(argument string) (*Result, error)
}

// Systems returns all systems, sorted by name.
func Systems() []System {
	return []System{
		{"cloudnet", "CloudNet 3 or 4: tasks, groups, templates and static services", "the directory of a CloudNet node, or its directory local", CloudNet},
		{"prexorcloud", "PrexorCloud: groups, networks, templates and static instances", "a directory with groups.json, as GET /api/v1/groups returns it, and the controller's and daemon's directories", PrexorCloud},
		{"pterodactyl", "Pterodactyl: servers, eggs and volumes", "a directory with JSON files of servers, as GET /api/application/servers returns them, of eggs, and with volumes", Pterodactyl},
		{"screen", "a running screen session", "the name of the session", Screen},
		{"systemd", "a systemd service", "the name of a unit, or the path of a unit file", Systemd},
		{"universe", "Universe: configurations, templates and static instances", "the directory that Universe runs in", Universe},
	}
}

// group is a group under construction.
type group struct {
	// object is its name in notes, and name its name in Orrery.
	object, name string
	fields       map[string]any
}

// set sets a field.
func (g *group) set(field string, value any) { g.fields[field] = value }

// setAny sets a field to a map or list, unless it is empty.
func (g *group) setAny(field string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
	}
	g.set(field, value)
}

// references are the fields of a group that name other groups.
func references() []string {
	return []string{"parent", "dependsOn", "fallbackGroup", "bedrockProxyGroup"}
}

// finish returns the result. Groups are in maintenance, and come after the groups that they name.
func (r *report) finish() (*Result, error) {
	if len(r.groups) > 0 {
		r.note("all groups", "maintenance", nil, `Every imported group has "maintenance": true, so that Orrery starts nothing of it by itself. When its files and its data are in place, set maintenance to false.`)
	}
	var fields []map[string]any
	for _, g := range r.groups {
		fields = append(fields, g.fields)
	}
	for _, need := range policy.Needs(fields) {
		r.note("all nodes", need.Setting, need.Values, "%s", need.Note())
	}
	for _, node := range r.nodes {
		r.note("node "+node, "nodes", nil, "Imported groups run on this node only. Give an agent this name, or change nodes in these groups.")
	}
	var documents []manifest.Document
	for _, g := range r.sorted() {
		g.set("maintenance", true)
		documents = append(documents, manifest.Document{Kind: "Group", Name: g.name, Fields: g.fields})
	}
	for _, d := range append(documents, r.others...) {
		fields, err := normal(d.Fields)
		if err != nil {
			return nil, err
		}
		d.Fields = fields
		r.result.Documents = append(r.result.Documents, d)
	}
	return &r.result, nil
}

// sorted returns the groups so that a group comes after those that it names.
func (r *report) sorted() []*group {
	const visiting, done = 1, 2
	byName, state, out := map[string]*group{}, map[string]int{}, []*group{}
	for _, g := range r.groups {
		byName[g.name] = g
	}
	var visit func(g *group)
	visit = func(g *group) {
		state[g.name] = visiting
		for _, field := range references() {
			for _, name := range namesIn(g.fields[field]) {
				to := byName[name]
				switch {
				case to == nil:
					r.note(g.object, field, name, "The group %s was not found. Make it before you apply this group.", name)
				case state[name] == visiting:
					r.note(g.object, field, name, "The groups name each other in a circle. Break it before you apply them.")
				case state[name] != done:
					visit(to)
				}
			}
		}
		state[g.name] = done
		out = append(out, g)
	}
	for _, g := range slices.SortedFunc(slices.Values(r.groups), func(a, b *group) int { return cmp.Compare(a.name, b.name) }) {
		if state[g.name] != done {
			visit(g)
		}
	}
	return out
}

// namesIn returns the names that a field has: one, or a list of them.
func namesIn(value any) []string {
	switch v := value.(type) {
	case string:
		return slices.DeleteFunc([]string{v}, func(s string) bool { return s == "" })
	case []string:
		return v
	}
	return nil
}

// document adds a document other than a group.
func (r *report) document(kind, name string, fields map[string]any) {
	r.others = append(r.others, manifest.Document{Kind: kind, Name: name, Fields: fields})
}

// group adds a group. Its name is the wanted one, made valid and unique.
func (r *report) group(object, wanted string) *group {
	g := &group{object: object, name: r.groupName(object, wanted), fields: map[string]any{}}
	r.groups = append(r.groups, g)
	return g
}

// onNodes restricts a group to nodes and records their names. No names mean any node.
func (r *report) onNodes(g *group, nodes []string) {
	if len(nodes) == 0 {
		g.set("nodes", []string{"*"})
		return
	}
	g.set("nodes", nodes)
	for _, n := range nodes {
		if n != "*" && !slices.Contains(r.nodes, n) {
			r.nodes = append(r.nodes, n)
		}
	}
	slices.Sort(r.nodes)
}

// clip shortens a text for a note.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
