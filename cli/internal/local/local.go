// Package local finds, starts and stops a standalone on this machine.
package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
	"github.com/gofrs/flock"
	"github.com/orreryhq/orrery/cli/internal/exit"
)

const (
	// readyFile exists while a standalone is ready.
	readyFile = "ready.json"
	// lockFile is locked while a standalone runs, and has its process id.
	lockFile = "lock"
	// logFile has what a standalone printed that Start started.
	logFile = "standalone.log"
)

// Ready is how a standalone describes itself.
type Ready struct {
	API          string `json:"api"`
	User         string `json:"user"`
	PasswordFile string `json:"passwordFile"`
	PID          int    `json:"pid"`
	// Data is its data directory.
	Data string `json:"-"`
}

// ReadReady returns what the standalone with a data directory says; fs.ErrNotExist if none is ready.
func ReadReady(dir string) (*Ready, error) {
	content, err := os.ReadFile(filepath.Join(dir, readyFile))
	if err != nil {
		return nil, err
	}
	ready := &Ready{Data: dir}
	if err := json.Unmarshal(content, ready); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, readyFile), err)
	}
	return ready, nil
}

// DefaultData is the data directory of a standalone without flags, and ServiceData that of a service of the host.
const (
	DefaultData = "data"
	ServiceData = "/var/lib/orrery"
)

// Dirs returns where to look for the data of a standalone: in dir, or in the usual places if dir is empty.
func Dirs(dir string) []string {
	if dir != "" {
		return []string{dir}
	}
	return []string{DefaultData, ServiceData}
}

// FindReady returns the standalone whose data directory is dir, or in one of the usual places if dir is empty. The
// result is nil without one.
func FindReady(dir string) (*Ready, error) {
	for _, d := range Dirs(dir) {
		found, err := ReadReady(d)
		switch {
		case err == nil:
			return found, nil
		case dir != "" && errors.Is(err, fs.ErrNotExist):
			return nil, exit.With(exit.NotFound, fmt.Errorf("no standalone is ready with the data directory %s", d), "orrery up --data "+d+" starts one")
		case dir != "", !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return nil, err
		}
	}
	return nil, nil
}

// Find returns the path of the program standalone: beside self, otherwise in the directories of path.
func Find(self, path string) (string, error) {
	dirs := append([]string{filepath.Dir(self)}, filepath.SplitList(path)...)
	for _, dir := range dirs {
		for _, name := range []string{"standalone", "orrery-standalone"} {
			if program := filepath.Join(dir, name); dir != "" && executable(program) {
				return filepath.Abs(program)
			}
		}
	}
	err := fmt.Errorf("the program standalone is neither in %s nor in the directories of PATH", filepath.Dir(self))
	return "", exit.With(exit.NotFound, err, "in a clone of Orrery: make build, then bin/orrery up; otherwise put standalone of the release beside orrery")
}

func executable(program string) bool {
	info, err := os.Stat(program)
	return err == nil && info.Mode().IsRegular() && (info.Mode()&0o111 != 0 || runtime.GOOS == "windows")
}

// Command returns the arguments of a standalone with a data directory. flags are those of the user.
func Command(dir string, demo bool, flags []string) ([]string, error) {
	for _, flag := range flags {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if strings.HasPrefix(flag, "-") && slices.Contains([]string{"data", "demo"}, name) {
			return nil, exit.With(exit.Usage, fmt.Errorf("%s is not for the flags behind --", flag), "pass --"+name+" before --")
		}
	}
	args := []string{"-data", dir}
	if demo {
		args = append(args, "-demo")
	}
	return append(args, flags...), nil
}

// Running returns the process id of the standalone that has a data directory; 0 if none has.
func Running(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	free, err := lock.TryLock()
	if err != nil {
		return 0, fmt.Errorf("cannot see whether a standalone runs with the data directory %s: %w", dir, err)
	}
	if free {
		return 0, lock.Unlock()
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0, exit.With(exit.Conflict, fmt.Errorf("a process uses the data directory %s, but its id is not in %s", dir, filepath.Join(dir, lockFile)), "try again in a moment; otherwise: fuser "+filepath.Join(dir, lockFile))
	}
	return pid, nil
}

// Start starts a program in the background, and returns when it is ready. Its output is appended to a log in
// dir, which must exist. If ctx ends first the program continues.
func Start(ctx context.Context, program string, args []string, dir string) (*Ready, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", dir, err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", dir, err)
	}
	log, err := os.OpenFile(Log(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	before, err := log.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-ctx.Done():
			return nil, exit.Hint(ctx.Err(), fmt.Sprintf("it is still starting, as process %d; orrery down stops it; its log is %s", cmd.Process.Pid, Log(dir)))
		case err := <-ended:
			return nil, exit.Hint(fmt.Errorf("%s ended before it was ready: %v%s", program, err, lastLines(Log(dir), before)), "its log is "+Log(dir))
		case <-watcher.Events:
			if ready, err := ReadReady(dir); err == nil && ready.PID == cmd.Process.Pid {
				return ready, nil
			}
		case err := <-watcher.Errors:
			return nil, fmt.Errorf("cannot watch %s: %w", dir, err)
		}
	}
}

// Log returns the path of the log of Start.
func Log(dir string) string { return filepath.Join(dir, logFile) }

// shownLines is how many lines of a log an error has.
const shownLines = 5

// lastLines returns the end of a log from an offset on, each line behind a line break.
func lastLines(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(from, 0); err != nil {
		return ""
	}
	var lines []string
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		lines = append(lines, "\n  "+scanner.Text())
		lines = lines[max(0, len(lines)-shownLines):]
	}
	return strings.Join(lines, "")
}

// Stop asks a standalone to end and returns when it has. If ctx ends first the standalone continues to end.
func Stop(ctx context.Context, dir string, pid int) error {
	process, err := os.FindProcess(pid)
	if err == nil {
		err = terminate(process)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot stop process %d: %w", pid, err)
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	free := make(chan error, 1)
	go func() { free <- lock.Lock() }() // it has no deadline; it ends with this program
	select {
	case err := <-free:
		return errors.Join(err, lock.Unlock())
	case <-ctx.Done():
		return exit.Hint(ctx.Err(), fmt.Sprintf("process %d got the signal and is still stopping", pid))
	}
}
