package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStopInstancesParses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want stopMode
	}{
		{nil, stopAuto},
		{[]string{"-stop-instances=auto"}, stopAuto},
		{[]string{"-stop-instances"}, stopAlways},
		{[]string{"-stop-instances=true"}, stopAlways},
		{[]string{"-stop-instances=1"}, stopAlways},
		{[]string{"-stop-instances=false"}, stopNever},
		{[]string{"--stop-instances=f"}, stopNever},
	} {
		var out bytes.Buffer
		_, f, err := parse(c.args, &out, &out)
		if err != nil || f.stop != c.want {
			t.Errorf("%q: %q, %v; want %q", c.args, f.stop, err, c.want)
		}
	}
}

func TestWhenInstancesOutliveTheProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		mode    stopMode
		service bool
		host    string
		keep    bool
	}{
		{"auto: a service on a host that stays up", stopAuto, true, "running", true},
		{"auto: a service on a host with failed units", stopAuto, true, "degraded", true},
		{"auto: a service stopped during the start of the host", stopAuto, true, "starting", true},
		{"auto: a service on a host that shuts down", stopAuto, true, "stopping", false},
		{"auto: a service whose systemd does not answer", stopAuto, true, "", true},
		{"auto: a program of a terminal", stopAuto, false, "", false},
		{"true: a service", stopAlways, true, "running", false},
		{"false: a service on a host that shuts down", stopNever, true, "stopping", true},
		{"false: a program of a terminal", stopNever, false, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if keep, why := c.mode.keeps(c.service, c.host); keep != c.keep || why == "" {
				t.Errorf("keep %v because %q, want %v", keep, why, c.keep)
			}
		})
	}
}

func TestOnlyTheMainProcessOfAServiceIsOne(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": false, "41": false, "42": true, "042": false} {
		if got := ownService(func(string) string { return value }, 42); got != want {
			t.Errorf("SYSTEMD_EXEC_PID=%q in process 42: %v, want %v", value, got, want)
		}
	}
}

// asService makes cmd look like the main process of a systemd service, on a host in the
// given state.
func asService(t *testing.T, cmd *exec.Cmd, host string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\necho " + host + "\n[ " + host + " = running ]\n"
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"sh", "-c", `SYSTEMD_EXEC_PID=$$ exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
}

func TestARestartedServiceKeepsItsInstances(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := launch(t, data, []string{"-demo"}, func(cmd *exec.Cmd) { asService(t, cmd, "degraded") }).login()
	before := p.running(3)
	if want := "systemctl restart and stop end Orrery only"; !strings.Contains(p.stdout.String(), want) {
		t.Errorf("printed %q, want %q in it", &p.stdout, want)
	}
	p.stop()
	if got := len(processes(t, data)); got < 3 {
		t.Fatalf("%d processes run on after SIGTERM of a service, want three servers", got)
	}

	p = launch(t, data, nil, func(cmd *exec.Cmd) { asService(t, cmd, "stopping") }).login()
	if diff := cmp.Diff(before, p.running(3)); diff != "" {
		t.Errorf("adopted instances (-before +after)\n%s", diff)
	}
	p.stop()
	if left := processes(t, data); len(left) > 0 {
		t.Errorf("processes %v are left of a service on a host that shuts down", left)
	}
	if want := "the host shuts down"; !strings.Contains(p.stderr.String(), want) {
		t.Errorf("logged %q, want %q in it", &p.stderr, want)
	}
}
