package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// contentMiB is the size of the template that is published and changed. Ten nodes fetch
	// a template of half that size.
	contentMiB = 2048
	// contentSamples is the number of measured publishes, each with new content and
	// compared with a copy.
	contentSamples = 3
	// uploadShare is the part of contentMiB that is uploaded: 480 MiB of 2 GiB, the limit
	// for an archive. uploadEntries is its number of files.
	uploadShare   = 15.0 / 64
	uploadEntries = 4
	// publishBar is the permitted memory growth of templatesvc in MiB.
	publishBar = 64
)

// oneFarNode is a site whose node has its own network, where received bytes can be counted.
// In tenNodes, the nodes share the machine's network.
var (
	oneFarNode = site.Options{Schedulers: 1, Enforcers: 1, Nodes: 1, Namespaces: true}
	tenNodes   = site.Options{Schedulers: 1, Enforcers: 1, Nodes: 10}
)

// measureContent measures operations on large templates: a publish, an upload, a small
// change, and many nodes that fetch at once. The content is incompressible and on a disk.
func measureContent(ctx context.Context, b *bench) error {
	if err := errors.Join(b.hasRoom(uint64(b.contentMiB)<<20*18), b.onDisk()); err != nil {
		return err
	}
	for _, part := range []func(context.Context, *bench) error{measurePublish, measureTenNodes} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// onDisk fails if the directory is in memory, where the results would not apply to disks.
func (b *bench) onDisk() error {
	var st unix.Statfs_t
	if err := unix.Statfs(b.dir, &st); err != nil {
		return err
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory: set TMPDIR to a directory on a disk", b.dir)
	}
	return nil
}

// measurePublish publishes a template with one file, alternating with a hashed copy. It
// then measures a change of it and the fetch by a node.
func measurePublish(ctx context.Context, b *bench) error {
	r, err := b.startSite(ctx, oneFarNode)
	if err != nil {
		return err
	}
	defer r.close()
	service, err := watchMemory(r.Process("templatesvc-1").PID())
	if err != nil {
		return err
	}
	var published, copied []time.Duration
	for n := range contentSamples {
		world := filepath.Join(r.dir, "world")
		if err := writeWorld(world, 1, int64(b.contentMiB)<<20, uint64(n)); err != nil {
			return err
		}
		took, err := copyHashed(filepath.Join(world, worldFile(0)), filepath.Join(r.dir, "copied"))
		if err != nil {
			return err
		}
		copied = append(copied, took)
		if took, err = r.publish(ctx, world, worldName(n)); err != nil {
			return err
		}
		if n > 0 { // its files take up space and are no longer needed
			if err := os.RemoveAll(r.place(worldName(n - 1))); err != nil {
				return err
			}
		}
		published = append(published, took)
	}
	grown, err := service.grown()
	if err != nil {
		return err
	}
	b.report("template_publish_mib", grown, "MiB", publishBar)
	speed := func(took []time.Duration) float64 { return float64(b.contentMiB) / (quantile(took, 0.5) / 1000) }
	b.report("template_publish_mib_per_s", speed(published), "MiB/s", speed(copied))
	if err := r.measureUpload(ctx, b, service); err != nil {
		return err
	}
	return r.measureDelta(ctx, b)
}

func worldFile(n int) string { return fmt.Sprintf("r.%d.mca", n) }

// writeWorld creates a directory of files with the given total size.
func writeWorld(dir string, files int, bytes int64, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source := noise(seed)
	for n := range files {
		f, err := os.Create(filepath.Join(dir, worldFile(n)))
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, source, bytes/int64(files))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// noise returns endless incompressible content.
func noise(seed uint64) io.Reader { return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}) }

// copyHashed measures the minimum work of a publish: reading, hashing and writing to disk.
// It first flushes the pending writes of others.
func copyHashed(from, to string) (time.Duration, error) {
	defer os.Remove(to)
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	syscall.Sync()
	began := time.Now()
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	_, err = io.CopyBuffer(io.MultiWriter(out, sha256.New()), struct{ io.Reader }{in}, make([]byte, 1<<20))
	err = errors.Join(err, unix.Syncfs(int(out.Fd())), out.Close())
	return time.Since(began), err
}

// place returns the path of a template of this family; worldName is the name of the n-th
// world.
func (r *running) place(name string) string { return filepath.Join(r.TemplateDir(), "bench", name) }

func worldName(n int) string { return fmt.Sprint("world-", n) }

// publish moves a directory to the templates and measures the time until it is the head.
func (r *running) publish(ctx context.Context, dir, name string) (time.Duration, error) {
	if err := os.MkdirAll(filepath.Dir(r.place(name)), 0o755); err != nil {
		return 0, err
	}
	syscall.Sync()
	began := time.Now()
	if err := os.Rename(dir, r.place(name)); err != nil {
		return 0, err
	}
	_, err := r.until(ctx, "the publish", func(s *view.Snapshot) bool { return head(s, name).Digest != "" })
	return time.Since(began), err
}

// head returns the head of a template of this family; zero when it has none.
func head(s *view.Snapshot, name string) content.TemplateHead {
	if h, ok := s.TemplateHeads.Get("bench/" + name); ok {
		return *h
	}
	return content.TemplateHead{}
}

// measureUpload uploads a zip and reports the memory growth of gateway and templatesvc.
func (r *running) measureUpload(ctx context.Context, b *bench, service *growth) error {
	gateway, err := watchMemory(r.Process("apigateway-1").PID())
	if err != nil {
		return err
	}
	if err := service.again(); err != nil {
		return err
	}
	archive := filepath.Join(r.dir, "world.zip")
	if err := writeZip(archive, int64(float64(b.contentMiB)*uploadShare)<<20); err != nil {
		return err
	}
	if err := r.upload(ctx, archive); err != nil {
		return err
	}
	for _, of := range []struct {
		id     string
		growth *growth
	}{{"template_upload_mib", service}, {"template_upload_gateway_mib", gateway}} {
		grown, err := of.growth.grown()
		if err != nil {
			return err
		}
		b.report(of.id, grown, "MiB", publishBar)
	}
	return nil
}

// writeZip creates an archive of uncompressed entries with the given total size.
func writeZip(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, source := zip.NewWriter(f), noise(1<<8)
	for n := range uploadEntries {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: worldFile(n), Method: zip.Store})
		if err == nil {
			_, err = io.CopyN(entry, source, bytes/uploadEntries)
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Close(), f.Close())
}

// upload creates a template from an archive through the gateway.
func (r *running) upload(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Gateways()[0]+"/api/templates/bench/uploaded/import", f)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return wire.DecodeError(resp)
	}
	return nil
}

// median returns the median of figures.
func median(figures []float64) float64 { return slices.Sorted(slices.Values(figures))[len(figures)/2] }
