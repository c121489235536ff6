package nodeagent

import (
	"golang.org/x/sys/unix"
)

// The cache of template content takes a tenth of its disk unless told otherwise, but no
// less than this and no more.
const (
	leastCacheMiB = 1 << 10
	mostCacheMiB  = 64 << 10
)

// cacheLimit is how many bytes the cache below dir may hold: mib, or for 0 what suits the disk.
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
