package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// server is a console that records what is typed.
type server struct {
	mu      sync.Mutex
	running bool
	lines   []string
	// refuses is a line that fails once.
	refuses string
	// prints is what it prints after each line.
	prints string
	output strings.Builder
}

func (s *server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *server) WriteLine(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return errs.New(errs.Conflict, "no server runs")
	}
	if line == s.refuses {
		s.refuses = ""
		return errs.New(errs.Conflict, "its input is full")
	}
	s.lines = append(s.lines, line)
	s.output.WriteString(s.prints)
	return nil
}

func (s *server) Mark() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.output.Len()), nil
}

func (s *server) Await(ctx context.Context, offset int64, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case text == "endless":
		<-ctx.Done()
		return ctx.Err()
	case strings.Contains(s.output.String()[offset:], text):
		return nil
	}
	return context.DeadlineExceeded
}

// site is a keeper with one static directory.
type site struct {
	*Keeper
	t     *testing.T
	data  string
	dir   string
	place Place
	on    *server
	end   context.CancelFunc
	ended chan struct{}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, data: t.TempDir(), on: &server{}}
	s.dir = filepath.Join(s.data, "static", "survival", "survival-1")
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s.place = Place{
		Instance: "aaaaaa", Generation: 3, Group: "survival", Name: "survival-1", Console: s.on, Allowed: func() error { return nil },
	}
	s.open()
	t.Cleanup(s.stop)
	return s
}

func (s *site) config() Config {
	builder := workspace.New(s.data, nil)
	return Config{
		Dir: filepath.Join(s.data, "backups"), DataDir: s.data, Workspace: builder, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Aside: func(dir string, _ fleet.GroupName, name string) error {
			return builder.SetAside(dir, filepath.Join(s.data, "moved", fmt.Sprint(time.Now().UnixNano(), "-", name)))
		},
		Find: func(fleet.InstanceID) (Place, error) { return s.place, nil },
	}
}

func (s *site) open() {
	s.t.Helper()
	s.Keeper = Open(s.config())
	ctx, cancel := context.WithCancel(context.Background())
	s.end, s.ended = cancel, make(chan struct{})
	go func() {
		defer close(s.ended)
		s.Run(ctx)
	}()
}

func (s *site) stop() {
	s.end()
	<-s.ended
}

func (s *site) write(files map[string]string) {
	s.t.Helper()
	for name, text := range files {
		path := filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o640)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// await waits for the end of a backup or a restore.
func (s *site) await(b client.Backup, err error) client.Backup {
	s.t.Helper()
	if err == nil {
		b, err = s.Get(s.t.Context(), s.place, b.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// backups lists the backups.
func (s *site) backups() []client.Backup {
	s.t.Helper()
	all, err := s.List(s.place)
	if err != nil {
		s.t.Fatal(err)
	}
	return all.Backups
}

func (s *site) create(n client.NewBackup) client.Backup {
	s.t.Helper()
	return s.await(s.Create(s.place, n))
}

// tree describes a directory: each path with its mode, time, content or target.
func (s *site) tree(dir string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			content, _ = os.Readlink(path)
		}
		name, _ := filepath.Rel(dir, path)
		at := info.ModTime().UnixNano()
		if info.Mode()&fs.ModeSymlink != 0 || name == "." || name == claim.FileName { // not kept, or new
			at = 0
		}
		st := info.Sys().(*syscall.Stat_t)
		out[name] = fmt.Sprint(info.Mode(), " ", st.Uid, ":", st.Gid, " ", at, " ", content)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is there", name)
		}
	}
}
