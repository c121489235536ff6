package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// A template may be removed while instances that use it start. They get all of it, and
// later starts fail because it does not exist.
func TestATemplateThatGoesWhileInstancesStartGivesAllOfItOrNothing(t *testing.T) {
	t.Parallel()
	const starts = 10
	// The directory keeps another template, because an empty directory removes nothing.
	data := t.TempDir()
	for _, file := range []string{"gone/soon/a.txt", "gone/soon/b.txt", "stays/here/a.txt"} {
		path := filepath.Join(data, "templates", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("all of it"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster.Start(t, cluster.Options{DataDir: data})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{
		"name": "late", "command": "exec sleep 100000", "templates": []string{"gone/soon"}, "memoryMb": 1, "maxInstances": 0, "shutdownGraceSeconds": 0,
	})
	if r := admin.Do("DELETE", "/api/v1/templates/gone%2Fsoon", nil); r.Status != 409 {
		t.Errorf("the template of a group is deleted: %d %s", r.Status, r.Body)
	}
	start := func() (uid string) {
		t.Helper()
		var made struct{ Instances []cluster.Instance }
		admin.Do("POST", "/api/v1/groups/late/start", nil).OK(200, &made)
		if len(made.Instances) != 1 {
			t.Fatalf("started %+v", made)
		}
		return made.Instances[0].UID
	}
	// ended waits for the result of a start, which must have got all files or none.
	ended := func(uid string) (i cluster.Instance) {
		t.Helper()
		await.That(t, "the start's end", func() string {
			i = admin.Instance(uid)
			return await.Unless(i.State == "RUNNING" || i.State == "CRASHED", "%+v", i)
		})
		if i.State == "CRASHED" {
			if i.Reason != "TemplateMissing" {
				t.Errorf("%s failed with %s: %s", i.ID, i.Reason, i.Message)
			}
			return i
		}
		for _, name := range []string{"a.txt", "b.txt"} {
			if got := fileOf(t, i, name); string(got) != "all of it" {
				t.Errorf("%s has %q", i.ID, got)
			}
		}
		return i
	}
	var before, during []string
	for range starts {
		before = append(before, start())
	}
	// Remove it atomically, so that no version with half of its files is published.
	if err := os.Rename(filepath.Join(c.TemplateDir(), "gone"), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	for range starts {
		during = append(during, start())
	}
	for _, uid := range before {
		if i := ended(uid); i.State != "RUNNING" {
			t.Errorf("%s was started before and failed: %s", i.ID, i.Message)
		}
	}
	for _, uid := range during {
		ended(uid)
	}
	await.That(t, "the template to go", func() string {
		r := admin.Do("GET", "/api/v1/templates/gone%2Fsoon", nil)
		return await.Unless(r.Status == 404, "%d", r.Status)
	})
	if i := ended(start()); i.State != "CRASHED" {
		t.Errorf("an instance of what is gone: %+v", i)
	}
}
