// Package process finds servers among the processes of this machine, from Linux's /proc.
package process

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is a process of this machine.
type Process struct {
	PID, Parent int
	Args        []string
	// PeakMiB is the most memory that it used.
	PeakMiB int
}

// All returns all processes of this machine whose command line can be read, by the pid of
// their parent.
func All() (map[int][]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	out := map[int][]Process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := processOf(pid); ok {
			out[p.Parent] = append(out[p.Parent], p)
		}
	}
	return out, nil
}

// processOf reads a process. ok is false if it has ended or has no command line.
func processOf(pid int) (p Process, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(line) == 0 {
		return p, false
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return p, false
	}
	p = Process{PID: pid, Args: strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")}
	for text := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(text, ":")
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch key {
		case "PPid":
			p.Parent = n
		case "VmHWM":
			p.PeakMiB = n >> 10
		}
	}
	return p, true
}

// launchers are programs that only start others.
func launchers() []string {
	return []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "sudo", "su", "runuser", "env", "nice", "ionice", "timeout", "script", "login"}
}

// ServerBelow returns the server among the descendants of a process: the largest one that is not a
// program that only starts others. via are the command lines in between. ok is false if there is only
// a shell that waits for a user.
func ServerBelow(all map[int][]Process, pid int) (server Process, via [][]string, ok bool) {
	for range 100 { // more levels than a session has
		below := all[pid]
		if len(below) == 0 {
			return server, via, ok && !isPrompt(server)
		}
		next := slices.MaxFunc(below, func(a, b Process) int { return cmp.Compare(a.PeakMiB, b.PeakMiB) })
		if ok && !isLauncher(server) {
			return server, via, true
		}
		if ok {
			via = append(via, server.Args)
		}
		server, ok, pid = next, true, next.PID
	}
	return server, via, ok
}

func isLauncher(p Process) bool {
	return slices.Contains(launchers(), strings.TrimPrefix(filepath.Base(p.Args[0]), "-"))
}

// isPrompt reports whether a process is a shell that waits for a user.
func isPrompt(p Process) bool {
	return isLauncher(p) && !slices.ContainsFunc(p.Args[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
}

// Ports are the numbers that a process listens on, sorted.
type Ports struct{ TCP, UDP []int }

// Listening returns the ports of a process.
func Listening(pid int) (Ports, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return Ports{}, err
	}
	inodes := map[string]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, "fd", e.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var out Ports
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile(filepath.Join(dir, "net", table))
		if err != nil {
			continue // no IPv6
		}
		if strings.HasPrefix(table, "tcp") {
			out.TCP = append(out.TCP, portsOf(text, "0A", inodes)...)
		} else {
			out.UDP = append(out.UDP, portsOf(text, "07", inodes)...)
		}
	}
	// A program's own requests, such as those to a name server, use the ports from here on.
	const ephemeral = 32768
	out.UDP = slices.DeleteFunc(out.UDP, func(port int) bool { return port >= ephemeral })
	slices.Sort(out.TCP)
	slices.Sort(out.UDP)
	out.TCP, out.UDP = slices.Compact(out.TCP), slices.Compact(out.UDP)
	return out, nil
}

// portsOf returns the local ports in a table of sockets, of those in a state and with known inodes.
func portsOf(table []byte, state string, inodes map[string]bool) []int {
	var out []int
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < 10 || fields[3] != state || !inodes[fields[9]] {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(port, 16, 16); err == nil {
			out = append(out, int(n))
		}
	}
	return out
}
