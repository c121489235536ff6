package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/provider"
)

func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	for name, script := range scripts {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(at, []byte("#!/bin/sh\n"+script+"\n"), 0o600), os.Chmod(at, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProgramsProvidePlaceholders(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	dir := programs(t, map[string]string{
		"10-lines": "echo MESH_IP=100.64.0.1; echo '# a remark'; echo; echo BOTH=first",
		"20-json":  `echo asked >>` + asked + `; printf '{"BOTH":"second","N":7,"ON":true,"NONE":null,"GIVEN":'; sed 's/"/\\"/g; s/^/"/; s/$/"/'; printf '}'`,
		"30-fails": "echo X=y; echo no mesh here >&2; exit 3",
		"40-odd":   "echo no pair",
	})
	if err := os.WriteFile(filepath.Join(dir, "README.txt"), []byte("X=y"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	p := provider.New(dir, time.Minute, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	facts := provider.Facts{Instance: "aaaaaa", Name: "lobby-1", Group: "lobby", Node: "node-1", Runtime: "process", Port: 30000, MemoryMiB: 256}
	for range 2 {
		values, notes := p.Values(t.Context(), facts)
		want := map[string]string{
			"MESH_IP": "100.64.0.1", "BOTH": "second", "N": "7", "ON": "true",
			"GIVEN": `{"instance":"aaaaaa","name":"lobby-1","group":"lobby","node":"node-1","runtime":"process","port":30000,"memoryMiB":256}`,
		}
		if diff := cmp.Diff(want, values); diff != "" {
			t.Error(diff)
		}
		told := strings.Join(notes, "\n")
		if len(notes) != 2 || !strings.Contains(told, "30-fails failed: the program 30-fails ended with exit status 3; run it") || !strings.Contains(told, "40-odd failed") {
			t.Errorf("told %q", notes)
		}
	}
	times := func() int {
		b, err := os.ReadFile(asked)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "asked")
	}
	if times() != 1 {
		t.Errorf("asked %d times within a minute", times())
	}
	now = now.Add(time.Hour)
	p.Values(t.Context(), facts)
	if times() != 2 {
		t.Errorf("asked %d times, once more after an hour", times())
	}
}

func TestProgramOutputIsNotLogged(t *testing.T) {
	const word = "hunter2"
	long := strings.Repeat(word, 1000)
	dir := programs(t, map[string]string{
		"a-says":  "echo " + word + " >&2; exit 1",
		"b-line":  "echo " + word,
		"c-name":  "echo 1" + word + "=x",
		"d-value": "echo " + word + "=" + long,
		"e-json":  `echo '{"` + word + `":{}}'`,
		"f-name":  `echo '{"1` + word + `":"x"}'`,
		"g-none":  `echo '{"` + word + `"'`,
		"h-bytes": `printf '` + word + `\377'`,
		"i-much":  "while :; do echo " + long + "; done",
	})
	var log bytes.Buffer
	p := provider.New(dir, time.Minute, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	values, notes := p.Values(t.Context(), provider.Facts{})
	if len(values) > 0 || len(notes) != 9 {
		t.Errorf("%v, %q", values, notes)
	}
	if told := strings.Join(notes, "\n") + log.String(); strings.Contains(told, word[:4]) || strings.Count(log.String(), "a variable provider failed") != 9 {
		t.Errorf("told: %s", told)
	}
}

func TestConcurrentProgramsAreLimited(t *testing.T) {
	dir := programs(t, map[string]string{"a": "", "b": "", "c": ""})
	synctest.Test(t, func(t *testing.T) {
		p := provider.New(dir, time.Minute, time.Now, slog.New(slog.DiscardHandler))
		var running, ran atomic.Int32
		end := make(chan struct{})
		p.SetRun(func(context.Context, dropin.Job) (string, error) {
			running.Add(1)
			defer running.Add(-1)
			ran.Add(1)
			<-end
			return "", nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var starts sync.WaitGroup
		for n := range 40 {
			starts.Go(func() { p.Values(ctx, provider.Facts{Port: n}) })
		}
		starts.Go(func() { // a canceled start waits for no program
			leaving, leave := context.WithCancel(ctx)
			leave()
			p.Values(leaving, provider.Facts{Port: 40})
		})
		for range 3 {
			synctest.Wait()
			if n := running.Load(); n != provider.MaxRunning {
				t.Errorf("%d run at once", n)
			}
			end <- struct{}{}
		}
		close(end)
		starts.Wait()
		cancel()
		if n := ran.Load(); n < 3*40 {
			t.Errorf("%d ran of all", n)
		}
	})
}

func TestFailuresAreCachedBriefly(t *testing.T) {
	dir := programs(t, map[string]string{"a": ""})
	now := time.Unix(1e9, 0)
	p := provider.New(dir, time.Minute, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	var asked int
	var fails error
	p.SetRun(func(_ context.Context, job dropin.Job) (string, error) {
		asked++
		_, _ = io.WriteString(job.Output, "A=1")
		return "", fails
	})
	ask := func(instance fleet.InstanceID, wanted int, says string) {
		t.Helper()
		asked = 0
		values, notes := p.Values(t.Context(), provider.Facts{Instance: instance})
		if told := strings.Join(notes, ""); asked != wanted || !strings.Contains(told, says) || (says == "") != (values["A"] == "1") {
			t.Errorf("asked %d times, want %d; got %v, %q", asked, wanted, values, told)
		}
	}
	fails = errs.New(errs.Unavailable, "it broke")
	ask("aaaaaa", 1, "it broke")
	ask("aaaaaa", 0, "it broke")
	ask("bbbbbb", 1, "it broke") // other input may have another answer
	fails = nil
	ask("cccccc", 1, "")
	fails = fmt.Errorf("hung: %w", dropin.ErrLate)
	ask("dddddd", 1, "failed")
	ask("eeeeee", 0, "failed") // a timeout counts for any input
	ask("cccccc", 0, "")       // cached answers remain valid
	now = now.Add(11 * time.Second)
	fails = nil
	ask("aaaaaa", 1, "")
	ask("eeeeee", 1, "")
	called, off := context.WithCancel(t.Context())
	p.SetRun(func(context.Context, dropin.Job) (string, error) { off(); return "", called.Err() })
	p.Values(called, provider.Facts{Instance: "ffffff"})
	p.SetRun(func(_ context.Context, job dropin.Job) (string, error) {
		asked++
		_, err := io.WriteString(job.Output, "A=1")
		return "", err
	})
	ask("ffffff", 1, "") // a canceled run says nothing about the program
}

func TestTimeoutsAreCachedPerProgram(t *testing.T) {
	dir := programs(t, map[string]string{"hangs": "", "well": ""})
	now := time.Unix(1e9, 0)
	p := provider.New(dir, time.Minute, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	var hung atomic.Int32
	p.SetRun(func(_ context.Context, job dropin.Job) (string, error) {
		if job.Program == "hangs" {
			hung.Add(1)
			return "", fmt.Errorf("hung: %w", dropin.ErrLate)
		}
		_, err := io.WriteString(job.Output, "A=1")
		return "", err
	})
	for port := range 600 {
		if values, notes := p.Values(t.Context(), provider.Facts{Port: port}); values["A"] != "1" || len(notes) != 1 {
			t.Fatalf("%v, %q", values, notes)
		}
	}
	if n := hung.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	now = now.Add(11 * time.Second)
	p.Values(t.Context(), provider.Facts{})
	if n := hung.Load(); n != 2 {
		t.Errorf("it was asked %d times, once more after a while", n)
	}
}

func TestMissingDirectoryGivesANote(t *testing.T) {
	if values, notes := provider.New("", time.Minute, time.Now, slog.New(slog.DiscardHandler)).Values(t.Context(), provider.Facts{}); len(values)+len(notes) > 0 {
		t.Errorf("%v, %v", values, notes)
	}
	if values, notes := provider.New(filepath.Join(t.TempDir(), "gone"), time.Minute, time.Now, slog.New(slog.DiscardHandler)).Values(t.Context(), provider.Facts{}); len(values) > 0 || len(notes) != 1 {
		t.Errorf("%v, %v", values, notes)
	}
}

func TestParseAcceptsOrRejectsOutput(t *testing.T) {
	for _, bad := range []string{
		"a b=c", "=x", "no pair", `{"a":[]}`, `{"a":{}}`, `{"a":"b"`, `{"a":"b"}{}`, "A=\xff", "A=\x00", "A=" + strings.Repeat("x", 5000),
		strings.Repeat("a", 65) + "=x", "1A=x",
	} {
		if v, err := provider.Parse([]byte(bad)); !errs.Is(err, errs.Invalid) {
			t.Errorf("%.40q: %v, %v", bad, v, err)
		}
	}
	for good, want := range map[string]map[string]string{
		"": {}, "A=": {"A": ""}, "A=b=c\r\nB= x\n": {"A": "b=c", "B": " x"}, `{"A":"b\nc"}`: {"A": "b\nc"},
	} {
		if got, err := provider.Parse([]byte(good)); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%q: %v, %v", good, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("A=b\n"))
	f.Add([]byte(`{"A":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := provider.Parse(b)
		if err != nil && values != nil {
			t.Error("an error with values")
		}
	})
}
