package console

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// page is the unit in which filesystems discard parts of a file, in bytes.
const page = 64 << 10

// slack is how far a log may exceed its limit before its head is discarded: a sixteenth, so
// that this happens rarely.
func slack(limit int64) int64 { return max(limit/16, page) }

// errNoHoles means that a filesystem cannot discard a part of a file.
var errNoHoles = errors.New("the filesystem cannot discard a part of a file")

// trim discards a log's head if the log stores more than limit bytes. The rest keeps its
// offsets. A limit of 0 keeps everything. errNoHoles if the filesystem does not support it.
func trim(path string, size, limit int64) error {
	if limit <= 0 || size <= limit+slack(limit) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "console.trim", err)
	}
	defer f.Close()
	head := file{f}.data(0)
	if size-head <= limit+slack(limit) {
		return nil
	}
	err = punch(f, (size-limit)/page*page)
	if err == nil {
		err = trimTimes(path, size-limit)
	}
	return err
}

// punch discards a file's first n bytes.
func punch(f *os.File, n int64) error {
	if n <= 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errNoHoles
	}
	return errs.WrapAs(errs.Unavailable, "console.punch", err)
}

// Bounded returns nil if the logs in a directory can be limited. Otherwise Unavailable, with
// what to do: its filesystem cannot discard a part of a file.
func Bounded(dir string) error {
	f, err := os.CreateTemp(dir, ".holes-")
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "console.Bounded", err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := f.Write(make([]byte, page)); err != nil {
		return errs.WrapAs(errs.Unavailable, "console.Bounded", err)
	}
	if err := punch(f, page); err != nil {
		return errs.New(errs.Unavailable, "limits.logMb is not enforced: %v; put the data directory on ext4, xfs, btrfs or tmpfs", err)
	}
	return nil
}
