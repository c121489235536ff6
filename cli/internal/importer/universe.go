package importer

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
)

// Universe imports the directory that a node of Universe runs in.
func Universe(dir string) (*Result, error) {
	f, err := source.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	u := universe{report: newReport(f)}
	configurations, err := u.jsons("configuration")
	if err != nil {
		return nil, err
	}
	if len(configurations) == 0 && !f.IsDir("templates") {
		return nil, fmt.Errorf("%s is not a directory of Universe: want configuration/*.json or templates/GROUP/NAME", f.Path)
	}
	if err := u.templatesIn("templates"); err != nil {
		return nil, err
	}
	if u.docker, err = u.extension("docker"); err != nil {
		return nil, err
	}
	for _, name := range configurations {
		fields, err := f.JSONObject(name)
		if err != nil {
			return nil, err
		}
		u.configuration(strings.TrimSuffix(path.Base(name), path.Ext(name)), fields)
	}
	if err := u.node(); err != nil {
		return nil, err
	}
	return u.finish()
}

type universe struct {
	*report
	// docker is the configuration of the docker extension, nil without one.
	docker *object
}

// configuration converts one configuration. Absent fields have the defaults of Universe.
func (u *universe) configuration(file string, fields map[string]any) {
	name := cmp.Or(textIn(fields["name"]), file)
	o := u.object("configuration "+name, fields)
	o.skip("name")
	g := u.group(o.name, name)
	static := o.flag("static")
	g.set("command", u.command(o.name, "command", o.text("command")))
	g.set("memoryMb", o.wholeOr("ramMB", 2048))
	g.set("cpu", o.wholeOr("cpu", 100))
	g.set("minInstances", o.wholeOr("minimumServiceCount", 1))
	g.set("maxInstances", 0) // Universe has no maximum
	g.set("hostAddress", "127.0.0.1")
	if host := o.text("hostAddress"); host != "" {
		g.set("hostAddress", host)
	}
	ports := o.part("availablePorts")
	g.set("portRangeStart", ports.wholeOr("min", 25565))
	g.set("portRangeEnd", ports.wholeOr("max", 25570))
	g.set("placementProfile", "memory") // Universe takes the node with the most free memory
	u.nodesOf(o, g)
	u.runtime(o, g)
	u.content(o, g, static)
	u.ports(o, g)
	g.set("env", map[string]any{"UNIVERSE_INSTANCE_ID": "%INSTANCE_ID%"})
	if o.has("environmentVariables") {
		delete(g.fields, "env")
		g.setAny("env", o.env("environmentVariables"))
	}
	g.setAny("variableValues", o.values("properties"))
	if groups := o.texts("instanceGroups"); len(groups) > 0 {
		g.set("instanceGroups", groups)
	}
	if static {
		u.staticOf(g, name)
	}
	o.rest()
}

// staticOf makes the group of a static configuration static. Universe runs one instance of it.
func (u *universe) staticOf(g *group, name string) {
	var data []string
	if dir := "static/" + name; !strings.ContainsAny(name, `/\`) && u.files.IsDir(dir) {
		data = append(data, dir)
	}
	g.set("maxInstances", 1)
	g.set("minInstances", min(1, g.fields["minInstances"].(int)))
	u.static(g, data)
}

func (u *universe) nodesOf(o *object, g *group) {
	nodes := o.texts("nodes")
	switch {
	case !o.has("nodes"):
		nodes = []string{"node-1"}
	case len(nodes) == 0:
		u.note(o.name, "nodes", "[]", "An empty list means no node in Universe. The group may run on any node now: change nodes before you end its maintenance.")
	}
	u.onNodes(g, nodes)
}

// runtime converts the runtime. Only its name is in the configuration.
func (u *universe) runtime(o *object, g *group) {
	name := cmp.Or(o.text("runtime"), "screen")
	switch name {
	case "process", "screen", "tmux":
		g.set("runtime", name)
	case "docker":
		g.set("runtime", "docker")
		u.container(o, g)
	default:
		g.set("runtime", "process")
		u.note(o.name, "runtime", name, "Orrery has no runtime %s, so the group has the runtime process. Others are screen, tmux and docker.", name)
	}
}

// container sets what the docker extension says for all its containers.
func (u *universe) container(o *object, g *group) {
	image := "azul-zulu:25-jdk-alpine"
	if u.docker == nil {
		u.note(o.name, "container.image", nil, "extensions/docker/config.json was not found, so the group has Universe's default image %s.", image)
		g.set("container", map[string]any{"image": image, "directory": "/app"})
		return
	}
	java := u.docker.part("javaImage")
	repository, tag, registry := cmp.Or(java.text("repository"), "azul-zulu"), cmp.Or(java.text("tag"), "25-jdk-alpine"), java.text("registry")
	java.skip("platform") // Universe does not use it
	if image = repository + ":" + tag; registry != "" {
		image = registry + "/" + image
	}
	container := map[string]any{
		"image": image, "directory": cmp.Or(u.docker.text("containerWorkDir"), "/app"),
		"network": cmp.Or(u.docker.text("network"), "host"), "user": u.docker.text("user"),
	}
	volumes := u.docker.texts("binds")
	for _, v := range u.docker.list("volumes") {
		mount := v.text("hostPath") + ":" + v.text("containerPath")
		if v.flag("readOnly") {
			mount += ":ro"
		}
		volumes = append(volumes, mount)
	}
	if len(volumes) > 0 {
		container["volumes"] = volumes
	}
	g.set("container", container)
}

// content converts what the files of an instance are made from.
func (u *universe) content(o *object, g *group, static bool) {
	g.set("autoLayers", false)
	g.set("mergeFiles", []string{})
	g.set("fileModifications", append([]string{}, o.texts("fileModifications")...))
	in := o.part("templateInstallationConfig")
	override := in.flag("onTemplatePasteOverridePresentFiles")
	if static && override {
		u.note(o.name, "templateInstallationConfig.onTemplatePasteOverridePresentFiles", true, "Universe does not apply templates to static instances. It is false now, so that templates only add missing files to the data.")
		override = false
	}
	groups := func(field string) []string {
		out := []string{}
		for _, name := range in.texts(field) {
			out = append(out, names.Segment(name))
		}
		return out
	}
	g.set("templateInstallationConfig", map[string]any{
		"allOf": u.layers(in, "allOf"), "oneOf": u.layers(in, "oneOf"),
		"allInGroups": groups("allInGroups"), "oneInGroups": groups("oneInGroups"),
		"onTemplatePasteOverridePresentFiles": override,
	})
}

// layers converts a list of templates.
func (u *universe) layers(in *object, field string) []any {
	out := []any{}
	for _, l := range in.list(field) {
		out = append(out, u.layer(l, templateRef{group: cmp.Or(l.text("group"), "default"), name: l.text("name"), storage: l.text("storage"), priority: l.wholeOr("priority", 0)}))
	}
	return out
}

// templateRef names a template in the source.
type templateRef struct {
	group, name, storage string
	priority             int
}

// layer returns a template of a group. It notes one that is not in the directory of templates.
func (r *report) layer(l *object, ref templateRef) map[string]any {
	source := ref.group + "/" + ref.name
	known := r.templateOf(source)
	switch {
	case ref.storage != "" && ref.storage != "local":
		r.note(l.name, l.path+"storage", ref.storage, "The template %s is in the storage %s. Make a template source of kind s3, or upload its files.", source, ref.storage)
	case !r.names.taken["template "+known]:
		r.note(l.name, l.path+"name", source, "The template was not found here. Upload it before you end the maintenance.")
	}
	group, name, _ := strings.Cut(known, "/")
	return map[string]any{"group": names.Segment(group), "name": names.Segment(name), "priority": ref.priority}
}

// ports converts the additional ports.
func (u *universe) ports(o *object, g *group) {
	var out []any
	for _, p := range o.list("additionalPorts") {
		port := p.wholeOr("port", 0)
		name, protocol := p.text("name"), strings.ToLower(cmp.Or(p.text("protocol"), "tcp"))
		if !slices.Contains([]string{"tcp", "udp"}, protocol) {
			u.note(o.name, p.path+"protocol", protocol, "The port is a tcp port now: Orrery knows tcp and udp.")
			protocol = "tcp"
		}
		out = append(out, map[string]any{"name": names.Variable(cmp.Or(name, fmt.Sprintf("port-%d", port))), "protocol": protocol, "port": port})
	}
	if len(out) > 0 {
		g.set("additionalPorts", out)
	}
}

// extension reads the configuration of an extension. It returns nil if the file is missing.
func (u *universe) extension(name string) (*object, error) {
	file := "extensions/" + name + "/config.json"
	if !u.files.Exists(file) {
		return nil, nil
	}
	fields, err := u.files.JSONObject(file)
	if err != nil {
		return nil, err
	}
	return u.object("extension "+name, fields), nil
}

// node notes the settings of the node, which are settings of Orrery's programs and not documents.
func (u *universe) node() error {
	if u.docker != nil {
		u.docker.skip("factoryName", "autoRemove")
		u.docker.note("hostDataPath", "It is not needed: the agent runs on the host itself.")
		u.docker.note("dockerHost", "Set DOCKER_HOST in the environment of the agent, unless the engine is at /var/run/docker.sock.")
		u.docker.note("stopTimeout", "Set shutdownGraceSeconds in each group; it is 30 by default.")
		u.docker.rest()
	}
	others, err := u.dirs("extensions")
	if err != nil {
		return err
	}
	for _, name := range others {
		if name != "docker" {
			u.note("extension "+name, "", nil, "Extensions are not imported. Orrery has sources of templates, notices and metrics of its own (docs/README.md).")
		}
	}
	if u.files.Exists("database.json") {
		u.note("database", "", nil, "Its API keys are not imported. Make API tokens (docs/manage-users.md).")
	}
	if !u.files.Exists("config.json") {
		return nil
	}
	fields, err := u.files.JSONObject("config.json")
	if err != nil {
		return err
	}
	o := u.object("node "+cmp.Or(textIn(fields["nodeId"]), "node-1"), fields)
	o.skip("nodeId", "isMasterNode", "debug")
	for _, field := range []string{"address", "port", "apiPort", "masterAddress", "masterPort", "masterApiPort", "bindAddress", "publicAddress"} {
		o.note(field, "Addresses and ports are settings of Orrery's programs (docs/choose-ports.md).")
	}
	o.note("clusterName", "Programs of Orrery share a cluster secret instead (docs/add-a-machine.md).")
	o.note("maxRamMB", "Set the memory of the node in the settings of its agent (docs/reference/config.md).")
	o.note("maxCpu", "Set the CPU of the node in the settings of its agent (docs/reference/config.md).")
	o.note("nodeSpecificVariables", "Set them as variables in the settings of the agent (docs/reference/config.md).")
	o.note("updateSources", "Make a template source of kind http for each (docs/get-templates-from-elsewhere.md).")
	o.rest()
	return nil
}
