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

// By names the programs that hold the port, as far as the agent may see them, or says what
// else does. The first call looks through all processes.
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
	told := map[string]bool{}
	for _, s := range b.sockets {
		name, known := owners[s.inode]
		if !known {
			name = fmt.Sprintf("a program of the user with id %d", s.uid)
		}
		if s.peer {
			name += ", for a connection"
		}
		if !told[name] {
			told[name] = true
			names = append(names, name)
		}
	}
	const enough = 3
	if more := len(names) - enough; more > 0 {
		names = append(names[:enough], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, " and ")
}

// owners finds the processes that have sockets open, by inode. Of a socket that several
// processes have, it is the first of them. Processes of other users are not visible to an
// agent without privileges.
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

// inodes are those of the sockets among a process' files.
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

// program is a process' name and pid. A process may choose any bytes as its name.
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
