package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// templateFiles and templateBytes are the typical size of a template of a whole server.
	templateFiles = 2000
	templateBytes = 200 << 20
	templateDirs  = 40
	// templateSamples is the number of measured starts, each beside a copy.
	templateSamples = 9
	// templateRoom is the required disk space: for source, service, cache, instance and the
	// comparison copy, and as much again as a reserve.
	templateRoom = 10 * templateBytes
)

// measureTemplate measures a start with cached content, from the request to the running
// process. It alternates with cp of the same files on the same disk. It measures both on
// the current file system and on one with shared blocks.
func measureTemplate(ctx context.Context, b *bench) (err error) {
	if b.sharesBlocks() {
		return b.measureStart(ctx, reflinked)
	}
	if err := b.measureStart(ctx, copied); err != nil {
		return err
	}
	there, release, err := b.reflinkDisk(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "template_reflink_ratio is left out:", err)
		return nil
	}
	defer func() { err = errors.Join(err, release()) }()
	return there.measureStart(ctx, reflinked)
}

// reference is what a start is compared with.
type reference struct {
	// ratio and start are the IDs of figures. cold is the ID for a cold start, if any.
	ratio, start, cold string
	how                []string // options of cp
}

var (
	copied = reference{
		ratio: "template_start_ratio", start: "template_start_ms", cold: "template_cold_start_s", how: []string{"-r"},
	}
	reflinked = reference{
		ratio: "template_reflink_ratio", start: "template_reflink_start_ms", how: []string{"-r", "--reflink=always"},
	}
)

func (b *bench) measureStart(ctx context.Context, beside reference) error {
	if err := b.hasRoom(templateRoom); err != nil {
		return err
	}
	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	source := filepath.Join(s.dir, "templates", "bench", "tree")
	if err := writeTree(source); err != nil {
		return err
	}
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	defer events.close()
	if err := s.declareTemplate(ctx); err != nil {
		return err
	}
	var starts, copies []time.Duration
	for n := range templateSamples + 1 { // the first one fetches and hashes
		copied, err := b.copyTree(ctx, source, beside.how)
		if err != nil {
			return err
		}
		started, err := s.startTemplate(ctx, events)
		if err != nil {
			return err
		}
		if n > 0 {
			starts, copies = append(starts, started), append(copies, copied)
		} else if beside.cold != "" {
			b.report(beside.cold, started.Seconds(), "s", -1)
		}
	}
	start, reference := quantile(starts, 0.5), quantile(copies, 0.5)
	b.report(beside.start, start, "ms", reference)
	b.report(beside.ratio, start/reference, "of cp", 1)
	return nil
}

// hasRoom fails if the disk has too little free space.
func (b *bench) hasRoom(bytes uint64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(b.dir, &st); err != nil {
		return err
	}
	if free := st.Bavail * uint64(st.Bsize); free < bytes {
		return fmt.Errorf("%s has %d MiB free, this needs %d: set TMPDIR to a larger disk", b.dir, free>>20, bytes>>20)
	}
	return nil
}

// writeTree writes incompressible files: many small ones and some large ones.
func writeTree(dir string) error {
	source := rand.NewChaCha8([32]byte{})
	sizes := rand.New(source)
	left := templateBytes
	for i := range templateFiles {
		size := sizes.IntN(2 * left / (templateFiles - i))
		if i == templateFiles-1 {
			size = left
		}
		left -= size
		path := filepath.Join(dir, fmt.Sprintf("%02d", i%templateDirs), fmt.Sprintf("%04d", i))
		content := make([]byte, size)
		_, _ = source.Read(content) // it never fails
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// declareTemplate creates the group, and retries until its template is published.
func (s *server) declareTemplate(ctx context.Context) error {
	spec := map[string]any{
		"name": "tree", "command": idler, "templates": []string{"bench/tree"}, "memoryMb": 16,
		"maxInstances": 0, "portRangeStart": 20000, "portRangeEnd": 29999,
	}
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if err = s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err == nil {
			return nil
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

// sharesBlocks reports whether the file system can clone a file without copying its
// content.
func (b *bench) sharesBlocks() bool {
	from, to := filepath.Join(b.dir, "shared-from"), filepath.Join(b.dir, "shared-to")
	defer os.Remove(from)
	defer os.Remove(to)
	return os.WriteFile(from, []byte("content"), 0o600) == nil && exec.Command("cp", "--reflink=always", from, to).Run() == nil
}

// copyTree measures cp. It first flushes the pending writes of others, as before a start,
// so that neither pays for the other.
func (b *bench) copyTree(ctx context.Context, source string, how []string) (time.Duration, error) {
	to := filepath.Join(b.dir, "copied")
	defer os.RemoveAll(to)
	syscall.Sync()
	began := time.Now()
	err := exec.CommandContext(ctx, "cp", append(how, source, to)...).Run()
	return time.Since(began), err
}

// startTemplate measures a start, then ends the instance and waits until its directory is
// gone.
func (s *server) startTemplate(ctx context.Context, events *eventStream) (time.Duration, error) {
	syscall.Sync()
	began := time.Now()
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups/tree/start", nil, nil); err != nil {
		return 0, err
	}
	online, err := events.await("tree", "RUNNING", "")
	if err != nil {
		return 0, err
	}
	took := online.at.Sub(began)
	if err := s.call(ctx, http.MethodPost, "/api/v1/services/"+online.UID+"/force-stop", nil, nil); err != nil {
		return 0, err
	}
	if _, err := events.await("tree", "STOPPED", online.UID); err != nil {
		return 0, err
	}
	return took, gone(ctx, filepath.Join(s.dir, "node", "running", online.UID))
}

// gone waits until a path no longer exists.
func gone(ctx context.Context, path string) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !pause.For(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s is still there", path)
}
