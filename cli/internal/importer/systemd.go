package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/cmdline"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
	"github.com/orreryhq/orrery/cli/internal/importer/unitfile"
	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// Systemd imports a service. The argument is the name of a unit or the path of a unit file. It reads
// the unit's text, from systemctl cat if there is a systemctl, so that every setting is seen.
func Systemd(unit string) (*Result, error) {
	name, file, err := unitfile.Read(unit)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, "@.service") {
		return nil, fmt.Errorf("unit %s is a template: name one of its instances, such as %s", unit, strings.Replace(unit, "@.", "@NAME.", 1))
	}
	r := newReport(nil)
	object := "unit " + name
	s := service{report: r, unit: name, object: r.section(file, object, "Service"), env: map[string]any{}}
	if len(file["Service"]["ExecStart"]) == 0 {
		return nil, fmt.Errorf("unit %s has no ExecStart in [Service], so there is no server to import", name)
	}
	s.group = r.group(object, strings.ReplaceAll(strings.TrimSuffix(name, ".service"), "@", "-"))
	if err := s.convert(); err != nil {
		return nil, err
	}
	for _, section := range slices.Sorted(maps.Keys(file)) {
		if section != "Service" {
			s.others(r.section(file, object, section), section)
		}
	}
	return r.finish()
}

type service struct {
	*report
	unit   string
	object *object
	group  *group
	env    map[string]any
}

// section returns a section as an object: a text, or a list of texts for a key with several values.
func (r *report) section(u unitfile.File, name, section string) *object {
	fields := map[string]any{}
	for key, values := range u[section] {
		if len(values) == 1 {
			fields[key] = values[0]
			continue
		}
		list := make([]any, len(values))
		for n, v := range values {
			list[n] = v
		}
		fields[key] = list
	}
	return r.object(name, fields)
}

// lines takes a key that may have several values.
func (o *object) lines(field string) []string {
	if o.value(field) == nil {
		return nil
	}
	if text, ok := o.fields[field].(string); ok {
		return []string{text}
	}
	return o.texts(field)
}

// last takes a key whose last value counts.
func (o *object) last(field string) string {
	if all := o.lines(field); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// specifiers returns a text with the specifiers of systemd replaced, and notes unknown ones.
func (s *service) specifiers(field, text string) string {
	out, unknown := unitfile.Specifiers(text, s.unit)
	if len(unknown) > 0 {
		s.note(s.object.name, field, text, "Replace the specifiers of systemd: %s.", strings.Join(unknown, " "))
	}
	return out
}

// convert converts the section Service.
func (s *service) convert() error {
	o, g := s.object, s.group
	starts := o.lines("ExecStart")
	if len(starts) > 1 {
		s.note(o.name, "ExecStart", len(starts), "Only the last command was imported.")
	}
	line := s.specifiers("ExecStart", strings.TrimLeft(starts[len(starts)-1], "@-:+!|"))
	words, runtime := cmdline.Unwrap(unitfile.Words(line))
	if runtime != "" {
		s.note(o.name, "ExecStart", strings.Join(words, " "), "The command is the one inside the session, and the runtime makes the session.")
		if len(words) == 1 { // a line for a shell
			words = unitfile.Words(words[0])
		}
	}
	if len(words) == 0 {
		return fmt.Errorf("unit %s: ExecStart has no command", s.unit)
	}
	dir := s.specifiers("WorkingDirectory", strings.TrimPrefix(o.last("WorkingDirectory"), "-"))
	if !filepath.IsAbs(dir) {
		s.note(o.name, "WorkingDirectory", dir, "The unit names no directory of its own, so its data is unknown. Put the server's files into a directory and place it as that of the instance.")
	}
	s.place(fromProcess{group: g, words: words, dir: dir}, cmdline.QuoteExpanding)
	if !filepath.IsAbs(dir) {
		s.result.Static = nil
	}
	s.environment()
	if len(s.env) > 0 {
		g.set("env", s.env)
	}
	if runtime != "" {
		g.set("runtime", runtime)
	}
	s.limits(strings.Join(words, " "))
	s.stop(dir)
	s.isolation()
	s.lifecycle()
	s.note(o.name, "unit", nil, "Stop and disable the unit (systemctl disable --now %s) before you move its directory.", s.unit)
	o.rest()
	return nil
}

// environment sets env from Environment and EnvironmentFile.
func (s *service) environment() {
	o := s.object
	for _, line := range o.lines("Environment") {
		for _, word := range unitfile.Words(s.specifiers("Environment", line)) {
			s.variable("Environment", word)
		}
	}
	for _, file := range o.lines("EnvironmentFile") {
		name, optional := strings.CutPrefix(file, "-")
		name = s.specifiers("EnvironmentFile", name)
		text, err := source.ReadFile(name)
		if err != nil {
			if !optional || !errors.Is(err, fs.ErrNotExist) {
				s.note(o.name, "EnvironmentFile", name, "It cannot be read (%v). Add its variables to env.", err)
			}
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
				s.variable("EnvironmentFile", strings.Join(unitfile.Words(line), " "))
			}
		}
	}
	for _, field := range []string{"PassEnvironment", "UnsetEnvironment"} {
		o.note(field, "Servers get only the variables in env, and a few usual ones such as PATH.")
	}
	for _, field := range []string{"LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted"} {
		if o.has(field) {
			s.note(o.name, field, secret.Hidden, "It was not copied. %s", secretHelp)
			o.skip(field)
		}
	}
}

// variable adds a variable NAME=value, unless it is secret or refused.
func (s *service) variable(field, assignment string) {
	name, value, ok := strings.Cut(assignment, "=")
	in := s.report.object(s.object.name, map[string]any{"env": map[string]any{name: value}})
	in.path = field + "."
	if !ok {
		s.note(s.object.name, field, secret.Hide(assignment), "It is not NAME=value, so it was left out.")
		return
	}
	maps.Copy(s.env, in.env("env"))
}

// limits sets memory, CPU and the other limits.
func (s *service) limits(command string) {
	o, g := s.object, s.group
	field := "MemoryMax"
	if !o.has(field) {
		field = "MemoryLimit" // of older versions
	}
	if limit := o.last(field); limit != "" && limit != "infinity" {
		if n, ok := unitfile.MiB(limit); ok {
			g.set("memoryMb", n)
		} else {
			s.note(o.name, field, limit, "It is no size. Set memoryMb.")
		}
	}
	if g.fields["memoryMb"] == nil {
		s.memory(g, command, 0)
	}
	if quota := o.last("CPUQuota"); quota != "" {
		var percent int
		if _, err := fmt.Sscanf(quota, "%d%%", &percent); err == nil && percent > 0 {
			g.set("cpuLimit", percent)
		} else {
			s.note(o.name, "CPUQuota", quota, "It is no percentage. Set cpuLimit.")
		}
	}
	limits := map[string]any{}
	for _, pair := range [][2]string{{"TasksMax", "processes"}, {"IOWeight", "ioWeight"}} {
		field, name := pair[0], pair[1]
		text := o.last(field)
		var n int
		if _, err := fmt.Sscanf(text+" .", "%d .", &n); err == nil && n > 0 {
			limits[name] = n
		} else if text != "" && text != "infinity" {
			s.note(o.name, field, text, "It is no number. Set limits.%s.", name)
		}
	}
	if len(limits) > 0 {
		g.set("limits", limits)
	}
	for _, field := range []string{"CPUWeight", "CPUShares"} {
		o.note(field, "Set cpu: it is a reservation and the weight among instances.")
	}
	for _, field := range []string{"MemoryHigh", "MemorySwapMax", "MemoryMin", "MemoryLow"} {
		o.note(field, "Orrery has one limit of memory, memoryMb.")
	}
	for _, field := range []string{"LimitNOFILE", "LimitNPROC", "LimitCORE", "LimitMEMLOCK"} {
		o.note(field, "Servers have the limits of the agent. Set it in the agent's unit, or with ulimit in command.")
	}
	for _, field := range []string{"Nice", "IOSchedulingClass", "OOMScoreAdjust", "CPUAffinity"} {
		o.note(field, "Orrery shares the machine by cpu and limits.ioWeight instead.")
	}
}

var typedLine = lazyregexp.New(`(?:stuff|send-keys(?:\s+-t\s+\S+)?|-l)\s+["']*([A-Za-z/][\w /-]*)`)

// stop converts how the server is stopped.
func (s *service) stop(dir string) {
	o, g := s.object, s.group
	signal := strings.TrimPrefix(cmp.Or(o.last("KillSignal"), "SIGTERM"), "SIG")
	if !slices.Contains([]string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"}, signal) {
		s.note(o.name, "KillSignal", signal, "Orrery sends TERM instead. It also knows INT, HUP, QUIT, USR1, USR2 and KILL.")
		signal = "TERM"
	}
	g.set("stopSignal", signal)
	stops := o.lines("ExecStop")
	match := typedLine().FindStringSubmatch(strings.Join(stops, "\n"))
	switch {
	case match != nil:
		g.set("stopCommand", strings.TrimSpace(match[1]))
		s.note(o.name, "ExecStop", strings.Join(stops, "; "), "The line that it types is stopCommand now. Check it.")
	case len(stops) > 0:
		s.note(o.name, "ExecStop", strings.Join(stops, "; "), "Orrery runs no program to stop a server. Set stopCommand to the line that its console takes.")
		s.stopLine(g, dir)
	default:
		g.set("stopCommand", "") // systemd sends the signal at once
	}
	for _, field := range []string{"TimeoutStopSec", "TimeoutSec"} {
		if text := o.last(field); text != "" {
			n, ok := unitfile.Seconds(text)
			if !ok {
				n = 24 * 3600
				s.note(o.name, field, text, "It is a day now, the longest time to wait.")
			}
			g.set("shutdownGraceSeconds", n)
			break
		}
	}
	o.same("KillMode", "control-group", "Orrery always ends every process of an instance.")
	o.same("SendSIGKILL", "yes", "Orrery kills what still runs after the signal.")
}

// isolation converts the user and what the service may do.
func (s *service) isolation() {
	o, confine := s.object, map[string]any{}
	if user := o.last("User"); user != "" && user != "root" {
		confine["user"] = s.specifiers("User", user)
		s.note(o.name, "User", user, "confine.user needs an agent that runs as root. Otherwise remove it, and give the files to the agent's user.")
	}
	on := []string{"yes", "true", "1", "on"}
	if slices.Contains(on, strings.ToLower(o.last("NoNewPrivileges"))) {
		confine["noNewPrivileges"] = true
	}
	if slices.Contains(on, strings.ToLower(o.last("PrivateTmp"))) {
		confine["privateTmp"] = true
	}
	if len(confine) > 0 {
		s.group.set("confine", confine)
	}
	o.note("Group", "The server runs with the groups of confine.user.")
	for _, field := range slices.Sorted(maps.Keys(o.fields)) {
		if strings.HasPrefix(field, "Protect") || strings.HasPrefix(field, "Restrict") || strings.HasPrefix(field, "Private") || strings.HasSuffix(field, "Paths") ||
			strings.HasPrefix(field, "Capability") || strings.HasPrefix(field, "SystemCall") || strings.HasPrefix(field, "Ambient") {
			if !o.taken[field] {
				o.note(field, "Orrery confines servers by user, noNewPrivileges and privateTmp, or in containers (docs/run-in-containers.md).")
			}
		}
	}
}

// lifecycle converts restarts, and notes what the unit runs besides the server.
func (s *service) lifecycle() {
	o, g := s.object, s.group
	switch restart := o.last("Restart"); restart {
	case "always", "on-failure", "on-abnormal", "on-abort", "on-watchdog": // what Orrery does by default
	case "", "no", "on-success":
		g.set("onCrash", "stop")
	default:
		s.note(o.name, "Restart", restart, "It is unknown, so Orrery restarts a server that crashes.")
	}
	o.note("RestartSec", "Orrery waits longer after each crash (docs/handle-crashes.md).")
	if kind := o.last("Type"); kind == "forking" || kind == "oneshot" {
		s.note(o.name, "Type", kind, "A command must stay in the foreground in Orrery. Correct it if it ends at once.")
	} else if kind == "notify" {
		s.note(o.name, "Type", kind, "Orrery does not read notifications. Set a readiness check (docs/check-health-and-players.md).")
	}
	o.skip("StandardOutput", "StandardError", "SyslogIdentifier") // the console is always kept
	o.same("RemainAfterExit", "no", "An instance whose command has ended has ended.")
	o.note("PIDFile", "Orrery knows the processes of an instance.")
	if text := o.last("TimeoutStartSec"); text != "" {
		if n, ok := unitfile.Seconds(text); ok {
			g.set("startupTimeoutSeconds", n)
		} else {
			g.set("startupTimeoutSeconds", 0)
		}
	}
	for _, field := range []string{"ExecStartPre", "ExecStartPost", "ExecCondition", "ExecStopPost", "ExecReload"} {
		o.note(field, "Orrery runs only the command. Put it into a script that the command runs, if the server needs it.")
	}
	for _, field := range []string{"StandardInput", "Sockets"} {
		o.note(field, "The console of an instance replaces it (docs/use-the-console.md).")
	}
}

// others notes the settings of the other sections.
func (s *service) others(o *object, name string) {
	o.path = name + "."
	o.skip("Description", "Documentation", "WantedBy")
	for _, field := range []string{"After", "Wants", "Requires", "Before", "BindsTo"} {
		o.note(field, "Groups wait for other groups with dependsOn. Orrery itself starts after the network.")
	}
	for _, field := range []string{"StartLimitIntervalSec", "StartLimitBurst"} {
		o.note(field, "Orrery pauses a group after three crashes in five minutes (docs/handle-crashes.md).")
	}
	o.rest()
}
