package workspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// topOfHierarchy is ext4's mark of a directory whose directories have nothing to do
// with each other (chattr +T).
const topOfHierarchy = 0x20000

// spread asks ext4 to lay what is made below a directory all over the disk, instead of
// beside each other. It does not take the place of a removed file for some minutes and
// looks past each of them whenever one is made: where directories come and go all day,
// making a file took fifty times as long. Other filesystems have no such trouble, and a
// refusal harms nothing.
func spread(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		return
	}
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&topOfHierarchy != 0 {
		return
	}
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topOfHierarchy))
}
