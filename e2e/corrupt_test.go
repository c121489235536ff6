package e2e_test

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// blobsBelow returns the files of a content store with at least the given size.
func blobsBelow(t *testing.T, dir string, least int64) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || len(e.Name()) != 64 {
			return err
		}
		fi, err := e.Info()
		if err == nil && fi.Size() >= least {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("no content below %s: %v", dir, err)
	}
	return paths
}

// damage changes a byte in the middle of each file.
func damage(t *testing.T, paths []string) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedContentIsFoundHealedAndNeverStartedFrom(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	source := rand.NewChaCha8([32]byte{1}) // incompressible, so that it is stored unchanged
	content := map[string][]byte{"small.bin": make([]byte, 5000), "large.bin": make([]byte, 3<<20)}
	files := map[string]string{}
	for _, name := range []string{"small.bin", "large.bin"} {
		_, _ = source.Read(content[name]) // it never fails
		files[name] = string(content[name])
	}
	cluster.WriteTemplate(t, c, "keep/sound", files)
	await.That(t, "the template", func() string {
		r := admin.Do("GET", "/api/v1/templates/keep%2Fsound/files", nil)
		return await.Unless(strings.Contains(string(r.Body), "small.bin") && strings.Contains(string(r.Body), "large.bin"), "%s", r.Body)
	})
	createGroup(t, admin, map[string]any{
		"name": "sound", "command": "exec sleep 100000", "templates": []string{"keep/sound"}, "memoryMb": 8, "maxInstances": 0, "shutdownGraceSeconds": 0,
	})
	// start starts an instance and waits until it runs or has failed.
	start := func() (i cluster.Instance) {
		t.Helper()
		var made struct{ Instances []cluster.Instance }
		admin.Do("POST", "/api/v1/groups/sound/start", nil).OK(200, &made)
		if len(made.Instances) != 1 {
			t.Fatalf("started %+v", made)
		}
		await.That(t, "the start's end", func() string {
			i = admin.Instance(made.Instances[0].UID)
			return await.Unless(i.State == "RUNNING" || i.State == "CRASHED", "%+v", i)
		})
		return i
	}
	sound := func(i cluster.Instance) {
		t.Helper()
		if i.State != "RUNNING" {
			t.Fatalf("%+v", i)
		}
		for name, want := range content {
			if got := fileOf(t, i, name); !bytes.Equal(got, want) {
				t.Errorf("%s has another %s than was published", i.ID, name)
			}
		}
	}
	service := filepath.Join(c.DataDir(), "blobs")
	caches, err := filepath.Glob(filepath.Join(c.DataDir(), "node*", "blobs"))
	if err != nil || len(caches) != 1 {
		t.Fatal(caches, err)
	}
	sound(start())

	// The node fetches damaged content again.
	damage(t, blobsBelow(t, caches[0], 5000))
	sound(start())

	// templatesvc quarantines damaged content, and a start fails rather than use it.
	damaged := blobsBelow(t, service, 5000)
	damage(t, damaged)
	for _, path := range blobsBelow(t, caches[0], 5000) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	i := start()
	switch {
	case i.State == "RUNNING": // the directory was scanned meanwhile, which stored the quarantined content again
		sound(i)
	case i.Reason != "TemplateFetch":
		t.Errorf("the start without content: %+v", i)
	}
	if aside, err := os.ReadDir(filepath.Join(service, "corrupt")); err != nil || len(aside) == 0 {
		t.Errorf("nothing was put aside: %v", err)
	}
	// Publishing the template again restores the quarantined content. A start stops at the
	// first damaged file it finds, so this takes several starts.
	for range damaged {
		looks := 0
		await.That(t, "the content stored again", func() string {
			// Publish from time to time, with a pause for the scan. Content quarantined
			// after the last publication would wait a minute for the next scan.
			if looks%400 == 0 {
				cluster.WriteTemplate(t, c, "keep/sound", files)
			}
			looks++
			for _, path := range damaged {
				if _, err := os.Stat(path); err != nil {
					return err.Error()
				}
			}
			return ""
		})
		if i = start(); i.State == "RUNNING" {
			break
		}
	}
	sound(i)
}
