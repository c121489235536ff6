package confine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// EnvironFd is the file descriptor of the command's environment in Main. It is higher than any
// descriptor that a shell or this program opens itself.
const EnvironFd = 20

// EnvironFile returns a memory file with an environment for Main. The caller closes it.
func EnvironFile(env []string) (*os.File, error) {
	fd, err := unix.MemfdCreate("orrery-environment", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "environment")
	if _, err := f.WriteString(strings.Join(env, "\x00")); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readEnviron reads the file of EnvironFile, and empties it because the wrapper keeps it open
// as long as the command runs.
func readEnviron() ([]string, error) {
	unix.CloseOnExec(EnvironFd)
	f := os.NewFile(EnvironFd, "environment")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxEnviron))
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, fmt.Errorf("the command's environment: %w", err)
	}
	var env []string
	for v := range bytes.SplitSeq(b, []byte{0}) {
		env = append(env, string(v))
	}
	return env, nil
}

// maxEnviron is more than the kernel accepts in an exec, in bytes.
const maxEnviron = 16 << 20
