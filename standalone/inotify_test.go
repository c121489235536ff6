package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

// withoutInotify runs a program in a user namespace without inotify instances, as on a host
// where the user has used up the limit.
func withoutInotify(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	c.Args = append([]string{"sh", "-c", `echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"`, "sh", c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
}

func TestWithoutInotifyTemplatesAndConsolesAreFollowedAllTheSame(t *testing.T) {
	t.Parallel()
	probe := exec.Command("true")
	withoutInotify(probe)
	if out, err := probe.CombinedOutput(); err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skipf("no user namespaces here: %v\n%s", err, out)
	}
	p := launch(t, t.TempDir(), nil, withoutInotify).login()
	file := filepath.Join(p.data, "templates", "default", "lobby", "motd")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "another"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the template with "+content, func() string {
			var got struct{ Content string }
			err := p.call("GET", "/api/v1/templates/lobby/files/content?path=motd", nil, &got)
			return await.Unless(err == nil && got.Content == content, "%+v, %v", got, err)
		})
	}
	if err := p.call("POST", "/api/v1/groups", map[string]any{"name": "lobby", "command": "echo ready; cat", "minInstances": 1}, nil); err != nil {
		t.Fatal(err)
	}
	p.running(1)
	await.That(t, "what the instance prints", func() string {
		var got struct{ Lines []struct{ Line string } }
		err := p.call("GET", "/api/v1/services/lobby-1/console/history", nil, &got)
		return await.Unless(err == nil && len(got.Lines) == 1 && got.Lines[0].Line == "ready", "%+v, %v", got, err)
	})
	for _, warning := range []string{"the kernel does not report changes in the template directory", "inotify is unavailable: logs are polled"} {
		if n := strings.Count(p.stderr.String(), warning); n != 1 {
			t.Errorf("it logs %q %d times:\n%s", warning, n, &p.stderr)
		}
	}
	if !strings.Contains(p.stderr.String(), "raise fs.inotify.max_user_instances") {
		t.Errorf("it does not say what to raise:\n%s", &p.stderr)
	}
	p.stop()
}
