// Command witness is a workload that records when it ran, see package record. It listens on
// its port, stops on the line "stop" and on SIGTERM, and can crash by itself.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/e2e/faults/record"
)

type options struct {
	dir    string
	static bool
	expect string
	crash  time.Duration
}

func main() { os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stderr)) }

func run(args []string, env func(string) string, stdin io.Reader, stderr io.Writer) int {
	started := record.Now()
	var o options
	fs := flag.NewFlagSet("witness", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.dir, "record", "", "the recorder's directory")
	fs.BoolVar(&o.static, "static", false, "hold the lock of the instance's name")
	fs.StringVar(&o.expect, "expect", "", "file that has to hold the instance's name and port; empty: none")
	fs.DurationVar(&o.crash, "crash", 0, "exit with code 3 each time this has passed while the recorder's directory holds a file named "+record.Storm+"; 0: never")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	port, _ := strconv.Atoi(env("ORRERY_PORT")) // 0 when it has none
	h := record.Header{
		Instance: env("ORRERY_INSTANCE_ID"), Name: env("ORRERY_INSTANCE_NAME"), Group: env("ORRERY_GROUP"),
		Node: env("ORRERY_NODE"), PID: os.Getpid(), Port: port, Static: o.static, Started: started,
	}
	code, err := witness(o, h, stdin)
	if err != nil {
		fmt.Fprintln(stderr, "witness:", err)
		return 1
	}
	return code
}

// witness runs until it is asked to stop or crashes.
func witness(o options, h record.Header, stdin io.Reader) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if o.static {
		h.Earlier, h.Unsaved = count("runs")
	}
	w, err := record.Create(o.dir, h)
	if err != nil {
		return 1, err
	}
	defer w.Close()
	note := func(e record.Event) error { return w.Note(record.Note{At: record.Now(), Event: e}) }
	if o.static {
		alone, err := lock(filepath.Join(o.dir, h.Name+".lock"))
		if err == nil && !alone {
			err = note(record.Refused)
		}
		if err != nil {
			return 1, err
		}
	}
	if b, err := os.ReadFile(o.expect); o.expect != "" && (err != nil || string(b) != fmt.Sprint(h.Name, " ", h.Port, "\n")) {
		if err := note(record.WrongFiles); err != nil {
			return 1, err
		}
	}
	if h.Port > 0 {
		event := record.Listening
		l, err := net.Listen("tcp", fmt.Sprint(":", h.Port))
		if err != nil {
			event = record.PortTaken
		} else {
			defer l.Close()
			go serve(l)
		}
		if err := note(event); err != nil {
			return 1, err
		}
	}
	return live(o, w, note, signals, lines(stdin))
}

func live(o options, w *record.Writer, note func(record.Event) error, signals <-chan os.Signal, stop <-chan struct{}) (int, error) {
	ticks := time.NewTicker(record.Every)
	defer ticks.Stop()
	var crash <-chan time.Time
	if o.crash > 0 {
		due := time.NewTicker(o.crash)
		defer due.Stop()
		crash = due.C
	}
	for {
		select {
		case <-ticks.C:
			if err := w.Alive(record.Now()); err != nil {
				return 1, err
			}
		case <-signals:
			return 0, note(record.Asked)
		case <-stop:
			return 0, note(record.Asked)
		case <-crash:
			if _, err := os.Stat(filepath.Join(o.dir, record.Storm)); err == nil {
				return 3, note(record.Failing)
			}
		}
	}
}

// count appends a byte to a file and returns the previous length. unsaved means that the
// append failed.
func count(path string) (had int, unsaved bool) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, true
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, true
	}
	_, err = f.Write([]byte("."))
	return int(info.Size()), err != nil
}

// lock takes a lock for the lifetime of the process. It returns false when another process
// holds it.
func lock(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return false, err
	}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// serve accepts connections so that a readiness check passes.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// lines returns a channel that is closed at the line "stop".
func lines(r io.Reader) <-chan struct{} {
	stop := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			if s.Text() == "stop" {
				close(stop)
				return
			}
		}
	}()
	return stop
}
