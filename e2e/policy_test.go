package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestAGroupWaitsForTheSettingOfTheAgentThatAdmitsItsUser(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), "agent.yaml")
	admit := func(users string) {
		if err := os.WriteFile(settings, []byte("policy:\n  users: ["+users+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil { // the user passes it to the instance's directory
		t.Fatal(err)
	}
	admit("games")
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	two := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2", Flags: []string{"--config", settings}})
	users := func() []string {
		var node struct{ Policy struct{ Users []string } }
		admin.Do("GET", "/api/v1/nodes/node-2", nil).OK(200, &node)
		return node.Policy.Users
	}
	if shown := users(); !slices.Contains(shown, "games") || slices.Contains(shown, "nobody") {
		t.Errorf("the node shows the users %v", shown)
	}

	createGroup(t, admin, catGroup("boxed", fields{"minInstances": 1, "nodes": []string{"node-2"}, "confine": fields{"user": "nobody"}}))
	p := &pair{t: t, admin: admin, c: c, two: two}
	waiting := p.waits("boxed")
	for name, see := range views(admin) {
		await.That(t, "the reason in the "+name, func() string {
			s := see(waiting.UID)
			return await.Unless(s.Reason == "NodePolicy" && strings.Contains(s.Message, "by policy (policy.users of node-2 does not admit nobody: add nobody to this setting"), "%+v", s)
		})
	}

	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	admit("games, nobody")
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	two.AwaitOnline(admin)
	await.That(t, "its placement", func() string {
		i := admin.Instance(waiting.UID)
		return await.Unless(i.Node == "node-2", "%+v", i)
	})
	if os.Geteuid() == 0 { // no other agent runs instances as others
		admin.AwaitRunning("boxed", 1)
	}
}
