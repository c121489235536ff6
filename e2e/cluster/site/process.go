package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/clock"
)

// Process is a program of the site across all its runs. Its methods are safe for concurrent
// use.
type Process struct {
	// Name is unique in the site, such as "scheduler-1".
	Name string

	binary    string
	args      []string
	log       string // the log file; every run appends to it
	namespace *Namespace
	// clocks are by how much the clock of each run is ahead, in turn. Empty means that it
	// is right.
	clocks []time.Duration

	mu    sync.Mutex
	cmd   *exec.Cmd
	done  chan struct{} // closed when cmd has ended
	err   error         // how cmd ended; valid after done
	asked bool          // the end of cmd was requested
	shot  bool          // cmd was killed
	ends  []string      // unrequested ends
	runs  int           // number of starts
}

// NewProcess returns a process outside of a site. It is not started yet. Its output is
// appended to the file log.
func NewProcess(name, binary, log string, args ...string) *Process {
	return &Process{Name: name, binary: binary, log: log, args: args}
}

// AddFlags adds flags for the next starts.
func (p *Process) AddFlags(flags ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.args = append(p.args, flags...)
}

// stopPatience limits the time of a clean stop.
const stopPatience = 30 * time.Second

// Start starts the process again with the same arguments. It fails when the process already
// runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "---- start %s\n", time.Now().UTC().Format(time.RFC3339Nano))
	cmd := exec.Command(p.binary, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if n := len(p.clocks); n > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v", clock.Variable, p.clocks[p.runs%n]))
	}
	p.runs++
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.namespace.Do(cmd.Start); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.asked, p.shot = cmd, done, false, false
	go p.wait(cmd, done)
	return nil
}

func (p *Process) wait(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if !p.asked {
		p.ends = append(p.ends, fmt.Sprintf("%s (pid %d) ended by itself: %v", p.Name, cmd.Process.Pid, err))
	}
	close(done)
}

// running requires mu.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running reports whether the process runs, including while it is paused.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID returns the process ID, or 0 when the process does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Ended returns the unrequested ends.
func (p *Process) Ended() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ends...)
}

// Log returns the output of all runs.
func (p *Process) Log() ([]byte, error) { return os.ReadFile(p.log) }

var adminAddress = regexp.MustCompile(`admin listener is up".* address=(\S+)`)

// AdminAddress returns the last admin address in a program's log.
func AdminAddress(log []byte) (string, error) {
	found := adminAddress.FindAllSubmatch(log, -1)
	if found == nil {
		return "", errors.New("the log names no admin listener")
	}
	return string(found[len(found)-1][1]), nil
}

// Metrics returns all its metrics.
func (p *Process) Metrics(ctx context.Context) ([]byte, error) {
	log, err := p.Log()
	if err != nil {
		return nil, err
	}
	address, err := AdminAddress(log)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", p.Name, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Kill kills the process with SIGKILL and waits. It does nothing when the process does not
// run.
func (p *Process) Kill() {
	if done, ok := p.signal(syscall.SIGKILL, true); ok {
		<-done
	}
}

// Stop asks the process to end and waits. It returns an error when the process ends badly
// or not at all, but not when it is killed meanwhile.
func (p *Process) Stop() error {
	p.Resume()
	done, ok := p.signal(syscall.SIGTERM, true)
	if !ok {
		return nil
	}
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, stopPatience)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil && !p.shot {
		return fmt.Errorf("%s ended badly: %w", p.Name, p.err)
	}
	return nil
}

// Pause stops the process until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP, false) }

// Resume continues a paused process.
func (p *Process) Resume() { p.signal(syscall.SIGCONT, false) }

// signal sends a signal to a running process. ok is false when it does not run.
func (p *Process) signal(s syscall.Signal, end bool) (done <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, false
	}
	p.asked, p.shot = p.asked || end, p.shot || s == syscall.SIGKILL
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, false
	}
	return p.done, true
}
