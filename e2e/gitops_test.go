package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// worktree is a Git repository on disk that tests edit with the git command.
type worktree struct {
	t   *testing.T
	dir string
}

func newWorktree(t *testing.T) *worktree {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skip("git is not installed")
	}
	w := &worktree{t: t, dir: t.TempDir()}
	w.git("init", "--quiet", "--initial-branch=main")
	return w
}

func (w *worktree) git(args ...string) {
	w.t.Helper()
	c := exec.Command("git", args...)
	c.Dir = w.dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := c.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit writes a file, or deletes it when content is empty, and commits the change.
func (w *worktree) commit(path, content string) {
	w.t.Helper()
	full := filepath.Join(w.dir, filepath.FromSlash(path))
	err := os.MkdirAll(filepath.Dir(full), 0o755)
	if err == nil && content != "" {
		err = os.WriteFile(full, []byte(content), 0o644)
	} else if err == nil {
		err = os.Remove(full)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.git("add", "--all")
	w.git("commit", "--quiet", "--message", path)
}

// fileOf reads a file from a running instance's directory.
func fileOf(t *testing.T, i cluster.Instance, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID), "cwd", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestARepositoryMakesAGroupChangesItsFilesAndRemovesIt(t *testing.T) {
	t.Parallel()
	repository := newWorktree(t)
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	repository.commit("templates/games/greeting/hello.txt", "first")
	repository.commit("groups/greeter.yaml", "command: exec sleep 100000\ntemplates: [games/greeting]\nminInstances: 1\nmemoryMb: 8\nshutdownGraceSeconds: 0\n")
	r := admin.Do("PUT", "/api/v1/template-sources/network", map[string]any{
		"kind": "git", "url": "file://" + repository.dir, "branch": "main", "declares": true,
	})
	if r.Status != 201 {
		t.Fatalf("%d: %s", r.Status, r.Body)
	}
	one := admin.AwaitRunning("greeter", 1)[0]
	if got := fileOf(t, one, "hello.txt"); string(got) != "first" {
		t.Errorf("the first instance has %q", got)
	}
	version := func() string {
		var template struct{ Hash string }
		admin.Do("GET", "/api/v1/templates/games%2Fgreeting", nil).OK(200, &template)
		return template.Hash
	}
	before := version()

	repository.commit("templates/games/greeting/hello.txt", "second")
	admin.Do("POST", "/api/v1/template-sources/network/sync", nil).OK(202)
	await.That(t, "another version", func() string { return await.Unless(version() != before, "%s", before) })
	admin.Do("POST", "/api/v1/groups/greeter/start", nil).OK(200)
	if got := fileOf(t, admin.AwaitState("greeter-2", "RUNNING"), "hello.txt"); string(got) != "second" {
		t.Errorf("the second instance has %q", got)
	}
	if got := fileOf(t, one, "hello.txt"); string(got) != "first" {
		t.Errorf("the first instance now has %q", got)
	}

	running := admin.Running("greeter")
	repository.commit("groups/greeter.yaml", "")
	admin.Do("POST", "/api/v1/template-sources/network/sync", nil).OK(202)
	await.That(t, "the end of the group and all it ran", func() string {
		left := admin.Do("GET", "/api/v1/groups/greeter", nil).Status
		for _, i := range running {
			if pids := carriers(t, i.UID); len(pids) > 0 {
				return fmt.Sprintf("%s runs as %v, its group is answered with %d", i.ID, pids, left)
			}
		}
		return await.Unless(left == 404, "the group is answered with %d", left)
	})
	if version() == before { // the template is still declared
		t.Error("the template has gone back")
	}
}

func TestARepositoryDeclaresTheCatalogThatItsGroupRuns(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "the jar of "+r.URL.Path) }))
	t.Cleanup(site.Close)
	tools := cluster.OpenDir(t) // a fake java that runs while the jar exists
	if err := os.WriteFile(filepath.Join(tools, "java"), []byte("#!/bin/sh\n[ -s server.jar ] && exec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	repository := newWorktree(t)
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	admin.Do("POST", "/api/v1/cluster/config", map[string]any{
		"parentVersion": 0, "patch": map[string]any{"network.allowedEgress": []string{"127.0.0.1"}},
	}).OK(201)
	catalog := func(recommended string, versions ...string) string {
		text := fmt.Sprintf("platforms:\n  PAPER:\n    recommended: %q\n    versions:\n", recommended)
		for _, v := range versions {
			sum := sha256.Sum256([]byte("the jar of /" + v))
			text += fmt.Sprintf("      - {version: %q, downloadUrl: %q, sha256: %x}\n", v, site.URL+"/"+v, sum)
		}
		return text
	}
	sync := func(body any) { admin.Do("POST", "/api/v1/template-sources/network/sync", body).OK(202) }
	state := func() (held string, items map[string]string) {
		var all []struct {
			Held  string
			Items []struct{ Kind, Name, State string }
		}
		admin.Do("GET", "/api/v1/gitops", nil).OK(200, &all)
		items = map[string]string{}
		for _, i := range all[0].Items {
			items[i.Kind+" "+i.Name] = i.State
		}
		return all[0].Held, items
	}
	stands := func(want string) {
		t.Helper()
		await.That(t, "the catalog as declared", func() string {
			_, items := state()
			delete(items, "group paper")
			delete(items, "template games/x")
			for name, state := range items {
				if state == "REMOVED" { // the state is shown only until the next scan
					delete(items, name)
				}
			}
			return await.Unless(fmt.Sprint(items) == want, "%v, want %s", items, want)
		})
	}
	repository.commit("templates/games/x/f", "1")
	repository.commit("catalog.yaml", catalog("1", "1", "2", "3", "4"))
	repository.commit("groups/paper.yaml", "platform: PAPER\njarFile: server.jar\nreadiness: {type: none}\nminInstances: 1\nmemoryMb: 8\nshutdownGraceSeconds: 0\nenv: {PATH: \""+tools+":/usr/bin:/bin\"}\n")
	admin.Do("PUT", "/api/v1/template-sources/network", map[string]any{"kind": "git", "url": "file://" + repository.dir, "branch": "main", "declares": true}).OK(201)
	stands("map[catalog PAPER:IN_SYNC catalog PAPER/1:IN_SYNC catalog PAPER/2:IN_SYNC catalog PAPER/3:IN_SYNC catalog PAPER/4:IN_SYNC]")
	if got := fileOf(t, admin.AwaitRunning("paper", 1)[0], "server.jar"); string(got) != "the jar of /1" {
		t.Errorf("the first instance runs %q", got)
	}

	// The same commit recommends another version and removes the previous one.
	repository.commit("catalog.yaml", catalog("2", "2", "3", "4"))
	sync(nil)
	stands("map[catalog PAPER:IN_SYNC catalog PAPER/2:IN_SYNC catalog PAPER/3:IN_SYNC catalog PAPER/4:IN_SYNC]")
	admin.Do("POST", "/api/v1/groups/paper/start", nil).OK(200)
	if got := fileOf(t, admin.AwaitState("paper-2", "RUNNING"), "server.jar"); string(got) != "the jar of /2" {
		t.Errorf("the second instance runs %q", got)
	}

	// A change that removes most versions is held until it is confirmed.
	repository.commit("catalog.yaml", catalog("2", "2", "3", "4", "5", "6"))
	sync(nil)
	stands("map[catalog PAPER:IN_SYNC catalog PAPER/2:IN_SYNC catalog PAPER/3:IN_SYNC catalog PAPER/4:IN_SYNC catalog PAPER/5:IN_SYNC catalog PAPER/6:IN_SYNC]")
	repository.commit("catalog.yaml", "")
	sync(nil)
	var held string
	await.That(t, "that it is held", func() string { held, _ = state(); return await.Unless(held != "", "it is not") })
	stands("map[catalog PAPER:IN_SYNC catalog PAPER/2:IN_SYNC catalog PAPER/3:IN_SYNC catalog PAPER/4:IN_SYNC catalog PAPER/5:IN_SYNC catalog PAPER/6:IN_SYNC]")
	sync(map[string]string{"confirm": held})
	// The group depends on the recommended version, so that one stays and the others go.
	stands("map[catalog PAPER:FAILED catalog PAPER/2:FAILED]")
}
