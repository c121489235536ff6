package nodeagent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent"
)

func TestNodeVariablesOverrideProvidedValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"mesh":   "echo MESH_IP=100.64.0.1; echo REGION=of the program; echo NODE_ID=other; echo MINE=of the program",
		"broken": "exit 1",
	} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(at, []byte("#!/bin/sh\n"+script+"\n"), 0o600), os.Chmod(at, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	s.start(func(c *nodeagent.Config) { taking(c); c.ProvidersDir, c.ProvidersTimeout = dir, time.Minute })
	plan := basic("read line")
	plan.Layers = []fleet.PlanLayer{s.library.add("lobby", map[string]string{"a.txt": "%MESH_IP% %REGION% %NODE_ID% %MINE%"})}
	plan.FileModifications, plan.HostAddress = []string{"*.txt"}, "%MESH_IP%"
	plan.Variables = map[string]string{"MINE": "of the group"}
	id := s.id(1)
	st := s.online(id, plan)
	if got, want := s.running(id, "a.txt"), "100.64.0.1 north node-1 of the group"; got != want {
		t.Errorf("the file is %q, want %q", got, want)
	}
	if st.HostAddress != "100.64.0.1" {
		t.Errorf("it is advertised under %q", st.HostAddress)
	}
	if !strings.Contains(st.Message, "variable provider broken failed") {
		t.Errorf("it says %q", st.Message)
	}
}
