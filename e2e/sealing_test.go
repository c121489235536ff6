package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// TestTheSealingKeyIsReplacedWhileInstancesStart covers agents that ask gateways for secrets, and agents with the
// cluster secret, which open them.
func TestTheSealingKeyIsReplacedWhileInstancesStart(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]cluster.Options{"agents that ask": {}, "agents with the key": {Plain: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rotateWhileStarting(t, cluster.Start(t, o))
		})
	}
}

func rotateWhileStarting(t *testing.T, c cluster.Local) {
	admin := cluster.Login(t, c)
	admin.Do("PUT", "/api/v1/secrets/db", map[string]any{"value": "stored-value"}).OK(201)
	admin.Do("POST", "/api/v1/templates", map[string]any{"name": "vault"}).OK(201)
	admin.Do("PUT", "/api/v1/templates/vault/files/content?path=values.properties", map[string]any{"content": "db=%DB%\nsealed=%SEALED%\n"}).OK(200)
	admin.Do("PUT", "/api/v1/templates/vault/variables", []map[string]any{{"key": "DB", "type": "SECRET"}, {"key": "SEALED", "type": "SECRET"}}).OK(200)
	createGroup(t, admin, catGroup("vault", map[string]any{
		"fileModifications": []string{"values.properties"}, "minInstances": 2, "maxInstances": 60, "templates": []string{"vault"},
		"variableValues": map[string]string{"DB": "secret:db", "SEALED": "sealed-value"},
	}))
	before := admin.AwaitRunning("vault", 2)

	const starts, mostRotations = 12, 100
	var others sync.WaitGroup
	var started atomic.Bool
	rotations, written := 0, 0
	others.Go(func() {
		for ; rotations < 3 || rotations < mostRotations && !started.Load(); rotations++ {
			retried(t, admin, "POST", "/api/v1/system/sealing-key/rotate", nil)
		}
	})
	others.Go(func() {
		for ; written < 3 || !started.Load(); written++ {
			retried(t, admin, "PUT", "/api/v1/secrets/busy", map[string]any{"value": fmt.Sprint(written)})
			retried(t, admin, "PUT", "/api/v1/secrets/db", map[string]any{"value": "stored-value", "values": map[string]string{"n": fmt.Sprint(written)}})
		}
	})
	for n := range starts {
		retried(t, admin, "POST", "/api/v1/groups/vault/start", map[string]int{"count": 1})
		admin.AwaitRunning("vault", len(before)+n+1)
	}
	started.Store(true)
	others.Wait()
	t.Logf("%d starts and %d writes during %d rotations", starts, 2*written, rotations)

	for _, i := range admin.AwaitRunning("vault", len(before)+starts) {
		values, err := os.ReadFile(fmt.Sprintf("/proc/%d/cwd/values.properties", i.PID))
		if err != nil || string(values) != "db=stored-value\nsealed=sealed-value\n" {
			t.Errorf("%s: the file with the secrets is %q, %v", i.ID, values, err)
		}
	}
	for _, i := range before {
		if err := syscall.Kill(i.PID, 0); err != nil {
			t.Errorf("%s with pid %d ended: %v", i.ID, i.PID, err)
		}
	}
	var key struct {
		Current  string
		Rotating bool
		Versions []struct {
			ID      string
			Retired bool
		}
	}
	admin.Do("GET", "/api/v1/system/sealing-key", nil).OK(200, &key)
	if len(key.Versions) != rotations+1 || key.Rotating {
		t.Errorf("%+v", key)
	}
	for _, v := range key.Versions {
		if v.Retired == (v.ID == key.Current) {
			t.Errorf("version %s of %+v", v.ID, key)
		}
	}
}

// retried makes a request, again after a conflict, as clients do.
func retried(t *testing.T, c *cluster.Client, method, path string, body any) {
	t.Helper()
	for range 50 {
		reply, err := c.Try(cluster.Bounded(t), method, path, body)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return
		}
		switch reply.Status {
		case http.StatusOK, http.StatusCreated:
			return
		case http.StatusConflict:
		default:
			t.Errorf("%s %s: %d %s", method, path, reply.Status, reply.Body)
			return
		}
	}
	t.Errorf("%s %s: only conflicts", method, path)
}
