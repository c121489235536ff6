package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

type universeInstance struct {
	ID                string `json:"id"`
	ConfigurationName string `json:"configurationName"`
	WrapperNodeID     string `json:"wrapperNodeId"`
	State             string `json:"state"`
	AllocatedPort     int    `json:"allocatedPort"`
	ProcessPID        *int   `json:"processPid"`
	AllocatedRAMMB    int    `json:"allocatedRamMB"`
}

func TestAConfigurationOfTheOlderDialectRunsWithItsTemplates(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{CPU: 10000, MemoryMiB: 20000})
	admin := cluster.Login(t, c)
	cluster.WriteTemplate(t, c, "layers/base", map[string]string{"a.txt": "base", "only-base.txt": "base", "plain.txt": "%PORT%", "bin.dat": "\x00\xff\x01"})
	cluster.WriteTemplate(t, c, "layers/top", map[string]string{"a.txt": "top %PORT% %INSTANCE_ID% %INSTANCE_GROUPS% %colour% %NOPE%"})
	cluster.WriteTemplate(t, c, "extras/one", map[string]string{"extra-one.txt": "1"})
	cluster.WriteTemplate(t, c, "extras/two", map[string]string{"extra-two.txt": "2"})
	await.That(t, "all four templates picked up", func() string {
		var list []struct{ Name string }
		r := admin.Do("GET", "/api/templates", nil).OK(200, &list)
		if len(list) == 4 {
			return ""
		}
		return string(r.Body)
	})
	configuration := map[string]any{
		"name": "older", "command": "echo started on %PORT%; exec cat", "ramMB": 64, "cpu": 10, "shutdownGraceSeconds": 1,
		"instanceGroups": []string{"a", "b"}, "availablePorts": map[string]int{"min": 22000, "max": 22010},
		"minimumServiceCount": 0, "properties": map[string]string{"colour": "red"},
		"fileModifications": []string{"a.txt"},
		"templateInstallationConfig": map[string]any{
			"allOf": []map[string]any{
				{"name": "top", "group": "layers", "storage": "local", "priority": 10},
				{"name": "base", "group": "layers", "storage": "local", "priority": 1},
			},
			"allInGroups": []string{"extras"},
		},
	}
	await.That(t, "the configuration accepted", func() string {
		r := admin.Do("PUT", "/api/configurations/older", configuration)
		if r.Status == 204 {
			return ""
		}
		return string(r.Body)
	})
	var made universeInstance
	admin.Do("POST", "/api/instances", map[string]string{"configurationName": "older"}).OK(201, &made)
	if made.State != "CREATING" || made.ID == "" {
		t.Errorf("created %+v", made)
	}
	until := func(id, state string) (i universeInstance) {
		await.That(t, id+" "+state, func() string {
			r := admin.Do("GET", "/api/instances/"+id, nil).OK(200, &i)
			if i.State == state {
				return ""
			}
			return string(r.Body)
		})
		return i
	}
	online := until(made.ID, "ONLINE")
	if online.AllocatedPort != 22000 || online.ProcessPID == nil || online.WrapperNodeID != "node-1" || online.AllocatedRAMMB != 64 {
		t.Errorf("online %+v", online)
	}
	files := map[string]string{
		"a.txt":         "top 22000 " + made.ID + " a;b red %NOPE%",
		"only-base.txt": "base", "plain.txt": "%PORT%", "bin.dat": "\x00\xff\x01", "extra-one.txt": "1", "extra-two.txt": "2",
	}
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(*online.ProcessPID), "cwd"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(cwd, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}

	admin.Do("POST", "/api/instances/"+made.ID+"/execute", map[string]string{"command": "first"}).OK(200)
	admin.Do("POST", "/api/instances/"+made.ID+"/execute", map[string]string{"command": "second"}).OK(200)
	await.That(t, "the last two lines", func() string {
		var logs struct{ Lines []string }
		r := admin.Do("GET", "/api/instances/"+made.ID+"/logs?lines=2", nil).OK(200, &logs)
		if strings.Join(logs.Lines, "|") == "first|second" {
			return ""
		}
		return string(r.Body)
	})

	var restarted struct{ Instance universeInstance }
	admin.Do("PATCH", "/api/instances/"+made.ID+"/lifecycle?target=restart", nil).OK(200, &restarted)
	await.That(t, "the same instance with another process", func() string {
		var i universeInstance
		r := admin.Do("GET", "/api/instances/"+made.ID, nil).OK(200, &i)
		if i.State == "ONLINE" && i.ProcessPID != nil && *i.ProcessPID != *online.ProcessPID {
			return ""
		}
		return string(r.Body)
	})
	if proctest.Lives(*online.ProcessPID) {
		t.Error("the old process is still there")
	}
	admin.Do("DELETE", "/api/instances/"+made.ID, nil).OK(200)
	until(made.ID, "STOPPED")
	admin.Do("DELETE", "/api/instances/"+made.ID, nil).OK(200)
	if left := carriers(t, made.ID); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	admin.Do("PATCH", "/api/instances/"+made.ID+"/lifecycle?target=start", nil).OK(200)
	again := until(made.ID, "ONLINE")
	if err := syscall.Kill(*again.ProcessPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(made.ID, "OFFLINE")
}

func TestAMinimumOfTheOlderDialectIsKept(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{CPU: 10000, MemoryMiB: 20000})
	admin := cluster.Login(t, c)
	admin.Do("PUT", "/api/configurations/kept", map[string]any{
		"command": "sleep 600", "minimumServiceCount": 3, "shutdownGraceSeconds": 0, "availablePorts": map[string]int{"min": 22100, "max": 22110},
	}).OK(204)
	admin.AwaitRunning("kept", 3) // the same group in the other dialect
	admin.Do("DELETE", "/api/configurations/kept", nil).OK(204)
	admin.Do("GET", "/api/configurations/kept", nil).OK(404)
	admin.Do("DELETE", "/api/configurations/kept", nil).OK(404)
}
