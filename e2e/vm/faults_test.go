package vm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
	"github.com/orreryhq/orrery/libs/await"
)

// writer is a server that increments a counter. It writes each value to a new file, syncs
// it and renames it over the old one.
const writer = `n=$(cat world 2>/dev/null || echo 0)
while :; do n=$((n+1)); echo $n >world.new; sync world.new; mv world.new world; sync .; done`

// worlds creates a static group of one such server.
func (a *api) worlds() {
	a.t.Helper()
	a.do("POST", "/api/v1/groups", map[string]any{
		"name": "world", "static": true, "command": writer, "minInstances": 1, "maxInstances": 1, "memoryMb": 32, "stopCommand": "",
	}, nil)
}

// counted returns the counter from the running server's directory. A gateway that has just
// booted may still show the previous process.
func (a *api) counted() int {
	a.t.Helper()
	var n int
	a.m.Await("a world", func() string {
		i := only(a.running("world", 1))
		text, err := a.m.Try(fmt.Sprintf("cat /proc/%d/cwd/world", i.PID))
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(text))
		}
		if err != nil {
			return fmt.Sprintf("%+v: %v", i, err)
		}
		return ""
	})
	return n
}

// none waits until only records of ended instances are left in a group.
func (a *api) none(group string) {
	a.t.Helper()
	a.running(group, 0)
}

func TestAPowerCutWhileAWorldIsWritten(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: standalonePayload(t)})
	a := install(t, m, "-demo")
	a.worlds()
	was := only(a.running("world", 1))
	for cut := range 3 {
		least := a.counted()
		switch cut {
		case 1: // while another group starts
			a.do("POST", "/api/v1/groups", map[string]any{"name": "fresh", "templates": []string{"demo/arena"}, "fileModifications": []string{"server.properties"}, "command": "cat", "minInstances": 5, "maxInstances": 5, "memoryMb": 16, "stopCommand": ""}, nil)
		case 2: // while it stops
			a.do("DELETE", "/api/v1/groups/fresh", nil, nil)
		}
		m.Cut()
		m.Boot()
		a = signIn(t, m, standaloneURL, standalonePassword)
		got, now := a.counted(), only(a.running("world", 1))
		if got < least {
			t.Errorf("after cut %d the world counts %d, and had %d on the disk before", cut, got, least)
		}
		if now.UID != was.UID || now.ID != was.ID {
			t.Errorf("after cut %d the world belongs to %+v, before to %+v", cut, now, was)
		}
		a.whole("arena", 3)
		if cut == 1 {
			a.whole("fresh", 5)
		}
		was = now
	}
	a.none("fresh")
}

// stored checks standalone's files: each blob matches its hash, none is quarantined as
// corrupt, and each entry of the agent's journal is complete.
const stored = `set -e; cd /var/lib/orrery/standalone
for d in blobs node/blobs; do (cd $d && ls -d ??/* | awk -F/ '{print $2 "  " $0}' | sha256sum -c --quiet); done
[ -z "$(ls blobs/corrupt)" ]
for f in node/journal/*.json; do [ "$(tail -c 2 $f)" = "}" ] || { echo "$f is cut off"; exit 1; }; done`

// whole waits until n instances of a group with the demo's template run with complete
// files. A gateway that has just booted may still show the previous processes.
func (a *api) whole(group string, n int) {
	a.t.Helper()
	a.m.Await("whole files of "+group, func() string {
		script := stored
		for _, i := range a.running(group, n) {
			script += fmt.Sprintf("\ncmp templates/demo/arena/README.txt /proc/%d/cwd/README.txt", i.PID)
		}
		_, err := a.m.Try(script)
		return await.Unless(err == nil, "%v", err)
	})
}

func TestTheWallClockStepsByHours(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: standalonePayload(t)})
	a := install(t, m, "-demo")
	a.worlds()
	arena, world := a.running("arena", 3), a.running("world", 1)
	for _, step := range []string{"+7 hours", "-12 hours", "+5 hours"} {
		t.Log(step)
		m.Run("date -s '" + step + "'")
		a.same("arena", arena)
		a.same("world", world)
		// A new group is created, started and stopped under the new time.
		a.do("POST", "/api/v1/groups", map[string]any{"name": "later", "command": "cat", "minInstances": 2, "maxInstances": 2, "memoryMb": 16, "stopCommand": ""}, nil)
		a.running("later", 2)
		m.Run("kill -9 " + fmt.Sprint(only(a.running("later", 2)).PID))
		a.running("later", 2)
		a.do("DELETE", "/api/v1/groups/later", nil, nil)
		a.none("later")
		m.Run("systemctl restart orrery-standalone")
		a = signIn(t, m, standaloneURL, standalonePassword)
		a.same("arena", arena)
		a.same("world", world)
	}
}

func TestASlowDiskEndsNoInstance(t *testing.T) {
	m := vm.Start(t, vm.Options{Payload: standalonePayload(t)})
	a := install(t, m, "-demo")
	a.worlds()
	arena, world := a.running("arena", 3), a.running("world", 1)
	m.SlowDisk(slowDisk)
	least := a.counted()
	m.Await("the world counting on", func() string {
		got := a.counted()
		return await.Unless(got > least+50, "%d after %d", got, least)
	})
	a.do("POST", "/api/v1/groups", map[string]any{"name": "later", "command": "cat", "minInstances": 2, "maxInstances": 2, "memoryMb": 16, "stopCommand": ""}, nil)
	a.running("later", 2)
	m.Run("systemctl restart orrery-standalone")
	a = signIn(t, m, standaloneURL, standalonePassword)
	a.same("arena", arena)
	a.same("world", world)
}
