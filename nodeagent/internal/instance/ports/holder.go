package ports

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// By names the programs that use the port, as far as they are visible to the agent. The first
// call searches all processes.
func (b *Busy) By() string {
	if b.by == "" {
		b.by = b.holders()
	}
	return b.by
}

func (b *Busy) holders() string {
	switch {
	case b.Leftover():
		return "connections of a program that has ended"
	case len(b.sockets) == 0:
		return "another program"
	}
	owners := owners(b.sockets)
	var names []string
	seen := map[string]bool{}
	for _, s := range b.sockets {
		name, known := owners[s.inode]
		if !known {
			name = fmt.Sprintf("a program of the user with id %d", s.uid)
		}
		if s.peer {
			name += ", for a connection"
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	const maxNames = 3
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, " and ")
}

// owners maps the inodes of sockets to processes. If several processes share a socket, it is
// the first. Processes of other users are not visible to an agent without privileges.
func owners(sockets []socket) map[uint32]string {
	wanted := map[uint32]bool{}
	for _, s := range sockets {
		wanted[s.inode] = true
	}
	found := map[uint32]string{}
	pids, _ := filepath.Glob("/proc/[0-9]*")
	slices.SortFunc(pids, byNumber)
	for _, dir := range pids {
		for _, inode := range inodes(filepath.Join(dir, "fd")) {
			if wanted[inode] {
				delete(wanted, inode)
				found[inode] = program(dir)
			}
		}
		if len(wanted) == 0 {
			break
		}
	}
	return found
}

// inodes are the inodes of the sockets that a process has open.
func inodes(dir string) (all []uint32) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		target, _ := os.Readlink(filepath.Join(dir, f.Name()))
		text, isSocket := strings.CutPrefix(target, "socket:[")
		if !isSocket {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
			all = append(all, uint32(inode))
		}
	}
	return all
}

// program is a process's name and PID. A process may choose any bytes as its name.
func program(dir string) string {
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(string(name), "?")))
	return fmt.Sprintf("%s (pid %s)", printable, filepath.Base(dir))
}

func byNumber(a, b string) int {
	x, _ := strconv.Atoi(filepath.Base(a))
	y, _ := strconv.Atoi(filepath.Base(b))
	return x - y
}
