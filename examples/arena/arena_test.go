package arena

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// asProgram makes the test binary act as the arena command, so that tests can run it as a
// separate process.
const asProgram = "ARENA_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// deadline limits every wait.
const deadline = 3 * time.Minute

// transcript collects a server's output and lets a test wait for it.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced by every write
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	close(tr.changed)
	tr.changed = make(chan struct{})
	return tr.text.Write(p)
}

func (tr *transcript) state() (string, <-chan struct{}) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String(), tr.changed
}

// wait waits for the pattern and returns its submatches.
func (tr *transcript) wait(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	expired := time.After(deadline)
	for {
		text, changed := tr.state()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-changed:
		case <-expired:
			t.Fatalf("no %q within %s; printed so far:\n%s", pattern, deadline, text)
		}
	}
}

// running is a server in this process (cmd is nil) or in a separate one.
type running struct {
	out, err *transcript
	stdin    io.WriteCloser
	exited   chan int // one exit code, then closed
	cmd      *exec.Cmd
}

func (r *running) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(r.stdin, line); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end and returns the exit code.
func (r *running) code(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.exited:
		return code
	case <-time.After(deadline):
		out, _ := r.out.state()
		t.Fatalf("still running after %s; printed:\n%s", deadline, out)
		return 0
	}
}

// addr waits until the server has booted and returns its loopback address.
func (r *running) addr(t *testing.T) string {
	t.Helper()
	m := r.out.wait(t, `(?s)Listening on \S*:(\d+)\n.*Done \(`)
	return "127.0.0.1:" + m[1]
}

// inProcess runs Main in the current directory of the test.
func inProcess(t *testing.T, args ...string) *running {
	t.Helper()
	in, stdin := io.Pipe()
	r := &running{out: newTranscript(), err: newTranscript(), stdin: stdin, exited: make(chan int, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.exited <- Main(args, in, r.out, r.err)
		in.Close()
		close(r.exited)
	}()
	t.Cleanup(func() {
		// A failed test may leave the server running.
		go fmt.Fprintln(stdin, "stop")
		<-done
	})
	return r
}

// asProcess runs the server as a process in dir, and kills it at the end of the test.
func asProcess(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r := &running{out: newTranscript(), err: newTranscript(), exited: make(chan int, 1)}
	r.cmd = exec.Command(os.Args[0], args...)
	r.cmd.Dir = dir
	// The race detector would delay every exit by a second.
	r.cmd.Env = append(os.Environ(), asProgram+"=1", "ORRERY_INSTANCE_ID=abc123", "GORACE=atexit_sleep_ms=0")
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.err
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.cmd.Wait()
		r.exited <- r.cmd.ProcessState.ExitCode()
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-done
	})
	return r
}

// inDir creates a directory with these settings and makes it the current one.
func inDir(t *testing.T, properties ...string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	if len(properties) > 0 {
		if err := os.WriteFile(propertiesFile, []byte(strings.Join(properties, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
