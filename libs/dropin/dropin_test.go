package dropin_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs is a directory of shell scripts.
func programs(t *testing.T, scripts map[string]string) dropin.Dir {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	for name, script := range scripts {
		// A process that another test starts may still hold the file open. Run retries then.
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o600),
			os.Chmod(filepath.Join(dir, name), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dropin.Dir(dir)
}

// job returns a job with generous limits.
func job(name string) dropin.Job {
	return dropin.Job{Program: name, Timeout: time.Minute, OutputBytes: 1 << 20}
}

func refused(t *testing.T, err error, kind errs.Kind, want string) {
	t.Helper()
	if !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), want) {
		t.Errorf("%v (%s), want %s: …%s…", err, errs.KindOf(err), kind, want)
	}
}

func TestProgramGetsOnlyGivenInputs(t *testing.T) {
	t.Setenv("ORRERY_CLUSTER_SECRET", "not for programs")
	dir := programs(t, map[string]string{"tell": `env | grep -v '^PWD=\|^_=\|^SHLVL=\|^OLDPWD='; pwd; echo "$@"; cat; echo aside >&2`})
	var out bytes.Buffer
	j := job("tell")
	j.Args, j.Env, j.Input, j.WorkDir, j.Output = []string{"a b", "-c"}, []string{"GIVEN=1", "PATH=" + os.Getenv("PATH")}, []byte("input"), t.TempDir(), &out
	said, err := dir.Run(t.Context(), j)
	lines := strings.Split(out.String(), "\n")
	if err != nil || said != "aside" {
		t.Errorf("%q, %v", said, err)
	}
	if want := "GIVEN=1 PATH=" + os.Getenv("PATH"); !strings.Contains(want, lines[0]) || !strings.Contains(want, lines[1]) {
		t.Errorf("environment %q", lines)
	}
	if got := strings.Join(lines[2:], "\n"); got != j.WorkDir+"\na b -c\ninput" {
		t.Errorf("printed %q", got)
	}
}

func TestOnlyTrustedProgramsRun(t *testing.T) {
	dir := programs(t, map[string]string{"good": "exit 0", "loose": "exit 0", "shared": "exit 0", "plain": "exit 0"})
	at := func(name string) string { return filepath.Join(string(dir), name) }
	if err := errors.Join(os.Chmod(at("loose"), 0o777), os.Chmod(at("shared"), 0o775), os.Chmod(at("plain"), 0o644), os.Symlink("/bin/sh", at("link")), os.Mkdir(at("folder"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind errs.Kind
		want string
	}{
		"":                      {errs.Invalid, "is not a program name"},
		"../good":               {errs.Invalid, "is not a program name"},
		"/bin/sh":               {errs.Invalid, "is not a program name"},
		"good -x":               {errs.Invalid, "is not a program name"},
		"-good":                 {errs.Invalid, "is not a program name"},
		".good":                 {errs.Invalid, "is not a program name"},
		"a\x00b":                {errs.Invalid, "is not a program name"},
		strings.Repeat("a", 65): {errs.Invalid, "is not a program name"},
		"none":                  {errs.NotFound, "this machine has no program none; available: good, loose, plain, shared"},
		"link":                  {errs.Denied, "links are not followed"},
		"folder":                {errs.Denied, "is not a regular file"},
		"plain":                 {errs.Denied, "not executable"},
		"loose":                 {errs.Denied, "is writable by everyone"},
		"shared":                {errs.Denied, "is writable by its group (fix: chmod g-w)"},
	} {
		_, err := dir.Run(t.Context(), job(name))
		refused(t, err, c.kind, c.want)
	}
	if _, err := dir.Run(t.Context(), job("good")); err != nil {
		t.Error(err)
	}
	for mode, want := range map[os.FileMode]string{0o777: "everyone", 0o775: "its group"} {
		if err := os.Chmod(string(dir), mode); err != nil {
			t.Fatal(err)
		}
		_, err := dir.Run(t.Context(), job("good"))
		refused(t, err, errs.Denied, "is writable by "+want)
		refused(t, err, errs.Denied, "no program in it is run")
	}
	for dir, want := range map[dropin.Dir]string{"": "runs no programs", "relative": "must be an absolute path", "/does/not/exist": "does not exist"} {
		_, err := dir.Run(t.Context(), job("good"))
		if err == nil || !strings.Contains(errs.MessageOf(err), want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestFailureMessageMasksSecrets(t *testing.T) {
	dir := programs(t, map[string]string{
		"fail":   `echo first >&2; printf 'token s3cret was\033 refused\n' >&2; exit 3`,
		"silent": "exit 1",
		"long":   `i=0; while [ $i -lt 400 ]; do printf 's3cret-s3cret ' >&2; i=$((i+1)); done; exit 1`,
		"killed": `kill -9 $$`,
	})
	j := job("fail")
	j.Secrets = []string{"s3cret", "two\nlines of it"}
	said, err := dir.Run(t.Context(), j)
	refused(t, err, errs.Unavailable, "the program fail ended with exit status 3: first | token *** was  refused")
	if said != "first | token *** was  refused" {
		t.Errorf("%q", said)
	}
	j.Program = "silent"
	_, err = dir.Run(t.Context(), j)
	refused(t, err, errs.Unavailable, "printed nothing")
	j.Program, j.Unheard = "fail", true
	said, err = dir.Run(t.Context(), j)
	if refused(t, err, errs.Unavailable, "the program fail ended with exit status 3"); said != "" || strings.Contains(err.Error(), "refused") {
		t.Errorf("what nobody shall hear is told: %q, %v", said, err)
	}
	j.Program, j.Unheard = "killed", false
	_, err = dir.Run(t.Context(), j)
	refused(t, err, errs.Unavailable, "signal: killed")
	j.Program = "long"
	said, err = dir.Run(t.Context(), j)
	refused(t, err, errs.Unavailable, "***-***")
	if len(said) > 1<<10 || strings.Contains(said, "s3") || strings.Contains(said, "et") {
		t.Errorf("%d bytes: %q", len(said), said)
	}
}

func TestTimeoutAndCancelKillTheProcessGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	dir := programs(t, map[string]string{
		"hang":  `trap '' TERM; sleep 1000 & echo $! $$ > ` + pids + `; cat /dev/zero > /dev/null`,
		"leave": `sleep 1000 & echo $! > ` + pids + `; exit 0`,
		"flood": `sleep 1000 & echo $! > ` + pids + `; cat /dev/zero`,
	})
	gone := func(t *testing.T) {
		t.Helper()
		text, err := os.ReadFile(pids)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(one)
			if err != nil {
				t.Fatal(err)
			}
			await.That(t, "the end of "+one, func() string {
				if proctest.Lives(pid) {
					return "it lives"
				}
				return ""
			})
		}
		if err := os.Remove(pids); err != nil {
			t.Fatal(err)
		}
	}
	// begun is done once the script has reported its PIDs.
	begun := func(cancel func()) {
		for range 3000 {
			if text, _ := os.ReadFile(pids); strings.HasSuffix(string(text), "\n") {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}
	t.Run("its caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go begun(cancel)
		_, err := dir.Run(ctx, job("hang"))
		if !errs.Is(err, errs.Canceled) {
			t.Error(err)
		}
		gone(t)
	})
	t.Run("it takes too long", func(t *testing.T) {
		j := job("hang")
		j.Timeout = time.Second // the script may not have reported its PIDs
		_, err := dir.Run(t.Context(), j)
		refused(t, err, errs.Unavailable, "did not end within 1s and was killed")
		if !errors.Is(err, dropin.ErrLate) {
			t.Errorf("it does not say that it was late: %v", err)
		}
	})
	t.Run("it prints too much", func(t *testing.T) {
		_, err := dir.Run(t.Context(), job("flood"))
		refused(t, err, errs.TooLarge, "printed more than allowed")
		gone(t)
	})
	t.Run("nobody takes what it prints", func(t *testing.T) {
		j := job("flood")
		j.Output = broken{}
		if _, err := dir.Run(t.Context(), j); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		gone(t)
	})
	t.Run("it ends and leaves others", func(t *testing.T) {
		if _, err := dir.Run(t.Context(), job("leave")); err != nil {
			t.Error(err)
		}
		gone(t)
	})
}

func TestOutputHeldOpenIsAFailure(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	dir := programs(t, map[string]string{"leave": `echo one; setsid sh -c 'echo $$ > ` + pid + `; exec sleep 1000' & until [ -s ` + pid + ` ]; do :; done; exit 0`})
	defer func() {
		text, _ := os.ReadFile(pid)
		left, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	j := job("leave")
	j.Output = &out
	_, err := dir.Run(t.Context(), j)
	refused(t, err, errs.Unavailable, "had its standard output open after 5s")
	if out.String() != "one\n" {
		t.Errorf("it printed %q", out.String())
	}
}

func TestProgramOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root gives files to others")
		return
	}
	dir := programs(t, map[string]string{"theirs": "exit 0"})
	if err := os.Chown(filepath.Join(string(dir), "theirs"), 61234, 61234); err != nil {
		t.Fatal(err)
	}
	_, err := dir.Run(t.Context(), job("theirs"))
	refused(t, err, errs.Denied, "is owned by neither root nor the user of this service")
	if err := os.Chown(string(dir), 61234, 61234); err != nil {
		t.Fatal(err)
	}
	_, err = dir.Run(t.Context(), job("theirs"))
	refused(t, err, errs.Denied, "no program in it is run")
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestUnreadInputDoesNotBlock(t *testing.T) {
	dir := programs(t, map[string]string{"deaf": "exec <&-; exit 0", "idle": "exit 0"})
	for _, name := range []string{"deaf", "idle"} {
		j := job(name)
		j.Input = make([]byte, 1<<20) // more than a pipe buffers
		if _, err := dir.Run(t.Context(), j); err != nil {
			t.Error(err)
		}
	}
}

func TestRunWaitsForProgramBeingWritten(t *testing.T) {
	dir := programs(t, map[string]string{"busy": "exit 0"})
	f, err := os.OpenFile(filepath.Join(string(dir), "busy"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { f.Close() })
	if _, err := dir.Run(t.Context(), job("busy")); err != nil {
		t.Error(err)
	}
}
