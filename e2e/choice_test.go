package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// newTrio starts a cluster of three equal nodes: node-1 and node-2 in zone a, node-3 in
// zone b.
func newTrio(t *testing.T) (cluster.Local, *cluster.Client) {
	t.Helper()
	c := cluster.Start(t, cluster.Options{MemoryMiB: 200, CPU: 400})
	admin := cluster.Login(t, c)
	for id, zone := range map[string]string{"node-2": "a", "node-3": "b"} {
		cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: id, MemoryMiB: 200, CPU: 400, Labels: map[string]string{"zone": zone}})
	}
	admin.Do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"zone":"a"}}`).OK(200)
	return c, admin
}

// perNode counts instances by node.
func perNode(all []cluster.Instance) map[string]int {
	out := map[string]int{}
	for _, i := range all {
		out[i.Node]++
	}
	return out
}

// even reports whether each of the three nodes has n.
func even(on map[string]int, n int) bool {
	return len(on) == 3 && on["node-1"] == n && on["node-2"] == n && on["node-3"] == n
}

func TestAGroupGoesWhereItsProfileAndPreferencesSay(t *testing.T) {
	t.Parallel()
	_, admin := newTrio(t)
	for _, c := range []struct {
		rule string
		spec fields
		want func(on map[string]int) bool
	}{
		{"spread: one on each", fields{"placementProfile": "spread", "minInstances": 3}, func(on map[string]int) bool { return even(on, 1) }},
		{"pack: all on one", fields{"placementProfile": "pack", "minInstances": 3}, func(on map[string]int) bool { return len(on) == 1 }},
		{
			"weights of one's own: the fewest of the group first, whatever the profile",
			fields{"placementProfile": "pack", "placementWeights": fields{"packed": 0, "own": 1}, "minInstances": 3},
			func(on map[string]int) bool { return even(on, 1) },
		},
		{
			"a label to spread over: as many in either zone",
			fields{"spreadConstraint": "zone", "spreadMaxSkew": 1, "minInstances": 4},
			func(on map[string]int) bool { return on["node-3"] == 2 },
		},
		{
			"a preference: all there while it fits, and then elsewhere",
			fields{"nodePreferences": []fields{{"label": "zone=b", "weight": 100}}, "memoryMb": 60, "minInstances": 4},
			func(on map[string]int) bool { return on["node-3"] == 3 },
		},
		{
			"a dislike: not there while others fit",
			fields{"nodePreferences": []fields{{"label": "zone=a", "weight": -100}}, "memoryMb": 60, "minInstances": 4},
			func(on map[string]int) bool { return on["node-3"] == 3 },
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := &pair{t: t, admin: admin.On(t)}
			spec := catGroup("chosen", c.spec)
			createGroup(t, p.admin, spec)
			defer p.remove("chosen")
			if all := p.admin.AwaitRunning("chosen", spec["minInstances"].(int)); !c.want(perNode(all)) {
				t.Errorf("on %v", perNode(all))
			}
		})
	}
}

func TestAConfigurationOfTheOlderDialectGoesToTheAllowedNodeWithMostFreeMemory(t *testing.T) {
	t.Parallel()
	_, admin := newTrio(t)
	createGroup(t, admin, catGroup("holder", fields{"nodes": []string{"node-1"}, "memoryMb": 100, "minInstances": 1}))
	admin.AwaitRunning("holder", 1)
	configuration := fields{
		"command": "exec cat", "ramMB": 50, "cpu": 10, "minimumServiceCount": 0, "nodes": []string{"node-1", "node-2"}, "stopCommand": "",
		"availablePorts":  fields{"min": 21700, "max": 21709},
		"additionalPorts": []fields{{"name": "query", "protocol": "UDP", "port": 21710, "end": 21719}},
	}
	admin.Do("PUT", "/api/configurations/older", configuration).OK(204)
	var at []string
	for range 3 {
		var made universeInstance
		admin.Do("POST", "/api/instances", fields{"configurationName": "older"}).OK(201, &made)
		await.That(t, made.ID+" online", func() string {
			r := admin.Do("GET", "/api/instances/"+made.ID, nil).OK(200, &made)
			return await.Unless(made.State == "ONLINE", "%s", r.Body)
		})
		at = append(at, made.WrapperNodeID)
	}
	// The nodes have 100 and 200 free, then 100 and 150, then the same.
	if !slices.Equal(at[:2], []string{"node-2", "node-2"}) || at[2] == "node-3" {
		t.Errorf("placed on %v", at)
	}
}

func TestEveryInstanceHasItsOwnPortsAndIsToldThem(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("ported", fields{
		"command": "echo ports %PORT% %PORT_QUERY% %PORT_RCON%; exec cat", "minInstances": 3,
		"portRangeStart": 21800, "portRangeEnd": 21805,
		// The ranges overlap, but no two instances may share a port.
		"additionalPorts": []fields{
			{"name": "query", "protocol": "udp", "start": 21803, "end": 21812},
			{"name": "rcon", "protocol": "tcp", "start": 21805, "end": 21812},
		},
	}))
	taken := map[int]string{}
	for _, i := range admin.AwaitRunning("ported", 3) {
		var shown struct {
			Port  int
			Ports []struct {
				Name string
				Port int
			}
		}
		admin.Do("GET", "/api/v1/services/"+i.UID, nil).OK(200, &shown)
		told := fmt.Sprint("ports ", shown.Port)
		all := []int{shown.Port}
		for _, p := range shown.Ports {
			told += fmt.Sprint(" ", p.Port)
			all = append(all, p.Port)
		}
		if len(all) != 3 {
			t.Fatalf("%s has %v", i.ID, all)
		}
		for _, port := range all {
			if other := taken[port]; other != "" || port < 21800 || port > 21812 {
				t.Errorf("%s has port %d, which belongs to %q", i.ID, port, other)
			}
			taken[port] = i.ID
		}
		await.That(t, i.ID+" having been told its ports", func() string {
			r := admin.Do("GET", "/api/v1/services/"+i.UID+"/console/history", nil)
			return await.Unless(strings.Contains(string(r.Body), told), "%s, want %s", r.Body, told)
		})
	}
}

func TestANodeWhereARevisionKeepsFailingIsAvoidedAndNotForbidden(t *testing.T) {
	t.Parallel()
	_, admin := newTrio(t)
	spec := catGroup("picky", fields{
		"command": `[ "$ORRERY_NODE" = node-3 ] && exit 7; exec cat`, "onCrash": "stop",
		"nodePreferences": []fields{{"label": "zone=b", "weight": 100}},
	})
	createGroup(t, admin, spec)
	admin.Do("POST", "/api/v1/groups/picky/start", fields{"count": 5}).OK(200)
	await.That(t, "five failures", func() string {
		failed := 0
		for _, i := range admin.Instances("picky") {
			if i.State == "CRASHED" && i.Node == "node-3" {
				failed++
			}
		}
		return await.Unless(failed == 5, "%d failed", failed)
	})
	avoiding := admin.AwaitState(startOne(t, admin, "picky"), "RUNNING")
	if avoiding.Node == "node-3" {
		t.Errorf("%+v", avoiding)
	}
	// It is tried there only when no other node is left.
	admin.Do("POST", "/api/v1/nodes/node-1/cordon", nil).OK(200)
	admin.Do("POST", "/api/v1/nodes/node-2/cordon", nil).OK(200)
	if last := admin.AwaitState(startOne(t, admin, "picky"), "CRASHED"); last.Node != "node-3" {
		t.Errorf("%+v", last)
	}
}

// nodeShown are the parts of a node's view about its resources.
type nodeShown struct {
	ID                string
	InstanceCount     int
	EffectiveCapacity struct{ MemoryMb, CPU int }
	Reserved          struct{ MemoryMb, CPU int }
	Instances         []struct {
		cluster.Instance
		MemoryMb int
	}
}

// accounts checks a node: what is reserved is what its living instances take, within its
// capacity, and no port is used twice.
func accounts(t *testing.T, admin *cluster.Client, id string) (problem string) {
	t.Helper()
	var n nodeShown
	admin.Do("GET", "/api/v1/nodes/"+id, nil).OK(200, &n)
	sum, living, ports := 0, 0, map[int]bool{}
	for _, i := range n.Instances {
		if i.State == "SCHEDULED" || i.State == "STOPPED" || i.State == "CRASHED" {
			continue
		}
		living++
		sum += i.MemoryMb
		if i.Port != 0 && ports[i.Port] {
			return fmt.Sprintf("%s: port %d twice", id, i.Port)
		}
		ports[i.Port] = true
	}
	return await.Unless(sum == n.Reserved.MemoryMb && living == n.InstanceCount && sum <= n.EffectiveCapacity.MemoryMb,
		"%s: %d MiB of %d reserved for %d instances; the living %d take %d", id, n.Reserved.MemoryMb, n.EffectiveCapacity.MemoryMb, n.InstanceCount, living, sum)
}

func TestTwentyGroupsScaledAtOnceNeverExceedAMaximumOrANode(t *testing.T) {
	_, admin := newTrio(t)
	const groups, wanted = 20, 3 // 60 instances of 15 MiB; 13 fit on each node
	for g := range groups {
		createGroup(t, admin, catGroup(fmt.Sprint("many-", g), fields{"memoryMb": 15, "maxInstances": wanted, "onCrash": "replace"}))
	}
	ctx := cluster.Bounded(t)
	var wg sync.WaitGroup
	for g := range groups {
		wg.Go(func() {
			r, err := admin.Try(ctx, "POST", fmt.Sprintf("/api/v1/groups/many-%d/scale", g), fields{"targetInstances": wanted})
			if err != nil || r.Status != 200 {
				t.Errorf("scale: %v %v", err, r)
			}
		})
	}
	wg.Wait()
	stopped := map[string]bool{} // by UID, because a stopping instance may already have a successor of the same name
	running := func() (out []cluster.Instance) {
		for g := range groups {
			all := slices.DeleteFunc(admin.Instances(fmt.Sprint("many-", g)), func(i cluster.Instance) bool {
				return i.State == "STOPPED" || i.State == "CRASHED" || stopped[i.UID]
			})
			if len(all) > wanted {
				t.Fatalf("%d of at most %d: %+v", len(all), wanted, all)
			}
			for _, i := range all {
				if i.State == "RUNNING" {
					out = append(out, i)
				}
			}
		}
		return out
	}
	settled := func() {
		await.That(t, "39 running, and every node accounted for", func() string {
			for _, id := range []string{"node-1", "node-2", "node-3"} {
				if problem := accounts(t, admin, id); problem != "" {
					return problem
				}
			}
			n := len(running())
			return await.Unless(n == 39, "%d run", n)
		})
	}
	settled()
	// Crashes, stops and starts must leave the accounting exact.
	for n, i := range running() {
		switch n % 6 {
		case 0:
			_ = syscall.Kill(i.PID, syscall.SIGKILL)
		case 1:
			admin.Do("POST", "/api/v1/services/"+i.UID+"/stop", nil).OK(200)
			stopped[i.UID] = true
		case 2:
			admin.Do("POST", "/api/v1/services/"+i.UID+"/restart", nil).OK(200)
		}
	}
	settled()
}
