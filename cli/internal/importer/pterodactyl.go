package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// Pterodactyl imports servers as the panel's application API returns them, eggs as it exports them
// or its API returns them, and the volumes of wings. Every server becomes a static group.
func Pterodactyl(dir string) (*Result, error) {
	f, err := source.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := pterodactyl{report: newReport(f), used: map[*egg]bool{}}
	for _, sub := range []string{".", "servers", "eggs"} {
		if err := p.read(sub); err != nil {
			return nil, err
		}
	}
	if len(p.servers) == 0 {
		return nil, fmt.Errorf("%s has no servers of Pterodactyl: want a JSON file with what GET /api/application/servers?include=allocations,egg,variables returns", f.Path)
	}
	for _, fields := range p.servers {
		p.server(fields)
	}
	for _, e := range p.eggs {
		if !p.used[e] {
			p.note("egg "+e.name, "", nil, "No server was found to use it, so it was left out.")
		}
	}
	return p.finish()
}

type pterodactyl struct {
	*report
	servers []map[string]any
	eggs    []*egg
	used    map[*egg]bool
}

// egg is a kind of server.
type egg struct {
	name   string
	fields map[string]any
}

// read reads the JSON files of a directory.
func (p *pterodactyl) read(dir string) error {
	found, err := p.jsons(dir)
	if err != nil {
		return err
	}
	for _, name := range found {
		value, err := p.files.JSON(name)
		if err != nil {
			return err
		}
		if !p.add(value) {
			p.note("file "+name, "", nil, "It has neither servers nor eggs of Pterodactyl, so it was left out.")
		}
	}
	return nil
}

// add adds what a file has: a page or list, a server, or an egg.
func (p *pterodactyl) add(value any) bool {
	if list, ok := value.([]any); ok {
		added := false
		for _, item := range list {
			added = p.add(item) || added
		}
		return added
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return false
	}
	attributes, _ := fields["attributes"].(map[string]any)
	switch {
	case fields["object"] == "list":
		p.pages(fields)
		return p.add(fields["data"])
	case fields["object"] == "server" && attributes != nil:
		p.servers = append(p.servers, attributes)
	case fields["object"] == "egg" && attributes != nil:
		p.addEgg(attributes)
	case fields["startup"] != nil && fields["config"] != nil:
		p.addEgg(fields)
	default:
		return false
	}
	return true
}

func (p *pterodactyl) addEgg(fields map[string]any) *egg {
	e := &egg{name: cmp.Or(textIn(fields["name"]), "without a name"), fields: fields}
	p.eggs = append(p.eggs, e)
	return e
}

// pages notes a list if some of its pages are missing.
func (p *pterodactyl) pages(list map[string]any) {
	meta := p.object("servers", list).part("meta").part("pagination")
	if total, count := meta.wholeOr("total", 0), meta.wholeOr("count", 0); total > count {
		p.note("servers", "meta.pagination.total", total, "A file has only a part of the list. Export every page (?per_page=100&page=2 and so on) into a file of its own.")
	}
}

// server converts one server.
func (p *pterodactyl) server(fields map[string]any) {
	name := cmp.Or(textIn(fields["name"]), textIn(fields["identifier"]), textIn(fields["uuid"]))
	o := p.object("server "+name, fields)
	o.skip("id", "uuid", "identifier", "name", "nest", "created_at", "updated_at", "status", "suspended", "egg")
	g := p.group(o.name, name)
	container := o.part("container")
	container.skip("installed")
	s := &server{object: o, group: g, container: container, values: map[string]any{}, env: map[string]any{}, renamed: map[string]string{}}
	s.egg = p.eggOf(o, container)
	p.variables(s)
	p.startup(s)
	p.limits(o, g)
	p.allocations(s)
	p.egg(s)
	g.set("minInstances", 1)
	g.set("maxInstances", 1)
	g.set("scalingMode", "STATIC")
	g.set("autoLayers", false)
	g.set("fileModifications", []string{})
	p.data(o, g, textIn(fields["uuid"]))
	p.serverNotes(o)
	o.rest()
}

// server is a server that is being converted.
type server struct {
	object, container *object
	group             *group
	// egg is nil if it was not found.
	egg         *object
	values, env map[string]any
	// renamed are the names of placeholders that a variable's name cannot have in Orrery.
	renamed map[string]string
}

// eggOf returns the egg of a server. An exported egg has no number, so it is found by its command.
func (p *pterodactyl) eggOf(o, container *object) *object {
	if included := o.part("relationships").part("egg"); included.has("attributes") {
		fields := included.part("attributes").fields
		included.skip("object", "attributes")
		included.parts = nil // its fields are taken below, under the egg's own name
		return p.useEgg(p.addEgg(fields))
	}
	number, startup := fmt.Sprint(o.fields["egg"]), textIn(container.fields["startup_command"])
	var same []*egg
	for _, e := range p.eggs {
		if e.fields["id"] != nil && fmt.Sprint(e.fields["id"]) == number {
			return p.useEgg(e)
		}
		if startup != "" && textIn(e.fields["startup"]) == startup {
			same = append(same, e)
		}
	}
	if len(same) == 1 {
		return p.useEgg(same[0])
	}
	p.note(o.name, "egg", o.fields["egg"], "The egg was not found, so the stop command, the readiness check and the changes of configuration files are missing. Export the servers with ?include=allocations,egg,variables, or put the egg's JSON file here.")
	return nil
}

func (p *pterodactyl) useEgg(e *egg) *object {
	p.used[e] = true
	return p.object("egg "+e.name, e.fields)
}

// variables collects the values of the egg's variables. Secrets are left out and noted.
func (p *pterodactyl) variables(s *server) {
	environment := s.container.part("environment")
	environment.skip("STARTUP", "P_SERVER_LOCATION", "P_SERVER_UUID")
	var defaults []*object
	if s.egg != nil {
		defaults = s.egg.list("variables")
		if in := s.egg.part("relationships").part("variables"); in.has("data") {
			in.skip("object")
			for _, item := range in.list("data") {
				item.skip("object")
				defaults = append(defaults, item.part("attributes"))
			}
		}
	}
	for _, v := range defaults {
		if v.has("rules") {
			p.note(s.egg.name, "variables", nil, "Only the values of variables were taken. To keep their rules and descriptions, define them as variables of a template (docs/fill-configuration-files.md).")
		}
		v.skip("id", "egg_id", "name", "description", "user_viewable", "user_editable", "field_type", "rules", "created_at", "updated_at", "object")
		if name, value := v.text("env_variable"), v.text("default_value"); name != "" && !environment.has(name) {
			if environment.fields == nil {
				environment.fields = map[string]any{}
			}
			environment.fields[name] = value
		}
	}
	names := slices.Sorted(maps.Keys(environment.fields))
	for _, name := range names {
		if !environment.taken[name] {
			p.variable(s, environment, name)
		}
	}
	s.env["SERVER_MEMORY"], s.env["SERVER_PORT"], s.env["SERVER_IP"] = "%MEMORY%", "%PORT%", "0.0.0.0"
}

// variable makes a value of the environment a placeholder and a variable of the environment.
func (p *pterodactyl) variable(s *server, environment *object, name string) {
	value := environment.text(name)
	placeholder := names.Variable(name)
	if builtIn(placeholder) {
		placeholder = "EGG_" + placeholder
	}
	s.renamed[name] = placeholder
	switch {
	case !names.IsVariable(name) || slices.Contains(blockedEnv(), name):
		p.note(s.object.name, environment.path+name, value, "Orrery refuses a variable of this name, so it was left out.")
		return
	case secret.Is(name, value) || secret.HasCredentials(value):
		p.note(s.object.name, environment.path+name, secret.Hidden, "It looks like a secret, so it was not copied: give a value to %s. %s", placeholder, secretHelp)
	default:
		s.values[placeholder] = value
	}
	if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= 1_000_000 && slices.Contains([]string{"MAX_PLAYERS", "MAXPLAYERS", "SERVER_MAXPLAYERS"}, name) {
		s.group.set("maxPlayers", n)
	}
	if _, known := s.values[placeholder]; known {
		s.env[name] = "%" + placeholder + "%"
	}
}

// builtIn reports whether a placeholder has a value in Orrery already.
func builtIn(name string) bool {
	return strings.HasPrefix(name, "PORT_") || slices.Contains([]string{
		"PORT", "INSTANCE_ID", "INSTANCE_NAME", "GROUP", "CONFIGURATION_NAME", "INSTANCE_GROUPS", "NODE_ID", "NODE_ADDRESS", "HOST_ADDRESS", "RAM_MB", "MEMORY",
		"MAX_PLAYERS", "MASTER_IP", "MASTER_ADDRESS", "MASTER_PORT", "MASTER_API_PORT", "NODE_PORT",
	}, name)
}

// startup sets the command and the container. {{NAME}} becomes %NAME%.
func (p *pterodactyl) startup(s *server) {
	o, g := s.object, s.group
	line := s.container.text("startup_command")
	if line == "" && s.egg != nil {
		line = textIn(s.egg.fields["startup"])
	}
	g.set("command", p.command(o.name, "container.startup_command", p.replaced(s, line, "container.startup_command")))
	image := s.container.text("image")
	if s.egg != nil {
		images := s.egg.part("docker_images")
		for _, name := range slices.Sorted(maps.Keys(images.fields)) {
			image = cmp.Or(image, images.text(name))
			images.skip(name)
		}
		s.egg.skip("docker_image", "startup")
	}
	if image == "" {
		p.note(o.name, "container.image", nil, "No image was found. Set container.image: the runtime docker needs it.")
	}
	g.set("runtime", "docker")
	g.set("container", map[string]any{"image": image, "directory": "/home/container"})
	g.set("env", s.env)
	g.set("variableValues", s.values)
}

var mustache = lazyregexp.New(`\{\{\s*([A-Za-z0-9_.]+)\s*\}\}`)

// replaced returns a text with Orrery's placeholders. It notes those that Orrery does not have.
func (p *pterodactyl) replaced(s *server, text, field string) string {
	return mustache().ReplaceAllStringFunc(text, func(match string) string {
		name := mustache().FindStringSubmatch(match)[1]
		switch name {
		case "SERVER_MEMORY", "server.build.memory", "server.build.memory_limit":
			return "%MEMORY%"
		case "SERVER_PORT", "server.build.default.port", "server.allocations.default.port":
			return "%PORT%"
		case "SERVER_IP", "server.build.default.ip", "server.allocations.default.ip":
			return "0.0.0.0"
		}
		for _, prefix := range []string{"server.build.env.", "server.build.environment.", "server.environment.", "env."} {
			name = strings.TrimPrefix(name, prefix)
		}
		if placeholder, ok := s.renamed[name]; ok {
			return "%" + placeholder + "%"
		}
		p.note(s.object.name, field, text, "%s has no value here. Replace it.", match)
		return match
	})
}

// limits converts the limits.
func (p *pterodactyl) limits(o *object, g *group) {
	in, limits := o.part("limits"), map[string]any{}
	g.set("memoryMb", max(0, in.wholeOr("memory", 0)))
	if cpu := in.wholeOr("cpu", 0); cpu > 0 {
		g.set("cpuLimit", cpu)
	}
	if disk := in.wholeOr("disk", 0); disk > 0 {
		limits["diskMb"] = disk
	}
	if io := in.wholeOr("io", 500); io > 0 && io != 500 {
		limits["ioWeight"] = max(1, io/5) // 500 is the usual weight, which is 100 in Orrery
	}
	if len(limits) > 0 {
		g.set("limits", limits)
	}
	in.same("swap", 0, "Orrery gives instances no swap of their own.")
	in.same("oom_disabled", false, "An instance that uses more than memoryMb is ended.")
	in.same("oom_killer", true, "An instance that uses more than memoryMb is ended.")
	in.note("threads", "Orrery does not pin instances to cores. Use cpuLimit.")
}

// allocations converts the ports.
func (p *pterodactyl) allocations(s *server) {
	o, g := s.object, s.group
	o.skip("allocation")
	in := o.part("relationships").part("allocations")
	in.skip("object")
	var others []any
	found, seen := false, map[int]bool{}
	for _, item := range in.list("data") {
		item.skip("object")
		a := item.part("attributes")
		a.skip("id", "assigned")
		port := a.wholeOr("port", 0)
		a.same("ip", "0.0.0.0", "Orrery publishes ports on all addresses of the node.")
		alias := a.text("alias")
		a.note("notes", "Name the additional port after it.")
		if fmt.Sprint(a.fields["id"]) == fmt.Sprint(o.fields["allocation"]) {
			found = true
			if g.onPort(port); alias != "" {
				g.set("hostAddress", alias)
			}
			continue
		}
		if seen[port] {
			continue // on another address
		}
		seen[port] = true
		others = append(others, map[string]any{"name": fmt.Sprintf("port-%d", port), "protocol": "tcp", "port": port})
	}
	if len(others) > 0 {
		g.set("additionalPorts", others)
		p.note(o.name, "relationships.allocations", nil, "The additional ports are tcp now. Set protocol to udp where the server needs it.")
	}
	if !found {
		p.note(o.name, "allocation", o.fields["allocation"], "The port is unknown, so the group has the default range. Export the servers with ?include=allocations, or set portRangeStart and portRangeEnd.")
	}
}

// data finds the volume of a server.
func (p *pterodactyl) data(o *object, g *group, uuid string) {
	var found []string
	for _, dir := range []string{"volumes/" + uuid, uuid} {
		if uuid != "" && !strings.ContainsAny(uuid, `/\.`) && p.files.IsDir(dir) {
			found = []string{dir}
			break
		}
	}
	p.static(g, found)
	p.note("volumes", "", nil, "The files of volumes belong to the user pterodactyl of the old machine. Set container.user to its number, or change their owner to the user of the image.")
}

// serverNotes notes what a server says that has no counterpart.
func (p *pterodactyl) serverNotes(o *object) {
	if status := textIn(o.fields["status"]); o.fields["suspended"] == true || status != "" {
		p.note(o.name, "status", cmp.Or(status, "suspended"), "The server was not usable in the panel. Decide before you end its maintenance.")
	}
	o.note("description", "A group has no description.")
	o.note("external_id", "Use labels of the group.")
	o.note("user", "Owners are not imported. Make users, and give their roles rights (docs/manage-users.md).")
	o.note("node", "The group may run on any node. Set nodes to the one that has the data.")
	features := o.part("feature_limits")
	features.same("databases", 0, "Orrery makes no databases.")
	features.same("allocations", 0, "Use additionalPorts.")
	features.same("backups", 0, "Make a schedule with the action backup (docs/back-up-a-world.md).")
	relations := o.part("relationships")
	relations.note("user", "Users are not imported. Make them (docs/manage-users.md).")
	relations.note("subusers", "Users are not imported. Make them (docs/manage-users.md).")
	relations.skip("nest", "location", "pack", "variables", "node")
	relations.note("databases", "Orrery makes no databases. Give the server the address and password of one as a secret.")
	relations.note("backups", "Backups stay where they are.")
}

// egg converts what the egg says about stop, readiness and files.
func (p *pterodactyl) egg(s *server) {
	e := s.egg
	if e == nil {
		return
	}
	e.skip("_comment", "meta", "exported_at", "id", "uuid", "name", "nest", "author", "description", "created_at", "updated_at", "tags")
	config := e.part("config")
	p.stop(s.group, config.text("stop"))
	p.ready(s, config)
	p.patches(s, config)
	if logs := decoded(config.value("logs")); !empty(logs) {
		p.note(e.name, "config.logs", nil, "Orrery keeps the console, and does not read log files.")
	}
	config.note("file_denylist", "Orrery has no list of files that users must not change.")
	config.note("extends", "The egg inherits from another one. Check its stop command and readiness.")
	e.note("file_denylist", "Orrery has no list of files that users must not change.")
	e.note("features", "They are hints for the panel, for example to accept the EULA.")
	for _, field := range []string{"scripts", "script"} { // of exports, and of the API
		e.note(field, "The installation is not run: the data has its result. For new servers, put the files into a template.")
	}
	e.part("relationships").skip("nest", "servers", "config", "script")
	e.rest()
}

// stop converts the stop: a line, or ^C for a signal.
func (p *pterodactyl) stop(g *group, stop string) {
	signals := map[string]string{"^C": "INT", "^c": "INT", "^\\": "QUIT", "^^C": "KILL"}
	if signal, ok := signals[stop]; ok || stop == "" {
		g.set("stopCommand", "")
		g.set("stopSignal", cmp.Or(signal, "TERM"))
		return
	}
	g.set("stopCommand", stop)
}

// decoded returns a value that exports write as JSON in a text.
func decoded(value any) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	out, err := source.DecodeJSON("", []byte(text))
	if err != nil {
		return nil
	}
	return out
}

// ready converts the text that the server prints when it is ready.
func (p *pterodactyl) ready(s *server, config *object) {
	in, _ := decoded(config.value("startup")).(map[string]any)
	startup := p.object(s.egg.name, in)
	startup.path = "config.startup."
	s.egg.parts = append(s.egg.parts, startup)
	var texts []string
	if line, ok := in["done"].(string); ok {
		startup.skip("done")
		texts = append(texts, line)
	} else {
		texts = startup.texts("done")
	}
	startup.note("userInteraction", "It was left out.")
	var patterns []string
	for _, text := range texts {
		if expression, ok := strings.CutPrefix(text, "regex:"); ok {
			if _, err := regexp.Compile(expression); err != nil {
				p.note(s.egg.name, "config.startup.done", text, "The expression is not valid in Orrery: %v.", err)
				continue
			}
			patterns = append(patterns, expression)
		} else if text != "" {
			patterns = append(patterns, regexp.QuoteMeta(text))
		}
	}
	if len(patterns) > 0 {
		s.group.set("readiness", map[string]any{"type": "log", "pattern": strings.Join(patterns, "|")})
	}
}

// patches converts the changes of configuration files.
func (p *pterodactyl) patches(s *server, config *object) {
	files, _ := decoded(config.value("files")).(map[string]any)
	patches, rules := map[string]any{}, []any{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		fields, _ := files[file].(map[string]any)
		in := p.object(s.egg.name, fields)
		in.path = "config.files." + file + "."
		s.egg.parts = append(s.egg.parts, in)
		parser, find := in.text("parser"), in.part("find")
		set := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(find.fields)) {
			value, ok := p.patchValue(s, find, key)
			switch {
			case !ok:
			case parser == "file":
				rules = append(rules, map[string]any{"file": file, "op": "REGEX", "path": "(?m)^" + regexp.QuoteMeta(key) + ".*$", "value": strings.NewReplacer(`\`, `\\`, "$", `\$`).Replace(value)})
			case parser == "properties" || (parser == "yaml" || parser == "json") && !strings.ContainsAny(key, `*"`):
				set[key] = value
			default:
				find.note(key, "Orrery changes properties, YAML, JSON and TOML files by paths without *. Use configRules with REGEX for %s.", file)
			}
		}
		if patches[file] = set; len(set) == 0 {
			delete(patches, file)
		}
	}
	if len(patches) > 0 {
		s.group.set("configPatches", patches)
	}
	if len(rules) > 0 {
		s.group.set("configRules", rules)
	}
}

// patchValue returns the value of a change, with Orrery's placeholders.
func (p *pterodactyl) patchValue(s *server, find *object, key string) (string, bool) {
	switch value := find.value(key).(type) {
	case string:
		if secret.Is(key, value) {
			p.note(s.egg.name, find.path+key, secret.Hidden, "It looks like a secret, so it was not copied. %s", secretHelp)
			return "", false
		}
		return p.replaced(s, value, find.path+key), true
	case json.Number, bool:
		return fmt.Sprint(value), true
	default:
		find.note(key, "Orrery does not replace by the old value. Use configRules with REGEX.")
		return "", false
	}
}
