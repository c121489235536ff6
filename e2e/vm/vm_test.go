package vm_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
)

func TestMain(m *testing.M) {
	if os.Getenv("ORRERY_E2E") != "vm" {
		fmt.Println("left out: these scenarios boot machines, run make e2e-vm")
		return
	}
	os.Exit(m.Run())
}

func TestAGuestHasControlGroupsOfVersion2(t *testing.T) {
	m := vm.Start(t, vm.Options{})
	if got := m.Run("stat -fc %T /sys/fs/cgroup"); got != "cgroup2fs" {
		t.Errorf("/sys/fs/cgroup is %s, want cgroup2fs", got)
	}
	controllers := strings.Fields(m.Run("cat /sys/fs/cgroup/cgroup.controllers"))
	for _, want := range []string{"cpuset", "cpu", "io", "memory", "pids"} {
		if !slices.Contains(controllers, want) {
			t.Errorf("the guest has the controllers %q, want %s among them", controllers, want)
		}
	}
	if got := m.Run("systemctl --version"); !strings.HasPrefix(got, "systemd 252") {
		t.Errorf("systemd is %q, want the one of Debian 12", got)
	}
}
