package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

// shell returns a process that runs a script. It is killed when the test ends.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := &Process{Name: "shell-1", binary: "/bin/sh", args: []string{"-c", script}, log: filepath.Join(t.TempDir(), "log")}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// said returns the process's output so far.
func (p *Process) said() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// up waits for the line that every script prints first.
func (p *Process) up(t *testing.T) {
	t.Helper()
	await.That(t, "the start", func() string { return await.Unless(strings.Contains(p.said(), "up"), "%q", p.said()) })
}

func TestAnEndThatWasAskedForIsNoNews(t *testing.T) {
	p := shell(t, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
	p.up(t)
	p.Pause()
	if err := p.Stop(); err != nil || !strings.Contains(p.said(), "bye") {
		t.Errorf("a stop of a paused process: %v", err)
	}
	if p.Running() || p.PID() != 0 {
		t.Error("it runs though it was stopped")
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err == nil {
		t.Error("it was started twice")
	}
	p.Kill()
	if p.Running() || len(p.Ended()) > 0 {
		t.Errorf("runs %v, ended %q", p.Running(), p.Ended())
	}
	p.Kill() // has no effect on a stopped process
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAnEndNobodyAskedForIsNoted(t *testing.T) {
	p := shell(t, "exit 3")
	await.That(t, "the end", func() string { return await.Unless(!p.Running(), "process %d runs", p.PID()) })
	if ends := p.Ended(); len(ends) != 1 || !strings.Contains(ends[0], "exit status 3") {
		t.Errorf("ended %q", ends)
	}
}

func TestABadEndIsAnErrorOfTheStop(t *testing.T) {
	p := shell(t, "trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done")
	p.up(t)
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("err = %v", err)
	}
}

func TestNamespacesHaveTheSamePorts(t *testing.T) {
	if !NamespacesAllowed() {
		t.Log("no namespaces can be made here")
		return
	}
	for range 2 {
		n, err := NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		l, err := n.Listen("127.0.0.1:7070")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := n.Dial(t.Context(), "127.0.0.1:7070")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		inside := &Process{Name: "inside-1", binary: "/bin/sleep", args: []string{"1000"}, log: filepath.Join(t.TempDir(), "log"), namespace: n}
		if err := inside.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(inside.Kill)
		if got := n.Processes(); len(got) != 1 || got[0] != inside.PID() {
			t.Errorf("processes %v, want %d", got, inside.PID())
		}
	}
}

func TestNoProcessOfANodeSurvivesAPowerCut(t *testing.T) {
	if !NamespacesAllowed() {
		t.Log("no namespaces can be made here")
		return
	}
	space, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	// Each process starts the next one, also while others are killed.
	script := filepath.Join(t.TempDir(), "chain")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ $1 = 0 ] || $0 $(($1 - 1)) &\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	agent := &Process{Name: "node-1", binary: script, args: []string{"200"}, log: filepath.Join(t.TempDir(), "log"), namespace: space}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	n := &Node{Process: agent, ID: "node-1", Space: space}
	await.That(t, "instances", func() string { return await.Unless(len(n.Instances()) > 0, "there are none") })
	n.PowerCut()
	if left := n.Instances(); len(left) > 0 {
		t.Errorf("%d processes survived", len(left))
		n.KillInstances()
	}
}
