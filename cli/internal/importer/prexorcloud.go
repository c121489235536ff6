package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
)

// PrexorCloud imports groups and networks as the API returns them or mongoexport writes them, and
// the directories of a controller and a daemon.
func PrexorCloud(dir string) (*Result, error) {
	f, err := source.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := prexorcloud{report: newReport(f)}
	groups, err := p.records("groups", "name")
	if err != nil {
		return nil, err
	}
	networks, err := p.records("networks", "lobbyGroup")
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 && !f.IsDir("templates") && !f.Exists("config/controller.yml") {
		return nil, fmt.Errorf("%s has nothing of PrexorCloud: want groups.json (what GET /api/v1/groups?pageSize=500 returns) or groups/*.json, and beside it templates/ and config/controller.yml of the controller, instances/ of the daemon", f.Path)
	}
	if err := p.templates(); err != nil {
		return nil, err
	}
	var named []*group
	for _, fields := range groups {
		name := fmt.Sprint(fields["name"])
		named = append(named, p.group("group "+name, name))
	}
	for n, fields := range groups {
		if err := p.convert(named[n], fields); err != nil {
			return nil, err
		}
	}
	for _, fields := range networks {
		p.network(fields)
	}
	if err := p.controller(); err != nil {
		return nil, err
	}
	return p.finish()
}

type prexorcloud struct{ *report }

// records reads KIND.json and KIND/*.json: a page of the API, a list, one object, or one object a
// line. The key of a record of the database is its name.
func (p *prexorcloud) records(kind, has string) ([]map[string]any, error) {
	found, err := p.jsons(kind)
	if err != nil {
		return nil, err
	}
	if p.files.Exists(kind + ".json") {
		found = append([]string{kind + ".json"}, found...)
	}
	var out []map[string]any
	for _, name := range found {
		text, err := p.files.Read(name)
		if err != nil {
			return nil, err
		}
		values, err := source.DecodeAll(p.files.Abs(name), text)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			fields, ok := value.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%s: want JSON objects with the fields of %s", p.files.Abs(name), kind)
			}
			if id, ok := fields["_id"].(string); ok && fields["name"] == nil {
				fields["name"] = id
			}
			delete(fields, "_id")
			if name, ok := fields["name"].(string); !ok || name == "" || fields[has] == nil {
				return nil, fmt.Errorf("%s: an object of %s lacks name or %s", p.files.Abs(name), kind, has)
			}
			out = append(out, fields)
		}
	}
	return out, nil
}

// templates adds templates/NAME/files of the controller.
func (p *prexorcloud) templates() error {
	names, err := p.dirs("templates")
	if err != nil {
		return err
	}
	for _, name := range names {
		dir := path.Join("templates", name)
		if files := path.Join(dir, "files"); p.files.IsDir(files) {
			dir = files
		}
		p.template(name, dir)
	}
	return nil
}

// convert converts a group. Its fields have the same names and values in Orrery's API.
func (p *prexorcloud) convert(g *group, fields map[string]any) error {
	o := p.object(g.object, fields)
	o.skip("name", "runningInstances", "totalPlayers", "runtimeTarget", "revision", "createdAt", "updatedAt")
	for _, field := range []string{"routing", "predictiveScaling", "scaleUpMargin", "burstCeiling", "drainOnShutdown"} {
		o.note(field, "It has no effect in PrexorCloud and none in Orrery.")
	}
	if o.flag("maintenance") {
		p.note(o.name, "maintenance", true, "The group was in maintenance before. Keep it so when you end the maintenance of the others.")
	}
	p.copied(o, g)
	for _, field := range []string{"parent", "fallbackGroup", "bedrockProxyGroup"} {
		if name := o.text(field); name != "" {
			g.set(field, p.groupOf(name))
		}
	}
	g.setAny("dependsOn", p.groupsOf(o.texts("dependsOn")))
	g.setAny("templates", p.templatesOf(o))
	g.setAny("env", o.env("env"))
	g.setAny("variableValues", o.values("variableValues"))
	p.patches(o, g)
	p.differs(o, g)
	if o.flag("static") {
		dirs, err := p.dataOf(textIn(fields["name"]), o.texts("staticInstanceNames"))
		if err != nil {
			return err
		}
		p.static(g, dirs, o.texts("staticInstanceNames")...)
	}
	o.rest()
	return nil
}

// dataOf returns the directories of a static group's instances: those with given names in their
// order, then the others by number.
func (p *prexorcloud) dataOf(group string, names []string) ([]string, error) {
	if strings.ContainsAny(group, `/\`) || group == "." || group == ".." {
		return nil, nil
	}
	dirs, err := p.dirs(path.Join("instances", group))
	if err != nil {
		return nil, err
	}
	rank := func(dir string) int {
		if n := slices.Index(names, dir); n >= 0 {
			return n
		}
		return len(names)
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), source.ByNumber(a, b)) })
	for n, dir := range dirs {
		dirs[n] = path.Join("instances", group, dir)
	}
	return dirs, nil
}

// copied copies the fields that mean the same in Orrery.
func (p *prexorcloud) copied(o *object, g *group) {
	for _, field := range []string{"platform", "platformVersion", "jarFile", "scalingMode", "maintenanceMessage", "updateStrategy", "spreadConstraint", "motdMode"} {
		if o.has(field) {
			g.set(field, o.text(field))
		}
	}
	for _, field := range []string{
		"minInstances", "maxInstances", "maxPlayers", "scaleDownAfterSeconds", "scaleCooldownSeconds", "portRangeStart", "portRangeEnd",
		"startupTimeoutSeconds", "shutdownGraceSeconds", "maxLifetimeSeconds", "startupWeight", "priority", "memoryMb", "diskReservationMb",
		"motdIntervalSeconds", "warmPoolMinPrepared",
	} {
		if n, ok := o.whole(field); ok {
			g.set(field, n)
		}
	}
	for _, field := range []string{
		"staticInstanceNames", "protectedPaths", "maintenanceBypass", "nodeAffinity", "nodeAntiAffinity", "jvmArgs", "motds", "attachedModules",
		"enabledModules", "disabledModules", "attachedExtensions", "enabledExtensions", "disabledExtensions",
	} {
		if list := o.texts(field); len(list) > 0 {
			g.set(field, list)
		}
	}
	for _, field := range []string{"scaleUpThreshold", "cpuReservation", "defaultGroup"} {
		switch o.fields[field].(type) {
		case json.Number, float64, int, bool:
			g.set(field, o.value(field))
		}
	}
}

// differs notes fields that are kept and mean something else in Orrery, or nothing yet.
func (p *prexorcloud) differs(o *object, g *group) {
	if share := o.fields["cpuReservation"]; share != nil && fmt.Sprint(share) != "0" && fmt.Sprint(share) != "0.0" {
		p.note(o.name, "cpuReservation", share, "It is a share of the node in PrexorCloud, and a number of cores in Orrery. Correct it.")
	}
	for _, field := range []string{"attachedModules", "enabledModules", "disabledModules", "attachedExtensions", "enabledExtensions", "disabledExtensions"} {
		o.note(field, "It is stored without effect: Orrery has no modules of PrexorCloud.")
	}
	o.note("motds", "They are stored without effect: proxies do not show them yet.")
	for _, field := range []string{"fallbackGroup", "bedrockProxyGroup"} {
		o.note(field, "It is stored without effect. Use fallbackGroups of a network.")
	}
	if warm, _ := g.fields["warmPoolMinPrepared"].(int); warm > 0 && (o.flag("static") || g.fields["scalingMode"] == "MANUAL") {
		p.note(o.name, "warmPoolMinPrepared", warm, "It was left out: Orrery refuses it for static groups and those with scalingMode MANUAL.")
		delete(g.fields, "warmPoolMinPrepared")
	}
}

func (p *prexorcloud) templatesOf(o *object) []string {
	out := []string{}
	for _, name := range o.texts("templates") {
		if !p.names.taken["template "+p.templateOf(name)] {
			p.note(o.name, "templates", name, "The template %s was not found here. Upload it before you end the maintenance.", name)
		}
		out = append(out, p.templateOf(name))
	}
	return out
}

// patches converts configPatches, without secrets.
func (p *prexorcloud) patches(o *object, g *group) {
	all, out := o.part("configPatches"), map[string]any{}
	for _, file := range slices.Sorted(maps.Keys(all.fields)) {
		if patches := all.values(file); len(patches) > 0 {
			out[file] = patches
		}
	}
	if len(out) > 0 {
		g.set("configPatches", out)
	}
}

// network converts a network.
func (p *prexorcloud) network(fields map[string]any) {
	o := p.object(fmt.Sprintf("network %v", fields["name"]), fields)
	out := map[string]any{}
	for _, field := range []string{"description", "kickMessage"} {
		if text := o.text(field); text != "" {
			out[field] = text
		}
	}
	for _, field := range []string{"lobbyGroup", "bedrockLobbyGroup"} {
		if name := o.text(field); name != "" {
			out[field] = p.groupOf(name)
			p.known(o, field, name)
		}
	}
	for _, field := range []string{"fallbackGroups", "memberGroups", "proxyGroups", "bedrockFallbackGroups"} {
		if list := o.texts(field); len(list) > 0 {
			out[field] = p.groupsOf(list)
			p.known(o, field, list...)
		}
	}
	o.skip("revision", "updatedBy", "createdAt", "updatedAt")
	p.document("Network", p.otherName(o, "network "), out)
	o.rest()
}

// known notes groups that were not imported.
func (p *prexorcloud) known(o *object, field string, groups ...string) {
	for _, name := range groups {
		if _, ok := p.names.groups[name]; !ok {
			p.note(o.name, field, name, "The group %s was not found. Make it before you apply this document.", name)
		}
	}
}

// otherName returns the valid and unique name of a network or an overlay.
func (p *prexorcloud) otherName(o *object, kind string) string {
	wanted := o.text("name")
	name := names.Cut(names.Segment(wanted), names.MaxGroup)
	if name = p.unique(kind, name); name != wanted {
		p.note(o.name, "name", wanted, "Its name is %s in Orrery.", name)
	}
	return name
}

// controller imports what the configuration of the controller declares.
func (p *prexorcloud) controller() error {
	const name = "config/controller.yml"
	if !p.files.Exists(name) {
		return nil
	}
	fields, err := p.files.YAMLObject(name)
	if err != nil {
		return err
	}
	o := p.object("controller", fields)
	for _, n := range o.list("networks") {
		if n.text("name") != "" && !p.names.taken["network "+n.text("name")] {
			p.network(n.fields)
		}
		n.skip(slices.Collect(maps.Keys(n.fields))...)
	}
	for _, e := range o.list("events") {
		p.overlay(e.fields)
		e.skip(slices.Collect(maps.Keys(e.fields))...)
	}
	if all := o.part("maintenance"); all.flag("enabled") {
		p.note(o.name, "maintenance", true, "All groups were in maintenance, with the message %q. If it shall stay so: orrery maintenance on --message TEXT", clip(all.text("message")))
	} else {
		all.skip("message")
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !o.taken[field] {
			p.note(o.name, field, nil, "Settings of the controller are settings of Orrery's programs (docs/reference/config.md).")
			o.skip(field)
		}
	}
	o.rest()
	return nil
}

// overlay converts an event of the configuration.
func (p *prexorcloud) overlay(fields map[string]any) {
	o := p.object(fmt.Sprintf("event %v", fields["name"]), fields)
	group := o.text("group")
	out := map[string]any{"groups": []string{p.groupOf(group)}, "cron": o.text("cron"), "durationSeconds": o.wholeOr("durationSeconds", 0)}
	p.known(o, "group", group)
	for _, field := range []string{"description", "timezone"} {
		if text := o.text(field); text != "" {
			out[field] = text
		}
	}
	changes, in := map[string]any{}, o.part("overlay")
	for _, field := range []string{"minInstances", "maxInstances"} {
		if n, ok := in.whole(field); ok {
			changes[field] = n
		}
	}
	for _, field := range []string{"scalingMode", "maintenanceMessage"} {
		if text := in.text(field); text != "" {
			changes[field] = text
		}
	}
	if in.has("maintenance") {
		changes["maintenance"] = in.flag("maintenance")
	}
	out["overlay"] = changes
	p.document("Overlay", p.otherName(o, "overlay "), out)
	o.rest()
}
