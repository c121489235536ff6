package importer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/cmdline"
	"github.com/orreryhq/orrery/cli/internal/importer/process"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
)

// relative returns a word of a command line with the path of a directory left out, since the
// directory is moved.
func relative(word, dir string) string {
	if !filepath.IsAbs(dir) || dir == "/" {
		return word
	}
	if rest, ok := strings.CutPrefix(word, strings.TrimSuffix(dir, "/")+"/"); ok && rest != "" {
		return "./" + rest
	}
	return word
}

// readServerFile reads a small file of a server's directory. It returns nil if the file is missing.
func readServerFile(dir, name string) []byte {
	if !filepath.IsAbs(dir) {
		return nil // unknown
	}
	f, err := source.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := f.Read(name)
	if err != nil {
		return nil
	}
	return text
}

// fromProcess describes a server that was started by hand or by systemd.
type fromProcess struct {
	group *group
	words []string
	// dir is the directory that it runs in.
	dir string
	// ports are those it listens on, if they are known.
	ports process.Ports
}

// place sets what both ways have in common: command, port, data and the files that need the port.
func (r *report) place(p fromProcess, each func(string) string) {
	g := p.group
	words := slices.Clone(p.words)
	moved := false
	for n, word := range words {
		words[n] = relative(word, p.dir)
		moved = moved || words[n] != word
	}
	if moved {
		r.note(g.object, "command", nil, "Paths below %s are relative now, because the directory is moved.", p.dir)
	}
	port, words := cmdline.FindPort(words)
	settings := readServerFile(p.dir, "server.properties")
	if configured := cmdline.ServerPort(settings); configured > 0 && port == 0 {
		port = configured
		g.patchPort()
	}
	if port == 0 && len(p.ports.TCP) > 0 {
		port = p.ports.TCP[0]
	}
	if port == 0 && len(p.ports.UDP) > 0 {
		port = p.ports.UDP[0]
	}
	r.mainPort(g, port, p.ports)
	g.set("command", r.words(g.object, "command", words, each))
	if keys := secret.In(settings); len(keys) > 0 {
		r.note(g.object, "server.properties", nil, "The file has secrets (%s). They stay in the directory and were not copied.", strings.Join(keys, ", "))
	}
	g.set("minInstances", 1)
	g.set("maxInstances", 1)
	g.set("scalingMode", "STATIC")
	g.set("autoLayers", false)
	g.set("fileModifications", []string{})
	g.set("static", true)
	r.result.Static = append(r.result.Static, StaticData{Group: g.name, Instance: g.name + "-1", Dir: p.dir})
}

// mainPort sets the main port and the other ones that the server listens on.
func (r *report) mainPort(g *group, port int, all process.Ports) {
	if port == 0 {
		r.note(g.object, "port", nil, "No port was found, so the group has the default range. Set portRangeStart and portRangeEnd, and write %%PORT%% into the command or the configuration.")
		return
	}
	g.onPort(port)
	var others []any
	add := func(protocol string, numbers []int) {
		for _, n := range numbers {
			if n != port && !(protocol == "udp" && slices.Contains(all.TCP, n)) {
				others = append(others, map[string]any{"name": fmt.Sprintf("%s-%d", protocol, n), "protocol": protocol, "port": n})
			}
		}
	}
	add("tcp", all.TCP)
	add("udp", all.UDP)
	if len(others) > 0 {
		g.set("additionalPorts", others)
		r.note(g.object, "ports", nil, "The server listens on more ports than %d. They are fixed additional ports now; remove those that players do not need.", port)
	}
}

// memory sets the memory from -Xmx of a command line, else from what the process used.
func (r *report) memory(g *group, line string, peakMiB int) {
	if xmx := cmdline.Heap(line); xmx > 0 {
		g.set("memoryMb", cmdline.WithOverhead(xmx))
		return
	}
	if peakMiB > 0 {
		g.set("memoryMb", max(64, peakMiB*5/4))
		r.note(g.object, "memory", peakMiB, "The command has no -Xmx. memoryMb is a quarter more than the most MiB that the process has used. It is a limit: raise it if the server needs more.")
		return
	}
	g.set("memoryMb", 0)
	r.note(g.object, "memory", nil, "Neither -Xmx nor a limit was found, so the group has no limit. Set memoryMb.")
}

// stopLine sets the line that stops a server of a known kind.
func (r *report) stopLine(g *group, dir string) {
	switch {
	case readServerFile(dir, "server.properties") != nil:
		g.set("stopCommand", "stop")
	case readServerFile(dir, "velocity.toml") != nil:
		g.set("stopCommand", "end")
	default:
		g.set("stopCommand", "")
		r.note(g.object, "stopCommand", nil, "The line that stops the server is unknown, so it gets the signal TERM. Set stopCommand if it has one.")
	}
}

// onPort gives a group one fixed port.
func (g *group) onPort(port int) {
	g.set("portRangeStart", port)
	g.set("portRangeEnd", port)
}

// patchPort writes the port into server.properties at each start.
func (g *group) patchPort() {
	g.set("configPatches", map[string]any{"server.properties": map[string]any{"server-port": "%PORT%"}})
}
