package vm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
	"github.com/orreryhq/orrery/libs/await"
)

// The guides whose blocks the tests run.
const (
	servicesGuide = "docs/run-several-control-planes.md"
	machineGuide  = "docs/add-a-machine.md"
)

// etcdUnit runs the single etcd member of the guides' example.
const etcdUnit = `[Unit]
After=network-online.target
Wants=network-online.target

[Service]
StateDirectory=etcd
ExecStart=/usr/local/bin/etcd -data /var/lib/etcd/member -client 10.0.0.1:2379 -tick 100ms -ready /run/etcd-ready
Restart=always
`

// fleet is the guides' example: two hosts, the first of which also runs etcd and the
// services.
type fleet struct {
	t             *testing.T
	first, second *vm.Machine
	api           *api
}

// write writes a file in a guest.
func write(m *vm.Machine, path, text string) {
	m.Run("mkdir -p $(dirname " + path + ") && cat >" + path + " <<'END-OF-FILE'\n" + text + "END-OF-FILE\n")
}

// setUp sets up two hosts as the guides describe.
func setUp(t *testing.T) *fleet {
	t.Helper()
	payload := vm.NewPayload(t, vm.Contents{
		Programs: []string{
			"./e2e/cmd/etcd", "./apigateway/cmd/apigateway", "./scheduler/cmd/scheduler", "./enforcer/cmd/enforcer",
			"./templatesvc/cmd/templatesvc", "./nodeagent/cmd/nodeagent", "./examples/arena/cmd/arena", "./cli/cmd/orrery",
		},
		Next: []string{"./nodeagent/cmd/nodeagent"},
	})
	left, right := vm.Cable(t)
	f := &fleet{t: t}
	f.first = vm.Start(t, vm.Options{Name: "first", Network: left, Payload: payload})
	f.second = vm.Start(t, vm.Options{Name: "second", Network: right, Payload: payload})
	for i, m := range []*vm.Machine{f.first, f.second} {
		write(m, "/etc/systemd/network/cable.network", fmt.Sprintf("[Match]\nName=eth0\n\n[Network]\nAddress=10.0.0.%d/24\n", i+1))
		m.Run("hostnamectl set-hostname " + []string{"first", "second"}[i] + " && systemctl enable --now systemd-networkd")
		m.Run("useradd --system --no-create-home --shell /usr/sbin/nologin orrery && install /payload/bin/* /usr/local/bin/")
	}
	f.services()
	f.addMachine(f.first, 1)
	f.addMachine(f.second, 2)
	f.online("node-1", "node-2")
	return f
}

// services starts etcd and the services on the first host.
func (f *fleet) services() {
	write(f.first, "/etc/systemd/system/etcd.service", etcdUnit)
	write(f.first, "/etc/systemd/system/orrery@.service", vm.Block(f.t, servicesGuide, "[Unit]\nDescription=Orrery %i"))
	write(f.first, "/etc/orrery/secret", strings.Repeat("0123456789abcdef", 4)+"\n")
	write(f.first, "/etc/orrery/common.env", vm.Block(f.t, servicesGuide, "ORRERY_ETCD_ENDPOINTS="))
	f.first.Run("orrery pki init --dir /root/pki && install -m 600 /root/pki/nodes.pem /etc/orrery/nodes.pem")
	for service, settings := range map[string]string{
		"apigateway":  "ORRERY_API_URL=http://10.0.0.1:8080\nORRERY_INSECURE_HTTP=true\nORRERY_NODES_LISTEN=10.0.0.1:7401\nORRERY_NODES_AUTHORITY=/etc/orrery/nodes.pem\n",
		"templatesvc": "ORRERY_LISTEN=10.0.0.1:7100\n", "scheduler": "ORRERY_LISTEN=10.0.0.1:7200\n", "enforcer": "ORRERY_NODES_LISTEN=10.0.0.1:7402\n",
	} {
		trust := "/etc/orrery/" + service + ".pem"
		f.first.Run("orrery pki issue " + service + " --dir /root/pki --out " + trust)
		write(f.first, "/etc/orrery/"+service+".env", settings+"ORRERY_TRUST_FILE="+trust+"\n")
	}
	f.first.Run("chown orrery /etc/orrery/*.pem && chmod 600 /etc/orrery/secret")
	f.first.Run("systemctl daemon-reload && systemctl start etcd && systemctl enable --now orrery@apigateway orrery@scheduler orrery@enforcer orrery@templatesvc")
	f.api = signIn(f.t, f.first, "http://10.0.0.1:8080", "/var/lib/orrery/apigateway/admin-password")
}

// addMachine makes a host a node as the guides describe.
func (f *fleet) addMachine(m *vm.Machine, n int) {
	env := vm.Block(f.t, machineGuide, "ORRERY_LISTEN=10.0.0.2:7000")
	write(m, "/etc/orrery/nodeagent.env", strings.ReplaceAll(env, "10.0.0.2", fmt.Sprint("10.0.0.", n)))
	var made struct{ Token string }
	f.api.do("POST", "/api/v1/admin/tokens", map[string]string{"nodeId": fmt.Sprint("node-", n)}, &made)
	m.Run("install -d -m 700 /var/lib/orrery/nodeagent && echo " + made.Token + " | nodeagent join -dir /var/lib/orrery/nodeagent -")
	write(m, "/etc/systemd/system/orrery-nodeagent.service", vm.Block(f.t, machineGuide, "[Unit]\nDescription=Orrery nodeagent"))
	m.Run("systemctl daemon-reload && systemctl enable --now orrery-nodeagent")
}

// refused checks that the node's record and its service's log name the requirement for
// enforced limits. The guest's systemd lacks DelegateSubgroup, so no limits are enforced.
func (a *api) refused(m *vm.Machine, node, service string) {
	a.t.Helper()
	const setting = "DelegateSubgroup=agent.orrery"
	if l := a.limits(node); l.By != "none" || len(l.Held) > 0 || !strings.Contains(l.Why, setting) || !strings.Contains(l.Why, "254") {
		a.t.Errorf("the record of %s says of limits %+v, want none, %s and the version that knows it", node, l, setting)
	}
	said := m.Run("journalctl -u " + service + " -o cat | grep 'does not enforce all limits' || true")
	if !strings.Contains(said, setting) || !strings.Contains(said, "254") {
		a.t.Errorf("%s says of limits %q, want %s and the version that knows it", service, said, setting)
	}
}

// online waits until exactly these nodes are online.
func (f *fleet) online(want ...string) {
	f.t.Helper()
	f.first.Await(fmt.Sprint("online nodes ", want), func() string {
		var page struct{ Data []struct{ ID, Status string } }
		if err := f.api.try("GET", "/api/v1/nodes", nil, &page); err != nil {
			return err.Error()
		}
		var online []string
		for _, n := range page.Data {
			if n.Status == "ONLINE" {
				online = append(online, n.ID)
			}
		}
		return await.Unless(fmt.Sprint(online) == fmt.Sprint(want), "%+v", page.Data)
	})
}

// arena creates a group of servers.
func (f *fleet) arena(name string, n int, extra map[string]any) {
	f.t.Helper()
	group := map[string]any{
		"name": name, "command": "exec /usr/local/bin/arena -port %PORT%", "minInstances": n, "maxInstances": n,
		"memoryMb": 64, "portRangeStart": 25565, "portRangeEnd": 25600, "readiness": map[string]any{"type": "port"},
	}
	for k, v := range extra {
		group[k] = v
	}
	f.api.do("POST", "/api/v1/groups", group, nil)
}

func TestTwoMachinesAsInTheGuide(t *testing.T) {
	f := setUp(t)
	f.arena("lobby", 4, map[string]any{"maxPerNode": 2})
	before := f.api.running("lobby", 4)
	for _, i := range before {
		if i.Node == "node-2" && !strings.Contains(f.second.Run(fmt.Sprintf("cat /proc/%d/cgroup", i.PID)), "/orrery-nodeagent.service/orrery-") {
			t.Errorf("%+v is in no control group below its agent's service", i)
		}
	}
	// The guide's command for the host itself.
	if list := f.second.Run("nodeagent local list -data /var/lib/orrery/nodeagent/node"); strings.Count(list, "lobby-") != 2 {
		t.Errorf("nodeagent local list shows on the second host:\n%s\nwant two instances of lobby", list)
	}
	f.api.refused(f.second, "node-2", "orrery-nodeagent")
	f.agentOutlived(before)
	f.rebooted(before)
	f.paused()
}

// agentOutlived ends the second machine's agent in every way, and checks that the instances
// continue, also with the upgraded agent.
func (f *fleet) agentOutlived(before map[string]instance) {
	f.t.Helper()
	for _, step := range []struct{ name, script string }{
		{"restart", "systemctl restart orrery-nodeagent"},
		{"upgrade", "install /payload/next/bin/nodeagent /usr/local/bin/ && systemctl restart orrery-nodeagent"},
		{"kill", "kill -9 $(systemctl show -P MainPID orrery-nodeagent)"},
	} {
		f.t.Log(step.name)
		was := mainProcess(f.second, "orrery-nodeagent")
		f.second.Run(step.script)
		f.second.Await("another agent after "+step.name, func() string {
			now := mainProcess(f.second, "orrery-nodeagent")
			return await.Unless(now != was && now != "0", "main process %s", now)
		})
		f.online("node-1", "node-2")
		f.api.same("lobby", before)
	}
	f.second.Run("cmp /payload/next/bin/nodeagent /proc/$(systemctl show -P MainPID orrery-nodeagent)/exe")
}

// rebooted reboots the second machine, and waits until its agent has returned and the group
// is complete.
func (f *fleet) rebooted(before map[string]instance) {
	f.t.Helper()
	f.second.Reboot()
	f.online("node-1", "node-2")
	after := f.api.running("lobby", 4)
	for id, was := range before {
		if now := after[id]; was.Node == "node-1" && (now.UID != was.UID || now.PID != was.PID) {
			f.t.Errorf("%s on the other machine was %+v and is %+v", id, was, now)
		}
	}
}

// paused pauses the second machine for longer than its session. An exclusive instance
// starts on the first machine. The copy that resumes on the second ends before its
// deadline.
func (f *fleet) paused() {
	f.t.Helper()
	f.api.do("POST", "/api/v1/nodes/node-1/cordon", nil, nil)
	f.api.do("POST", "/api/v1/groups", map[string]any{
		"name": "world", "static": true, "onNodeLoss": "replace", "minInstances": 1, "maxInstances": 1, "memoryMb": 32, "stopCommand": "",
		"command": "while :; do cat /proc/uptime >>alive; sleep 0.2; done",
	}, nil)
	was := only(f.api.running("world", 1))
	f.api.do("POST", "/api/v1/nodes/node-1/uncordon", nil, nil)
	if was.Node != "node-2" {
		f.t.Fatalf("%+v is not on node-2, the only one that takes instances", was)
	}
	dir := f.second.Run(fmt.Sprintf("readlink /proc/%d/cwd", was.PID))
	paused := f.seconds(f.second, "/proc/uptime")
	f.second.Pause()
	var now instance
	f.first.Await("the instance on the other machine", func() string {
		all, err := f.api.instances("world")
		for _, i := range all {
			if i.State == "RUNNING" && i.Node == "node-1" {
				now = i
				return ""
			}
		}
		return fmt.Sprintf("%+v %v", all, err)
	})
	f.second.Resume()
	awaitEnd(f.second, was)
	ran := max(0, f.seconds(f.second, dir+"/alive")-paused)
	f.t.Logf("the copy that was paused ran for %.1f s of its machine's time, the pause aside", ran)
	if ran > ttl {
		f.t.Errorf("the copy that was paused ran for %.1f s more, want at most the %d s of its session", ran, ttl)
	}
	f.online("node-1", "node-2")
	f.api.same("world", map[string]instance{now.ID: now})
}

// ttl is the default TTL of a node's session, in seconds.
const ttl = 10

// seconds returns the first number in a file's last line.
func (f *fleet) seconds(m *vm.Machine, file string) float64 {
	f.t.Helper()
	n, err := strconv.ParseFloat(m.Run("tail -n 1 "+file+" | cut -d' ' -f1"), 64)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
