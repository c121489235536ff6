package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestARolledBackTemplateGivesTheBytesOfBefore(t *testing.T) {
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
	admin.Do("POST", "/api/v1/templates/keep%2Fit/rollback", nil).OK(200) // no body: the version before
	if got := content("reader-2"); got != first {
		t.Errorf("after the rollback: %q, want %q", got, first)
	}
}
