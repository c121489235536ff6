package process

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// runFiles are the files of a run that its wrapper inherits. Close them.
type runFiles struct{ pid, noted, exit *os.File }

// openFiles opens the files that prepareRunDir has created.
func openFiles(s runtime.Spec) (f runFiles, err error) {
	for _, one := range []struct {
		file **os.File
		path string
		mode int
	}{
		{&f.pid, pidPath(s), os.O_WRONLY}, {&f.noted, notedPath(s), os.O_RDWR | unix.O_NONBLOCK}, {&f.exit, exitPath(s), os.O_WRONLY},
	} {
		if *one.file, err = os.OpenFile(one.path, one.mode, 0); err != nil {
			f.close()
			return runFiles{}, err
		}
	}
	return f, nil
}

func (f runFiles) close() {
	for _, file := range []*os.File{f.pid, f.noted, f.exit} {
		_ = file.Close() // a nil file is no problem
	}
}

// readNumber reads a number from a complete line that the wrapper has written.
func readNumber(path string) (int, error) {
	number, _, err := readLines(path)
	return number, err
}

// readLines reads a number and the line below it, which may be missing.
func readLines(path string) (number int, below string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, "", err
	}
	line, rest, ok := strings.Cut(string(b), "\n")
	if !ok {
		return 0, "", fmt.Errorf("%s: %w", path, io.ErrUnexpectedEOF)
	}
	below, _, _ = strings.Cut(rest, "\n")
	number, err = strconv.Atoi(line)
	return number, below, err
}
