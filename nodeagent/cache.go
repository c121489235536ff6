package nodeagent

import (
	"golang.org/x/sys/unix"
)

// The default size of the template cache is a tenth of the disk within these bounds.
const (
	leastCacheMiB = 1 << 10
	mostCacheMiB  = 64 << 10
)

// cacheLimit is the size of the cache below dir in bytes. mib 0 means the default.
func cacheLimit(mib int, dir string) int64 {
	if mib == 0 {
		mib = leastCacheMiB
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			tenth := st.Blocks * uint64(st.Bsize) >> 20 / 10
			mib = int(min(max(tenth, leastCacheMiB), mostCacheMiB))
		}
	}
	return int64(mib) << 20
}
