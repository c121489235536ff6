package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
)

// invite creates a join token.
func invite(t *testing.T, admin *cluster.Client, node string) string {
	t.Helper()
	var made struct{ Token, Warning string }
	admin.Do("POST", "/api/v1/admin/tokens", map[string]any{"nodeId": node}).OK(201, &made)
	if made.Warning != "" {
		t.Fatal(made.Warning)
	}
	return made.Token
}

// joinWith runs nodeagent join and returns what it said.
func joinWith(t *testing.T, dir, token string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(cluster.Bounded(t), cluster.Program(t, "./nodeagent/cmd/nodeagent"), "join", "-dir", dir, "-")
	cmd.Stdin = strings.NewReader(token + "\n")
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// flags are the settings in a file of nodeagent join, as flags.
func flags(t *testing.T, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		name = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "ORRERY_")), "_", "-")
		all = append(all, "--"+name, value)
	}
	return all
}

// startGuest runs the agent of a host that has joined as the node guest until the test ends. dir has the files of
// the join.
func startGuest(t *testing.T, dir, data string) *site.Process {
	t.Helper()
	args := append(flags(t, filepath.Join(dir, "join.env")), "--data", data, "--listen", "127.0.0.1:0", "--labels", "host=guest", "--stop-instances", "--log-level", "debug")
	for _, arg := range args {
		if strings.Contains(arg, "secret") {
			t.Errorf("the joined host gets %s", arg)
		}
	}
	agent := site.NewProcess("guest", cluster.Program(t, "./nodeagent/cmd/nodeagent"), data+".log", args...)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := agent.Log()
			t.Logf("---- guest\n%s", log)
		}
	})
	return agent
}

func TestAHostJoinsWithATokenAndIsShutOutByItsRevocation(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Joinable: true})
	admin := cluster.Login(t, c)
	token := invite(t, admin, "guest")
	dir, data := filepath.Join(t.TempDir(), "etc"), filepath.Join(t.TempDir(), "guest")
	if said, err := joinWith(t, dir, token); err != nil || strings.Contains(said, token) {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := joinWith(t, filepath.Join(t.TempDir(), "thief"), token); err == nil || !strings.Contains(said, "was used at") {
		t.Errorf("a second host with the token: %v: %s", err, said)
	}
	agent := startGuest(t, dir, data)

	// The instance gets a stored secret and a sealed value, although the node has no cluster secret.
	admin.Do("PUT", "/api/v1/secrets/db", map[string]any{"value": "stored-value"}).OK(201)
	admin.Do("POST", "/api/v1/templates", map[string]any{"name": "guests"}).OK(201)
	admin.Do("PUT", "/api/v1/templates/guests/files/content?path=values.properties", map[string]any{"content": "db=%DB%\nsealed=%SEALED%\n"}).OK(200)
	admin.Do("PUT", "/api/v1/templates/guests/variables", []map[string]any{{"key": "DB", "type": "SECRET"}, {"key": "SEALED", "type": "SECRET"}}).OK(200)
	group := catGroup("guests", map[string]any{
		"fileModifications": []string{"values.properties"}, "minInstances": 1, "templates": []string{"guests"},
		"nodeAffinity": []string{"host=guest"}, "variableValues": map[string]string{"DB": "secret:db", "SEALED": "sealed-value"},
	})
	createGroup(t, admin, group)
	instance := admin.AwaitRunning("guests", 1)[0]
	values, err := os.ReadFile(filepath.Join(data, "running", instance.UID, "values.properties"))
	if err != nil || string(values) != "db=stored-value\nsealed=sealed-value\n" {
		t.Errorf("the file with the secrets is %q, %v", values, err)
	}
	relay, err := os.ReadFile(filepath.Join(data, "relay"))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the relay in the environment of the instance", func() string { // it is that of a launcher at first
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", instance.PID))
		return await.Unless(strings.Contains("\x00"+string(env), "\x00CLOUD_CONTROLLER_URL=http://"+string(relay)+"\x00"), "%q, %v", env, err)
	})
	if reply, err := http.Get("http://" + string(relay) + "/livez"); err != nil || reply.StatusCode != http.StatusOK {
		t.Errorf("the relay does not reach a gateway: %v", err)
	}

	admin.Do("POST", "/api/v1/nodes/guest/revoke-cert", nil).OK(200)
	await.That(t, "the revoked node to be offline", func() string {
		var node struct{ Type string }
		admin.Do("GET", "/api/v1/nodes/guest", nil).OK(200, &node)
		return await.Unless(node.Type == "DISCONNECTED", "%s", node.Type)
	})
	log, err := agent.Log()
	if err != nil || !strings.Contains(string(log), "node guest is revoked") {
		t.Errorf("the agent does not say that it is revoked: %v", err)
	}
	if said, err := joinWith(t, filepath.Join(t.TempDir(), "again"), token); err == nil || !strings.Contains(said, "revoked") {
		t.Errorf("the revoked host joins again: %v: %s", err, said)
	}
}

// An exclusive instance ends before its node's session can expire. The session must not depend on gateways.
func TestAnExclusiveInstanceOutlivesAllGateways(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	gateway := cluster.Service(c, "apigateway-1")
	if gateway == nil {
		return // all services run in one process
	}
	createGroup(t, admin, catGroup("world", map[string]any{"static": true, "onNodeLoss": "replace", "minInstances": 1}))
	before := admin.AwaitRunning("world", 1)[0]
	gateway.Kill()
	down := time.Now()
	await.That(t, "twice the TTL of a session without a gateway", func() string {
		if err := syscall.Kill(before.PID, 0); err != nil {
			t.Fatalf("the instance ended %v after the gateway: %v", time.Since(down), err)
		}
		return await.Unless(time.Since(down) > 2*store.DefaultTTL, "%v", time.Since(down))
	})
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the gateway", func() string {
		reply, err := cluster.Anonymous(t, c).Try(cluster.Bounded(t), "GET", "/readyz", nil)
		return await.Unless(err == nil && reply.Status == 200, "%v", err)
	})
	if after := cluster.Login(t, c).AwaitRunning("world", 1)[0]; after.PID != before.PID || after.Generation != before.Generation {
		t.Errorf("it was %+v, is %+v", before, after)
	}
}

// The connections of an agent end with the certificate that they began with. Its session and its watches must
// not.
func TestANodeStaysWhileItsCertificatesExpire(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	if cluster.Service(c, "apigateway-1") == nil {
		return // all services run in one process
	}
	admin := cluster.Login(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	cluster.AddGateway(t, c, admin, "brief", "--nodes-listen", at, "--nodes-authority", filepath.Join(c.DataDir(), "pki", "nodes.pem"), "--nodes-certificate-life", "1m")
	token, err := enroll.ParseToken(invite(t, admin, "guest"))
	if err != nil {
		t.Fatal(err)
	}
	token.Gateways = []string{"https://" + at}
	dir, data := filepath.Join(t.TempDir(), "etc"), filepath.Join(t.TempDir(), "guest")
	if said, err := joinWith(t, dir, token.String()); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	agent := startGuest(t, dir, data)
	createGroup(t, admin, catGroup("guests", map[string]any{"minInstances": 1, "nodeAffinity": []string{"host=guest"}}))
	before := admin.AwaitRunning("guests", 1)[0]
	trust := filepath.Join(dir, "trust.pem")
	first := bundleIn(t, trust)
	await.That(t, "the end of the first certificate", func() string {
		return await.Unless(time.Now().After(first.NotAfter()), "valid until %v", first.NotAfter())
	})
	if now := bundleIn(t, trust); !now.NotAfter().After(first.NotAfter()) {
		t.Errorf("the certificate is not renewed: valid until %v", now.NotAfter())
	}
	// A start and a stop go both ways through the new connections.
	admin.Do("POST", "/api/v1/groups/guests/start", map[string]int{"count": 1}).OK(200)
	if running := admin.AwaitRunning("guests", 2); !slices.ContainsFunc(running, func(i cluster.Instance) bool { return i.PID == before.PID }) {
		t.Errorf("the first instance is gone: %+v", running)
	}
	log, err := agent.Log()
	if err != nil || strings.Contains(string(log), "session lost") {
		t.Errorf("the session was lost: %v", err)
	}
}

func bundleIn(t *testing.T, path string) *pki.Bundle {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
