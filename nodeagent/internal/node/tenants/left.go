package tenants

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// shared are the directories of the host that all users may write to.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

// Left returns the ids of a range that own a static directory in the agent's data directory, another
// one there, or a file in a shared directory of the host.
func (s Span) Left(dataDir string) map[int]bool {
	ids := map[int]bool{}
	for _, pattern := range []string{"running/*", "static/*/*"} {
		paths, _ := filepath.Glob(filepath.Join(dataDir, pattern)) // fails only for a bad pattern
		for _, path := range paths {
			if uid := s.ownerOf(os.Lstat(path)); uid != 0 {
				ids[uid] = true
			}
		}
	}
	for _, dir := range shared {
		entries, _ := os.ReadDir(dir) // what cannot be read has no files of instances
		for _, e := range entries {
			if uid := s.ownerOf(e.Info()); uid != 0 {
				ids[uid] = true
			}
		}
	}
	return ids
}

// Running returns the ids that own the directories of instances that are not static, by instance. The
// group counts: read-only files belong to root.
func (s Span) Running(dataDir string) map[string]int {
	ids := map[string]int{}
	entries, _ := os.ReadDir(filepath.Join(dataDir, "running"))
	for _, e := range entries {
		if uid := s.ownerOf(e.Info()); uid != 0 {
			ids[e.Name()] = uid
		}
	}
	return ids
}

// ownerOf returns the id of a file's group, or else its user, if it is in the range, or 0.
func (s Span) ownerOf(info fs.FileInfo, err error) int {
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
	case s.Holds(int(st.Gid)):
		return int(st.Gid)
	case s.Holds(int(st.Uid)):
		return int(st.Uid)
	}
	return 0
}
