package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/cmdline"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
)

// CloudNet imports the directory local of a node of CloudNet 3 or 4.
func CloudNet(dir string) (*Result, error) {
	f, err := source.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := cloudnet{report: newReport(f)}
	if f.IsDir("local") {
		c.local = "local"
	}
	tasks, err := c.records("tasks")
	if err != nil {
		return nil, err
	}
	if c.groups, err = c.records("groups"); err != nil {
		return nil, err
	}
	if len(tasks) == 0 && !f.IsDir(path.Join(c.local, "templates")) {
		return nil, fmt.Errorf("%s is not a directory of CloudNet: want local/tasks/*.json or local/templates/PREFIX/NAME", f.Path)
	}
	if err := c.templatesIn(path.Join(c.local, "templates")); err != nil {
		return nil, err
	}
	if c.services, err = c.dirs(path.Join(c.local, "services")); err != nil {
		return nil, err
	}
	for _, fields := range tasks {
		c.task(fields)
	}
	c.finishGroups()
	for _, service := range c.services {
		c.note("service "+service, "", nil, "No static task has this service, so its data was left out.")
	}
	if c.local != "" && f.IsDir("modules") {
		c.note("modules", "", nil, "Modules are not imported. Networks say which groups players join (docs/check-health-and-players.md).")
	}
	return c.finish()
}

type cloudnet struct {
	*report
	// local is the path of the directory local.
	local string
	// groups are CloudNet's groups. used says which ones a task uses.
	groups []map[string]any
	used   []string
	// services are the directories in local/services that no task has yet.
	services []string
}

// records reads KIND/*.json, and KIND.json of older versions, which has a list.
func (c *cloudnet) records(kind string) ([]map[string]any, error) {
	found, err := c.jsons(path.Join(c.local, kind))
	if err != nil {
		return nil, err
	}
	if old := path.Join(c.local, kind+".json"); c.files.Exists(old) {
		found = append(found, old)
	}
	var out []map[string]any
	for _, name := range found {
		value, err := c.files.JSON(name)
		if err != nil {
			return nil, err
		}
		if file, ok := value.(map[string]any); ok && file["name"] == nil && file[kind] != nil {
			value = file[kind]
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, item := range list {
			fields, ok := item.(map[string]any)
			if !ok || textIn(fields["name"]) == "" {
				return nil, fmt.Errorf("%s:1:1: want an object with a name", c.files.Abs(name))
			}
			out = append(out, fields)
		}
	}
	return out, nil
}

// processOptions are what tasks and groups of CloudNet say about the process.
type processOptions struct {
	environment     string
	heapMiB         int
	jvm, parameters []string
	env             map[string]any
}

// task converts one task, with the groups that it is in.
func (c *cloudnet) task(fields map[string]any) {
	name := fields["name"].(string)
	o := c.object("task "+name, fields)
	o.skip("name")
	g := c.group(o.name, name)
	config := o.part("processConfiguration")
	environment := cmp.Or(config.text("environment"), "MINECRAFT_SERVER")
	static := o.flag("staticServices")
	run := processOptions{
		environment: environment, heapMiB: config.wholeOr("maxHeapMemorySize", 512),
		jvm: config.texts("jvmOptions"), parameters: config.texts("processParameters"), env: config.env("environmentVariables"),
	}
	layers, common := c.layers(o), []layer{}
	for _, in := range c.groupsOfTask(o, environment) {
		common = append(common, c.addGroup(in, &run)...)
	}
	if run.heapMiB <= 0 {
		run.heapMiB = 512
	}
	g.set("memoryMb", cmdline.WithOverhead(run.heapMiB))
	g.set("command", c.commandOf(o, run, slices.Concat(c.dataOf(o, name, static), paths(layers), paths(common))))
	g.setAny("env", run.env)
	c.platform(g, environment)
	c.scaling(o, g, static)
	c.portsOf(o, g)
	c.content(o, g, layers, common)
	c.onNodes(g, o.texts("associatedNodes"))
	if host := o.text("hostAddress"); host != "" {
		g.set("hostAddress", host)
	}
	if static {
		c.staticOf(o, g, name)
	}
	c.without(o)
	o.rest()
}

// groupsOfTask returns the groups that a task is in, by name or by its environment.
func (c *cloudnet) groupsOfTask(o *object, environment string) []*object {
	var out []*object
	names := o.texts("groups")
	for _, fields := range c.groups {
		name := fields["name"].(string)
		targets := c.object("group "+name, fields).texts("targetEnvironments")
		if !slices.Contains(names, name) && !slices.Contains(targets, environment) {
			continue
		}
		in := c.object("group "+name, fields)
		in.skip("name", "targetEnvironments")
		out = append(out, in)
		if !slices.Contains(c.used, name) {
			c.used = append(c.used, name)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(c.groups, func(g map[string]any) bool { return g["name"] == name }) {
			c.note(o.name, "groups", name, "The group %s was not found.", name)
		}
	}
	return out
}

// addGroup adds what a group of CloudNet gives to a task, and returns its templates.
func (c *cloudnet) addGroup(in *object, run *processOptions) []layer {
	run.jvm = append(run.jvm, in.texts("jvmOptions")...)
	run.parameters = append(run.parameters, in.texts("processParameters")...)
	maps.Copy(run.env, in.env("environmentVariables"))
	out := c.layers(in)
	c.without(in)
	in.rest()
	return out
}

// finishGroups notes the groups that no task uses.
func (c *cloudnet) finishGroups() {
	for _, fields := range c.groups {
		if name := fields["name"].(string); !slices.Contains(c.used, name) {
			c.note("group "+name, "", nil, "No task is in this group, so it was left out. CloudNet's groups are merged into the groups of their tasks.")
		}
	}
}

// layer is a template of a task.
type layer struct {
	path   string
	fields map[string]any
}

func (c *cloudnet) layers(o *object) []layer {
	var out []layer
	for _, l := range o.list("templates") {
		prefix, name := l.text("prefix"), l.text("name")
		fields := c.layer(l, templateRef{group: prefix, name: name, storage: l.text("storage"), priority: l.wholeOr("priority", 0)})
		if l.flag("alwaysCopyToStaticServices") {
			c.note(o.name, l.path+"alwaysCopyToStaticServices", true, "Templates only add missing files to static instances. Set onTemplatePasteOverridePresentFiles of the group to true, and protect the data with protectedPaths, to replace files at each start.")
		}
		out = append(out, layer{path: path.Join(c.local, "templates", prefix, name), fields: fields})
	}
	return out
}

// dataOf returns the directories of a static task's services.
func (c *cloudnet) dataOf(o *object, task string, static bool) []string {
	if !static {
		return nil
	}
	splitter := cmp.Or(textIn(o.fields["nameSplitter"]), "-")
	pattern := regexp.MustCompile(`^` + regexp.QuoteMeta(task+splitter) + `\d+$`)
	var out []string
	for _, service := range c.services {
		if pattern.MatchString(service) {
			out = append(out, path.Join(c.local, "services", service))
		}
	}
	slices.SortFunc(out, source.ByNumber)
	return out
}

func (c *cloudnet) staticOf(o *object, g *group, task string) {
	data := c.dataOf(o, task, true)
	c.services = slices.DeleteFunc(c.services, func(service string) bool {
		return slices.Contains(data, path.Join(c.local, "services", service))
	})
	g.set("maxInstances", max(1, len(data), g.fields["minInstances"].(int)))
	c.static(g, data)
}

// commandOf returns the command line. CloudNet starts the first jar whose name has the environment's
// software in it, through a program of its own, which Orrery does not need.
func (c *cloudnet) commandOf(o *object, run processOptions, dirs []string) string {
	java := cmp.Or(o.text("javaCommand"), "java")
	words := append([]string{java, fmt.Sprintf("-Xmx%dM", run.heapMiB), fmt.Sprintf("-Xms%dM", run.heapMiB)}, run.jvm...)
	jar := c.jar(dirs)
	if jar == "" {
		jar = "server.jar"
		c.note(o.name, "command", nil, "No jar was found in its templates, so the command runs server.jar. Correct it.")
	}
	words = append(words, "-jar", jar)
	if isServer(run.environment) {
		words = append(words, "nogui", "--port", "%PORT%")
	}
	return c.words(o.name, "processConfiguration.jvmOptions", append(words, run.parameters...), cmdline.Quote)
}

// jar returns the name of the server's jar in the first of some directories that has one.
func (c *cloudnet) jar(dirs []string) string {
	for _, dir := range dirs {
		entries, err := c.files.List(dir)
		if err != nil {
			continue // a template that cannot be read is noted when it is scanned
		}
		for _, e := range entries {
			if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".jar") {
				return e.Name()
			}
		}
	}
	return ""
}

// isServer reports whether an environment is a Minecraft server that takes its port as an option.
func isServer(environment string) bool {
	return slices.Contains([]string{"MINECRAFT_SERVER", "MODDED_MINECRAFT_SERVER", "LIMBO_LOOHP"}, environment)
}

// platform sets what depends on the server software.
func (c *cloudnet) platform(g *group, environment string) {
	platform, stop := environment, "stop"
	switch environment {
	case "MINECRAFT_SERVER":
		platform = "PAPER"
	case "BUNGEECORD":
		stop = "end"
		g.set("configPatches", map[string]any{"config.yml": map[string]any{"listeners[0].host": "0.0.0.0:%PORT%"}})
	case "VELOCITY":
		stop = "end"
		g.set("configPatches", map[string]any{"velocity.toml": map[string]any{"bind": "0.0.0.0:%PORT%"}})
	case "WATERDOG", "WATERDOG_PE":
		stop = "end"
		g.set("configPatches", map[string]any{"config.yml": map[string]any{"listener.host": "0.0.0.0:%PORT%"}})
		c.note(g.object, "processConfiguration.environment", environment, "Add the platform %s to the catalog with the category PROXY, so that Orrery knows that it is a proxy (docs/get-server-software.md).", environment)
	case "NUKKIT", "GO_MINT":
		g.patchPort()
	default:
		if !isServer(environment) {
			c.note(g.object, "processConfiguration.environment", environment, "Orrery does not know how this software gets its port. Write %%PORT%% into its configuration with configPatches.")
		}
	}
	g.set("platform", platform)
	g.set("stopCommand", stop)
}

// portsOf sets the ports: 100 from the task's first one on. CloudNet has no last one.
func (c *cloudnet) portsOf(o *object, g *group) {
	start := o.wholeOr("startPort", 44955)
	g.set("portRangeStart", start)
	g.set("portRangeEnd", min(start+99, 65535))
}

// content sets the templates. In CloudNet a file of a later template replaces that of an earlier one.
// Smart may choose one of the task's own templates; those of its groups are always used.
func (c *cloudnet) content(o *object, g *group, own, common []layer) {
	static := o.flag("staticServices")
	installer := ""
	if smart := smartOf(o); smart["enabled"] == true && !static {
		installer = textIn(smart["templateInstaller"])
	}
	selection := map[string]any{"onTemplatePasteOverridePresentFiles": !static}
	if installer == "" || installer == "INSTALL_ALL" {
		selection["allOf"] = selected(own, common)
	} else {
		selection["oneOf"], selection["allOf"] = selected(own), selected(common)
		if installer != "INSTALL_RANDOM_ONCE" {
			c.note(o.name, "properties.smartConfig.templateInstaller", installer, "One of the task's templates is chosen at random for every instance.")
		}
	}
	g.set("templateInstallationConfig", selection)
	g.set("autoLayers", false)
	g.set("mergeFiles", []string{})
	g.set("fileModifications", []string{})
}

// selected returns the templates of a selection.
func selected(lists ...[]layer) []any {
	out := []any{}
	for _, l := range slices.Concat(lists...) {
		out = append(out, l.fields)
	}
	return out
}

// paths returns the directories of templates.
func paths(layers []layer) []string {
	var out []string
	for _, l := range layers {
		out = append(out, l.path)
	}
	return out
}

func smartOf(o *object) map[string]any {
	properties, _ := o.fields["properties"].(map[string]any)
	smart, _ := properties["smartConfig"].(map[string]any)
	return smart
}

// scaling sets the number of instances, with the settings of the module Smart if it is on.
func (c *cloudnet) scaling(o *object, g *group, static bool) {
	g.set("minInstances", o.wholeOr("minServiceCount", 0))
	g.set("maxInstances", 0) // CloudNet has no maximum
	properties := o.part("properties")
	smart := properties.part("smartConfig")
	if !smart.flag("enabled") {
		smart.skip(slices.Collect(maps.Keys(smart.fields))...) // without effect
		return
	}
	if static {
		c.note(o.name, "properties.smartConfig", true, "Static groups do not scale by their load, so it was left out.")
		smart.skip(slices.Collect(maps.Keys(smart.fields))...)
		return
	}
	most := max(smart.wholeOr("maxServices", -1), smart.wholeOr("maxServiceCount", -1))
	if most <= 0 {
		most = max(10, g.fields["minInstances"].(int))
		c.note(o.name, "properties.smartConfig.maxServices", nil, "There was no maximum. Orrery needs one to scale by the load, so it is %d now.", most)
	}
	g.set("maxInstances", most)
	g.set("startupWeight", smart.wholeOr("priority", 10))
	g.set("scaleDownAfterSeconds", smart.wholeOr("autoStopTimeByUnusedServiceInSeconds", 180))
	g.set("scaleCooldownSeconds", smart.wholeOr("forAnewInstanceDelayTimeInSeconds", 300))
	if percent := smart.wholeOr("percentOfPlayersForANewServiceByInstance", 100); percent > 0 && percent <= 100 {
		g.set("scaleUpThreshold", float64(percent)/100)
	}
	if smart.flag("splitLogicallyOverNodes") {
		g.set("placementProfile", "spread")
	}
	smart.skip("templateInstaller", "dynamicMemoryAllocationRange")
	smart.same("directTemplatesAndInclusionsSetup", true, "Orrery always makes the files when an instance starts.")
	smart.same("dynamicMemoryAllocation", false, "Orrery gives every instance of a group the same memory.")
	smart.same("preparedServices", 0, "Orrery brings templates to nodes instead (docs/update-servers.md). warmPoolMinPrepared keeps running instances ready.")
	smart.same("minNonFullServices", 0, "Use scaleBufferSlots or scaleBufferPercent (docs/scale-groups.md).")
	smart.same("smartMinServiceCount", 0, "Use minInstances.")
	for _, field := range []string{"percentOfPlayersToCheckShouldStopTheService", "percentOfPlayersToCheckShouldAutoStopTheServiceInFuture"} {
		smart.same(field, 0, "Orrery stops an instance only when it has no players.")
	}
}

// without takes the fields of tasks and groups that have no counterpart.
func (c *cloudnet) without(o *object) {
	o.same("runtime", "jvm", "Orrery runs the command as a process. For containers, set runtime to docker and container.image.")
	o.same("nameSplitter", "-", "Instances are named GROUP-1.")
	o.same("disableIpRewrite", false, "Orrery never rewrites addresses in files.")
	o.same("autoDeleteOnStop", true, "The files of an instance that is not static are always deleted.")
	o.same("maintenance", false, "The task was in maintenance before. Keep it so when you end the maintenance of the others.")
	o.note("deletedFilesAfterStop", "Orrery deletes no files of static instances. Delete them in the command, before the server starts.")
	o.note("deployments", "Orrery copies nothing into templates at a stop. When you want it: orrery template save INSTANCE TEMPLATE")
	o.note("includes", "Put the files into a template, or follow the URL with a template source of kind http (docs/get-templates-from-elsewhere.md).")
	o.part("properties").note("requiredPermission", "Orrery does not check permissions of players. Let the proxy's plugin do it.")
}
