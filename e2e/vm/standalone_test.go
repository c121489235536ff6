package vm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
	"github.com/orreryhq/orrery/libs/await"
)

const (
	standaloneURL      = "http://127.0.0.1:8080"
	standalonePassword = "/var/lib/orrery/standalone/admin-password"
)

// standalonePayload returns a payload with two versions of standalone and its unit.
func standalonePayload(t *testing.T) *vm.Payload {
	return vm.NewPayload(t, vm.Contents{
		Programs: []string{"./standalone"}, Next: []string{"./standalone"},
		Files: []string{"deployments/systemd/orrery-standalone.service"},
	})
}

// install runs the documented installation with the given flags of standalone.
func install(t *testing.T, m *vm.Machine, flags string) *api {
	t.Helper()
	m.Run("mkdir -p /etc/orrery && echo 'FLAGS=" + flags + "' >/etc/orrery/standalone.env")
	m.Run("set -e; cd /payload\n" + vm.Block(t, "docs/back-up-and-upgrade.md", "useradd "))
	return signIn(t, m, standaloneURL, standalonePassword)
}

func mainProcess(m *vm.Machine, unit string) string {
	return m.Run("systemctl show -P MainPID " + unit)
}

func TestStandaloneAsAService(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: standalonePayload(t)})
	a := install(t, m, "-demo")
	before := a.running("arena", 3)
	a.refused(m, "node-1", "orrery-standalone")

	for _, i := range before {
		if got := m.Run(fmt.Sprintf("cat /proc/%d/cgroup", i.PID)); !strings.Contains(got, "/system.slice/orrery-standalone.service/orrery-") {
			t.Errorf("%s is in control group %s, want one below the service's", i.ID, got)
		}
	}
	for _, step := range []struct{ name, script string }{
		{"restart", "systemctl restart orrery-standalone"},
		{"upgrade", "set -e; cd /payload/next\n" + vm.Block(t, "docs/back-up-and-upgrade.md", "install bin/standalone /usr/local/bin/\nsystemctl restart")},
		{"stop and start", "systemctl stop orrery-standalone && systemctl start orrery-standalone"},
		{"kill", "kill -9 $(systemctl show -P MainPID orrery-standalone)"},
	} {
		t.Log(step.name)
		was := mainProcess(m, "orrery-standalone")
		m.Run(step.script)
		m.Await("another process of the service after "+step.name, func() string {
			if now := mainProcess(m, "orrery-standalone"); now == was || now == "0" {
				return "main process " + now
			}
			return ""
		})
		a = signIn(t, m, standaloneURL, standalonePassword)
		a.same("arena", before)
	}
	if got := m.Run("/proc/$(systemctl show -P MainPID orrery-standalone)/exe -version"); !strings.Contains(got, vm.NextVersion) {
		t.Errorf("after the upgrade %q runs, want version %s", got, vm.NextVersion)
	}

	a.do("POST", "/api/v1/groups", map[string]any{
		"name": "world", "static": true, "minInstances": 1, "maxInstances": 1, "memoryMb": 32, "stopCommand": "",
		"command": "[ -e world ] || cat /proc/sys/kernel/random/boot_id >world; exec cat",
	}, nil)
	world := func() (text string) {
		pid := only(a.running("world", 1)).PID
		m.Await("the world's file", func() string { // its command may have just begun
			out, err := m.Try(fmt.Sprintf("cat /proc/%d/cwd/world", pid))
			text = out
			return await.Unless(err == nil && out != "", "%q, %v", out, err)
		})
		return text
	}
	made := world()
	m.Reboot()
	a = signIn(t, m, standaloneURL, standalonePassword)
	after := a.running("arena", 3)
	all, err := a.instances("arena")
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for _, i := range all {
		if was := before[i.ID]; i.UID == was.UID && i.State == "STOPPED" && i.Reason == "AgentShutdown" && i.ExitCode != nil && *i.ExitCode == 0 {
			stopped++
		}
	}
	if got := world(); got != made {
		t.Errorf("after the reboot the world holds %q, want %q as before", got, made)
	}
	said := m.Run("journalctl -b -1 -u orrery-standalone -o cat | tail -n 40")
	if stopped != 3 || !strings.Contains(said, "the host shuts down") {
		t.Errorf("the reboot ended %+v, want all of %+v stopped in peace; standalone said:\n%s", all, before, said)
	}

	m.Run("systemctl stop orrery-standalone && systemctl kill --kill-whom=all orrery-standalone")
	for _, i := range after {
		awaitEnd(m, i)
	}
}
