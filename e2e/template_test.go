package e2e_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestARolledBackTemplateGivesTheBytesOfBefore(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	write := func(content string) { cluster.WriteTemplate(t, c, "keep/it", map[string]string{"file.bin": content}) }
	versions := func() (digests []string) {
		var list []struct{ Hash string }
		if r := admin.Do("GET", "/api/v1/templates/keep%2Fit/versions", nil); r.Status == 200 {
			r.OK(200, &list)
		}
		for _, v := range list {
			digests = append(digests, v.Hash)
		}
		return digests
	}
	awaitVersions := func(n int) {
		await.That(t, strconv.Itoa(n)+" versions", func() string {
			if got := versions(); len(got) != n {
				b, _ := json.Marshal(got)
				return string(b)
			}
			return ""
		})
	}
	const first, second = "one\x00\xff\n", "two\x00\xfe\n"
	write(first)
	awaitVersions(1)
	write(second)
	awaitVersions(2)
	createGroup(t, admin, map[string]any{"name": "reader", "command": "exec cat", "templates": []string{"keep/it"}, "memoryMb": 8, "shutdownGraceSeconds": 0})
	content := func(name string) string {
		admin.Do("POST", "/api/v1/groups/reader/start", nil).OK(200)
		i := admin.AwaitState(name, "RUNNING")
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID), "cwd", "file.bin"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := content("reader-1"); got != second {
		t.Errorf("before the rollback: %q", got)
	}
	admin.Do("POST", "/api/v1/templates/keep%2Fit/rollback", nil).OK(200) // no body means the previous version
	if got := content("reader-2"); got != first {
		t.Errorf("after the rollback: %q, want %q", got, first)
	}
}

// archive returns a zip of files with the same text.
func archive(t *testing.T, files int, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range files {
		f, err := w.Create(fmt.Sprintf("d%d/f%d", i%4, i))
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEachOfAHundredStartsHasOneVersion(t *testing.T) {
	const starts, files = 100, 20
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	published := 0
	publish := func() {
		published++
		admin.Do("POST", "/api/templates/hundred/it/import", archive(t, files, fmt.Sprint("version ", published))).OK(200)
	}
	admin.Do("PATCH", "/api/templates/hundred/it/files/d0/f0", "version 0").OK(200)
	publish()
	createGroup(t, admin, map[string]any{
		"name": "many", "command": "exec sleep 100000", "templates": []string{"hundred/it"}, "memoryMb": 1, "maxInstances": 0, "shutdownGraceSeconds": 0,
	})
	for i := range starts {
		admin.Do("POST", "/api/v1/groups/many/start", nil).OK(200)
		if i%3 == 0 {
			publish()
		}
	}
	versions := map[string]bool{}
	for _, i := range admin.AwaitRunning("many", starts) {
		found := map[string]int{}
		for n := range files {
			b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID), "cwd", fmt.Sprintf("d%d/f%d", n%4, n)))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			found[string(b)]++
		}
		if len(found) != 1 || found[""] > 0 {
			t.Errorf("%s has of each version so many files: %v", i.UID, found)
		}
		for v := range found {
			versions[v] = true
		}
	}
	if len(versions) < 2 {
		t.Errorf("all have %v: nothing was published meanwhile", versions)
	}
}
