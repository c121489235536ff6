package process

import (
	"slices"
	"testing"
)

func TestSessionsIn(t *testing.T) {
	text := "There are screens on:\n\t12345.lobby\t(11/28/26 09:00:00)\t(Detached)\n\t12346.My.Survival\t(Attached)\n\t12347.gone\t(Dead ???)\n3 Sockets in /run/screen/S-me.\n"
	want := []session{{12345, "lobby"}, {12346, "My.Survival"}}
	if got := sessionsIn(text); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := sessionsIn("No Sockets found in /run/screen/S-me.\n"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestServerBelow(t *testing.T) {
	one := func(pid int, mib int, args ...string) Process { return Process{PID: pid, Args: args, PeakMiB: mib} }
	for _, c := range []struct {
		name string
		all  map[int][]Process
		want int // 0: none
	}{
		{"the server below a shell and its script", map[int][]Process{1: {one(2, 1, "-bash")}, 2: {one(3, 1, "bash", "start.sh")}, 3: {one(4, 900, "java")}, 4: {one(5, 1, "helper")}}, 4},
		{"the largest of several windows", map[int][]Process{1: {one(2, 10, "top"), one(3, 900, "java")}}, 3},
		{"a script that is the server", map[int][]Process{1: {one(2, 1, "bash", "server.sh")}}, 2},
		{"a shell that waits for a user", map[int][]Process{1: {one(2, 1, "-bash")}}, 0},
		{"nothing", map[int][]Process{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, _, ok := ServerBelow(c.all, 1)
			if ok != (c.want > 0) || ok && server.PID != c.want {
				t.Errorf("got %+v, %v, want %d", server, ok, c.want)
			}
		})
	}
}

func FuzzTables(f *testing.F) {
	f.Add("\t12345.lobby\t(Detached)\n", "  sl  local_address\n   0: 0100007F:63DD 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1\n")
	f.Fuzz(func(t *testing.T, sessions, table string) {
		sessionsIn(sessions)
		for _, port := range portsOf([]byte(table), "0A", map[string]bool{"77": true}) {
			if port < 0 || port > 65535 {
				t.Errorf("got the port %d", port)
			}
		}
	})
}
