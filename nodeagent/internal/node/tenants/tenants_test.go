package tenants

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestMalformedRangeNamesTheSetting(t *testing.T) {
	for _, text := range []string{"", "-", "1900000000", "1900000000-", "-5", "a-b", "1900000000-1900000001-2", "1900000000 - 1900000001", "0-65535", "999-2000", "1900000001-1900000000", "1900000000-1900000000", "1900000000-2147483647", "1900000000-99999999999999999999"} {
		if s, err := Parse(text); errs.FieldOf(err) != Setting || !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{Default, "1000-1001", "2147483645-2147483646"} {
		if s, err := Parse(text); err != nil || s.String() != text {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func TestOverlapNamesFileAndUser(t *testing.T) {
	s := Span{1900000000, 1900000099}
	for _, c := range []struct{ rule, file, text, says string }{
		{"the files of a host", "passwd", "root:x:0:0:root:/root:/bin/sh\n\n+::::::\nnobody:x:65534:65534::/:/bin/false\n", ""},
		{"a user", "passwd", "root:x:0:0::/:/bin/sh\nalice:x:1900000099:100::/:/bin/sh\n", "alice in /etc/passwd"},
		{"a user beside it", "passwd", "alice:x:1900000100:100::/:/bin/sh\nbob:x:1899999999:100::/:/bin/sh\n", ""},
		{"a group", "group", "games:x:1900000000:\n", "games in /etc/group"},
		{"user ids of containers", "subuid", "carol:1899990000:65536\n", "carol in /etc/subuid, who has 1899990000-1900055535"},
		{"user ids of containers beside it", "subuid", "carol:1899934464:65536\ncarol:1900000100:65536\n", ""},
		{"group ids of containers", "subgid", "1000:1900000099:1\n", "1000 in /etc/subgid"},
	} {
		err := s.Check(fstest.MapFS{c.file: {Data: []byte(c.text)}})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.rule, err)
		case c.says != "" && (errs.FieldOf(err) != Setting || !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), c.says)):
			t.Errorf("%s: %v, want %q", c.rule, err, c.says)
		}
	}
}

func TestRangeOutsideTheUserNamespaceIsRefused(t *testing.T) {
	whole, part := "         0          0 4294967295\n", "0 100000 65536\n"
	s := Span{1900000000, 1900000099}
	for _, c := range []struct {
		users, groups string
		ok            bool
	}{{whole, whole, true}, {part, whole, false}, {whole, part, false}, {"0 0 1\n1900000000 5 100\n", whole, true}, {"1900000000 5 99\n", whole, false}} {
		err := s.CheckMapped(fstest.MapFS{"self/uid_map": {Data: []byte(c.users)}, "self/gid_map": {Data: []byte(c.groups)}})
		if (err == nil) != c.ok || err != nil && errs.FieldOf(err) != Setting {
			t.Errorf("%q, %q: %v", c.users, c.groups, err)
		}
	}
}

func nothing() map[int]bool { return map[int]bool{} }

func TestStaticGroupsAndInstancesNeverShareIDs(t *testing.T) {
	s := Span{2000, 2006}
	var static []int
	for number := 1; ; number++ {
		uid, ok := s.Static(number)
		if !ok {
			break
		}
		static = append(static, uid)
	}
	if _, ok := s.Static(0); ok {
		t.Error("0 is a number")
	}
	n, taken := New(s, nil, nothing), map[int]bool{}
	for _, id := range []fleet.InstanceID{"a", "b", "c", "d"} {
		uid, _ := n.take(id)
		if uid == 0 || taken[uid] || s.IsStatic(uid) || !s.Holds(uid) {
			t.Errorf("%s has %d", id, uid)
		}
		taken[uid] = true
	}
	if len(static)+len(taken) != 7 {
		t.Errorf("static %v, others %v", static, taken)
	}
	if uid, _ := n.take("e"); uid != 0 {
		t.Errorf("one too many: %d", uid)
	}
}

func TestAnIDIsKeptAndUsedAgainOnlyWithoutFiles(t *testing.T) {
	s, left := Span{2000, 2003}, map[int]bool{}
	n := New(s, map[fleet.InstanceID]int{"a": 2002, "static": 2000, "foreign": 77}, func() map[int]bool { return left })
	if uid, _ := n.take("a"); uid != 2002 {
		t.Errorf("a has %d", uid)
	}
	if uid, _ := n.take("b"); uid != 2003 {
		t.Errorf("b has %d", uid)
	}
	left[2002] = true
	n.Release("a")
	if uid, _ := n.take("c"); uid != 0 {
		t.Errorf("c has %d, whose former owner has files", uid)
	}
	delete(left, 2002)
	if uid, _ := n.take("c"); uid != 2002 {
		t.Errorf("c has %d", uid)
	}
	if n = New(s, nil, func() map[int]bool { return map[int]bool{2002: true, 2003: true} }); n.span != n.Span() {
		t.Error("another range")
	}
	if uid, _ := n.take("d"); uid != 0 {
		t.Errorf("d has %d, which owned files when the agent started", uid)
	}
}

func TestAnExhaustedRangeIsWaitedFor(t *testing.T) {
	n := New(Span{2000, 2001}, nil, nothing)
	if _, err := n.Take(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if uid, err := n.Take(ended, "b", func() {}); err == nil {
		t.Errorf("b has %d", uid)
	}
	waits := make(chan struct{})
	go func() {
		<-waits
		n.Release("a")
	}()
	if uid, err := n.Take(t.Context(), "b", func() { close(waits) }); uid != 2001 || err != nil {
		t.Errorf("%d, %v", uid, err)
	}
}

func TestOwnersOfFilesAreFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root gives files to others")
		return
	}
	s, dir := Span{1900000000, 1900000099}, t.TempDir()
	for path, uid := range map[string]int{"running/k3x9qa": 1900000077, "running/foreign": 1234, "static/world/world-1": 1900000003} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, uid); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.CreateTemp("/tmp", "left")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	if err := f.Chown(1900000055, 0); err != nil {
		t.Fatal(err)
	}
	left := s.Left(dir)
	for _, uid := range []int{1900000077, 1900000003, 1900000055} {
		if !left[uid] {
			t.Errorf("%d is missing in %v", uid, left)
		}
	}
	if left[1234] {
		t.Error("an id out of the range")
	}
	if r := s.Running(dir); len(r) != 1 || r["k3x9qa"] != 1900000077 {
		t.Errorf("%v", r)
	}
}
