package vm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
	"github.com/orreryhq/orrery/libs/await"
)

// engine starts the guest's container engine, whose containers use the guest's network,
// with an image that has a shell and a few tools.
const engine = `set -e
mkdir -p /etc/docker /tmp/box/bin
echo '{"bridge":"none","iptables":false,"ip6tables":false,"ip-forward":false}' >/etc/docker/daemon.json
systemctl start docker
cp /bin/busybox /tmp/box/bin/sh
for tool in cat sleep tail; do ln -s sh /tmp/box/bin/$tool; done
tar -C /tmp/box -c . | docker import - box:1`

// scope starts standalone as root in a systemd scope with its own control group.
const scope = `systemd-run --quiet --scope --unit=orrery -p Delegate=yes -p TasksMax=infinity \
	systemd-cat -t orrery /payload/bin/standalone -data /var/lib/orrery -policy-networks host >/dev/null 2>&1 &`

// heldIn maps files of an instance's control group to their expected content. The number of
// processes is one above the limit, for the shell around the command.
var heldIn = map[string]string{
	"memory.max": "67108864", "memory.swap.max": "0", "cpu.max": "20000 100000", "pids.max": "21",
}

// comesTo maps files to the kernel's counters of exceeded limits.
var comesTo = map[string]string{"pids.events": "max", "cpu.stat": "nr_throttled"}

// TestLimitsHoldByControlGroupsOfVersion2 runs in a guest that has only control groups v2.
func TestLimitsHoldByControlGroupsOfVersion2(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: vm.NewPayload(t, vm.Contents{Programs: []string{"./standalone"}})})
	m.Run(engine)
	m.Run(scope)
	a := signIn(t, m, standaloneURL, "/var/lib/orrery/admin-password")
	offer := a.limits("node-1")
	for _, limit := range []string{"memory", "cpu", "processes", "io"} {
		if offer.By != "cgroup2" || !slices.Contains(offer.Held, limit) {
			t.Errorf("the node holds %v by %s because %q, want %s by cgroup2", offer.Held, offer.By, offer.Why, limit)
		}
	}
	for _, runtime := range []string{"process", "tmux", "screen", "docker"} {
		a.outOfMemory(runtime)
		a.held(runtime)
	}
}

// limited returns a group with every limit.
func limited(name, runtime, command string) map[string]any {
	return map[string]any{
		"name": name, "runtime": runtime, "command": command, "minInstances": 1, "maxInstances": 1, "stopCommand": "",
		"memoryMb": 64, "cpu": 10, "cpuLimit": 20, "limits": map[string]any{"processes": 20, "ioWeight": 500},
		"container": map[string]any{"image": "box:1", "network": "host"},
	}
}

// outOfMemory waits until an instance that allocates all memory ends for that reason.
func (a *api) outOfMemory(runtime string) {
	a.t.Helper()
	group := "hungry-" + runtime
	a.do("POST", "/api/v1/groups", limited(group, runtime, "exec tail /dev/zero"), nil)
	a.m.Await("a crash of "+group, func() string {
		var page struct {
			Data []struct {
				OOM                             bool
				Classification, Reason, Message string
			}
		}
		if err := a.try("GET", "/api/v1/crashes?group="+group, nil, &page); err != nil {
			return err.Error()
		}
		if len(page.Data) == 0 {
			all, err := a.instances(group)
			return fmt.Sprintf("no crash; instances %+v %v", all, err)
		}
		if c := page.Data[0]; !c.OOM || c.Classification != "OOM" || c.Reason != "OutOfMemory" || !strings.Contains(c.Message, "64 MiB") {
			a.t.Errorf("%s: %+v, want a crash for memory that names the limit of 64 MiB", group, c)
		}
		return ""
	})
	a.do("DELETE", "/api/v1/groups/"+group, nil, nil)
}

// held checks the control group of an instance that reaches its other limits.
func (a *api) held(runtime string) {
	a.t.Helper()
	group := "busy-" + runtime
	a.do("POST", "/api/v1/groups", limited(group, runtime,
		"(i=0; while [ $i -lt 64 ]; do i=$((i+1)); sleep 100000 & done; wait) & while :; do :; done"), nil)
	for _, i := range a.running(group, 1) {
		dir := a.controlGroup(i)
		for file, want := range heldIn {
			if got := a.m.Run("cat " + dir + "/" + file); got != want {
				a.t.Errorf("%s of %s holds %q, want %q", file, group, got, want)
			}
		}
		for file, counter := range comesTo {
			a.m.Await(file+" of "+group+" to count", func() string {
				got := a.m.Run(fmt.Sprintf("grep '^%s ' %s/%s", counter, dir, file))
				return await.Unless(got != counter+" 0", "%s", got)
			})
		}
	}
	a.do("DELETE", "/api/v1/groups/"+group, nil, nil)
}

// controlGroup returns the directory of an instance's control group.
func (a *api) controlGroup(i instance) string {
	a.t.Helper()
	return "/sys/fs/cgroup" + strings.TrimPrefix(a.m.Run(fmt.Sprintf("grep ^0:: /proc/%d/cgroup", i.PID)), "0::")
}

// bfq selects BFQ as the disk's I/O scheduler, with a longer idle time, because an emulated
// program is slow to send its next request.
const bfq = `set -e; modprobe bfq; cd /sys/block/vda/queue; echo bfq >scheduler
echo 1 >iosched/strict_guarantees; echo 500 >iosched/slice_idle; echo 0 >iosched/low_latency`

// slowDisk is fewer operations per second than one rotating disk performs.
const slowDisk = 40

// TestWeightsOfDisksHold lets two instances with weights of a hundred to one write directly
// to a slow disk, and compares their throughput.
func TestWeightsOfDisksHold(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: vm.NewPayload(t, vm.Contents{Programs: []string{"./standalone"}})})
	m.Run(bfq)
	m.Run(scope)
	a := signIn(t, m, standaloneURL, "/var/lib/orrery/admin-password")
	weights := map[string]int{"heavy": 1000, "light": 10}
	for name, weight := range weights {
		a.do("POST", "/api/v1/groups", map[string]any{
			"name": name, "minInstances": 1, "maxInstances": 1, "stopCommand": "", "memoryMb": 64, "limits": map[string]any{"ioWeight": weight},
			"command": "while :; do dd if=/dev/zero of=written bs=64k count=4096 oflag=direct conv=notrunc 2>/dev/null; done",
		}, nil)
	}
	dirs := map[string]string{}
	for name, weight := range weights {
		dirs[name] = a.controlGroup(only(a.running(name, 1)))
		for file, want := range map[string]string{"io.weight": fmt.Sprintf("default %d", weight), "io.bfq.weight": fmt.Sprintf("default %d", weight)} {
			if got := m.Run("head -n 1 " + dirs[name] + "/" + file); got != want {
				t.Errorf("%s of %s holds %q, want %q", file, name, got, want)
			}
		}
	}
	m.SlowDisk(slowDisk)
	written := func(name string) int {
		n, err := strconv.Atoi(m.Run("grep -o 'wbytes=[0-9]*' " + dirs[name] + "/io.stat | head -n 1 | cut -d= -f2"))
		if err != nil {
			return 0 // it has written nothing
		}
		return n
	}
	const enough = 32 << 20
	heavy, light := written("heavy"), written("light")
	m.Await("much written by the heavy instance", func() string {
		got := written("heavy") - heavy
		return await.Unless(got > enough, "%d bytes", got)
	})
	heavy, light = written("heavy")-heavy, written("light")-light
	t.Logf("written: %d bytes by the heavy instance, %d by the light one", heavy, light)
	if heavy < 3*light {
		t.Errorf("the heavy instance wrote %d bytes and the light one %d, want at least three times as much", heavy, light)
	}
}
