package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestADataDirectoryThatCannotBeUsedIsTheOperatorsToMend(t *testing.T) {
	namespace := []string{"-m"}
	if os.Geteuid() != 0 {
		namespace = []string{"-Urm"}
	}
	if out, err := exec.Command("unshare", append(namespace, "mount", "-t", "tmpfs", "none", t.TempDir())...).CombinedOutput(); err != nil {
		if os.Getenv("ORRERY_CI") != "" {
			t.Fatalf("no mount of one's own: %v: %s", err, out)
		}
		t.Skipf("no mount of one's own: %v: %s", err, out)
	}
	cases := map[string]struct{ prepare, says string }{
		"on a read-only disk":     {`mount -t tmpfs -o ro none "$DATA"`, "read-only file system: mount it writable"},
		"on a full disk":          {`mount -t tmpfs -o size=4k none "$DATA"; head -c 100000 /dev/zero >"$DATA/fill" 2>/dev/null`, "no space left on device: make room"},
		"below a file":            {`DATA="$DATA/file/data"; : >"${DATA%/*}"`, "not a directory"},
		"with a damaged identity": {`mkdir -p "$DATA/journal"; : >"$DATA/uuid"`, "holds no identity: write the dataUuid"},
		"with a lost identity":    {`mkdir -p "$DATA/journal"; : >"$DATA/journal/aaaaaa.json"`, "is missing although there is a journal"},
		"with an unreadable one":  {`mkdir -p "$DATA/uuid"`, "cannot be read"},
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			script := c.prepare + `
exec "$0" --etcd-endpoints http://127.0.0.1:1 --node node-1 --admin-address 127.0.0.1:0 --data "$DATA"`
			cmd := exec.Command("unshare", append(namespace, "sh", "-c", script, exe)...)
			cmd.Env = append(os.Environ(), beTheProgram+"=1", "ORRERY_CLUSTER_SECRET="+strings.Repeat("s", 32), "DATA="+t.TempDir())
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.says) {
				t.Errorf("ended with %v and said:\n%s", err, out)
			}
		})
	}
}
