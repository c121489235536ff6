package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/local"
)

// findStandalone returns the standalone whose data directory is dir, or in one of the usual places. One that
// does not run has no process ID. It is nil if there is none.
func findStandalone(dir string) (*local.Ready, error) {
	if found, err := local.FindReady(dir); err == nil && found != nil {
		if !alive(found.PID) {
			found.PID = 0
		}
		return found, nil
	}
	for _, d := range local.Dirs(dir) {
		if info, err := os.Stat(filepath.Join(d, "etcd")); err == nil && info.IsDir() {
			return &local.Ready{Data: d}, nil
		}
	}
	if dir != "" {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s is not the data directory of a standalone", dir), "orrery up starts one")
	}
	return nil, nil
}

// alive reports whether a process runs. Without /proc it is not known, and taken to run.
func alive(pid int) bool {
	if _, err := os.Stat("/proc/self"); err != nil {
		return true
	}
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}

// kernelLimits are the settings of Linux that an agent needs.
var kernelLimits = []struct {
	name  string
	least int64
	why   string
}{
	{"fs.inotify.max_user_watches", 65_536, "each console and watched directory of templates needs some"},
	{"fs.inotify.max_user_instances", 128, "each program that watches files needs one"},
}

func checkInotify(context.Context, *subject) (found findings) {
	for _, l := range kernelLimits {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(l.name, ".", "/"))
		content, err := os.ReadFile(path)
		if err != nil {
			found.add(skip, "", "this system does not show %s", l.name)
			continue
		}
		value, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		switch {
		case err != nil:
			found.add(skip, "", "%s is %q", l.name, content)
		case value < l.least:
			fix := fmt.Sprintf("echo %s=%d | sudo tee -a /etc/sysctl.d/60-orrery.conf && sudo sysctl --system", l.name, l.least)
			found.add(warn, fix, "%s is %d: %s", l.name, value, l.why)
		default:
			found.add(ok, "", "%s is %d", l.name, value)
		}
	}
	return found
}

// openFilesWarn is how many files a standalone should be able to open.
const openFilesWarn = 16_384

func checkOpenFiles(_ context.Context, s *subject) (found findings) {
	if s.local.PID == 0 {
		found.add(skip, "", "the standalone in %s does not run", s.local.Data)
		return found
	}
	limit, err := openFiles(s.local.PID)
	switch {
	case err != nil:
		found.add(skip, "", "this system does not show how many files the standalone may open: %v", err)
	case limit < openFilesWarn:
		found.add(warn, "start it after ulimit -n 1048576, or with LimitNOFILE=1048576 in its systemd unit", "the standalone (pid %d) may open only %d files", s.local.PID, limit)
	default:
		found.add(ok, "", "the standalone (pid %d) may open %d files", s.local.PID, limit)
	}
	return found
}

// openFiles returns how many files a process may open.
func openFiles(pid int) (int64, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "limits"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if rest, is := strings.CutPrefix(line, "Max open files"); is {
			fields := strings.Fields(rest)
			if len(fields) > 0 {
				return strconv.ParseInt(fields[0], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no line for open files in the limits of process %d", pid)
}

func checkDisk(_ context.Context, s *subject) (found findings) {
	free, total, err := diskSpace(s.local.Data)
	if err != nil {
		found.add(skip, "", "the free space of %s is not known: %v", s.local.Data, err)
		return found
	}
	judgeDisk(&found, "the disk of "+s.local.Data, free, total)
	return found
}

// defaultListen is where a standalone listens.
const defaultListen = "127.0.0.1:8080"

// checkPort checks whether the port of a standalone that does not run is free.
func checkPort(ctx context.Context, s *subject) (found findings) {
	if s.local.PID != 0 {
		found.add(ok, "", "the standalone (pid %d) listens at %s", s.local.PID, s.local.API)
		return found
	}
	address := defaultListen
	if u, err := url.Parse(s.local.API); err == nil && u.Host != "" {
		address = u.Host
	}
	_, port, _ := net.SplitHostPort(address)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		found.add(fail, "see which program has it: ss -ltnp 'sport = :"+port+"'", "the standalone in %s does not run, and cannot listen at %s: %v", s.local.Data, address, err)
		return found
	}
	_ = listener.Close() // it was only a test
	found.add(warn, "orrery up", "the standalone in %s does not run; %s is free", s.local.Data, address)
	return found
}
