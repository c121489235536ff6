package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestUnusableDataDirectoryIsReportedWithAdvice(t *testing.T) {
	cases := map[string]struct {
		mounts        bool
		prepare, says string
	}{
		"read-only disk":      {true, `mount -t tmpfs -o ro none "$DATA"`, "read-only file system: mount it writable"},
		"full disk":           {true, `mount -t tmpfs -o size=4k none "$DATA"; head -c 100000 /dev/zero >"$DATA/fill" 2>/dev/null`, "no space left on device: make room"},
		"below a file":        {false, `DATA="$DATA/file/data"; : >"${DATA%/*}"`, "not a directory"},
		"damaged identity":    {false, `mkdir -p "$DATA/journal"; : >"$DATA/uuid"`, "contains no valid identity: write the dataUuid"},
		"lost identity":       {false, `mkdir -p "$DATA/journal"; : >"$DATA/journal/aaaaaa.json"`, "is missing although there is a journal"},
		"unreadable identity": {false, `mkdir -p "$DATA/uuid"`, "cannot be read"},
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			script := c.prepare + `
exec "$0" --etcd-endpoints http://127.0.0.1:1 --node node-1 --admin-address 127.0.0.1:0 --data "$DATA"`
			command := []string{"sh", "-c", script, exe}
			if c.mounts {
				command = append(mounting(t), command...)
			}
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Env = append(os.Environ(), beTheProgram+"=1", "ORRERY_CLUSTER_SECRET="+strings.Repeat("s", 32), "DATA="+t.TempDir())
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.says) {
				t.Errorf("ended with %v and said:\n%s", err, out)
			}
		})
	}
}

// mounting is the prefix of a command that allows it to mount, in a mount namespace of its own.
func mounting(t *testing.T) []string {
	t.Helper()
	unshare := []string{"unshare", "-m"}
	if os.Geteuid() != 0 {
		unshare = []string{"unshare", "-Urm"}
	}
	out, err := exec.Command(unshare[0], unshare[1], "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput()
	switch {
	case err != nil && os.Getenv("ORRERY_CI") == "":
		t.Skipf("no mount of one's own: %v: %s", err, out)
	case err != nil:
		t.Fatalf("no mount of one's own: %v: %s", err, out)
	}
	return unshare
}
