package arena

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// To become a daemon, the program starts itself twice with a hidden argument. The launcher
// starts the sleeper, waits until it handles signals, prints its PID and ends. The sleeper
// then has another session, process group and parent than this process.
//
//	arena ─▶ arena --daemon-stage launch ─▶ arena --daemon-stage sleep
const (
	daemonStage = "--daemon-stage"
	stageLaunch = "launch"
	stageSleep  = "sleep"
	// stageDeaf makes the sleeper ignore SIGTERM and similar signals.
	stageDeaf = "ignore-term"
)

// startDaemon starts a sleeper and returns its PID. It uses args, the arguments of Main, to
// find out how to call the program again.
func startDaemon(args []string, ignoreTerm bool) (pid string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	launch := append(leadingArgs(os.Args[1:], args), daemonStage, stageLaunch)
	if ignoreTerm {
		launch = append(launch, stageDeaf)
	}
	out, err := detached(exe, launch).Output()
	return strings.TrimSpace(string(out)), err
}

// leadingArgs returns the program's own arguments before args: nothing, or the subcommand
// that leads to Main.
func leadingArgs(all, args []string) []string {
	if n := len(all) - len(args); n >= 0 && slices.Equal(all[n:], args) {
		return slices.Clone(all[:n])
	}
	return nil
}

// detached returns a command in a new session, with /dev/null as standard streams unless
// set.
func detached(exe string, args []string) *exec.Cmd {
	cmd := exec.Command(exe, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// runDaemonStage is Main for the hidden stages.
func runDaemonStage(args []string, stdout, stderr io.Writer) int {
	rest := args[1:]
	switch {
	case len(rest) > 0 && rest[0] == stageSleep:
		sleepForEver(stdout, slices.Contains(rest, stageDeaf))
		return exitOK
	case len(rest) > 0 && rest[0] == stageLaunch:
		if err := launchSleeper(args, stdout); err != nil {
			fmt.Fprintf(stderr, "arena: %v\n", err)
			return exitError
		}
		return exitOK
	}
	fmt.Fprintf(stderr, "arena: %s is for the program itself\n", daemonStage)
	return exitUsage
}

func launchSleeper(args []string, stdout io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	sleep := append(leadingArgs(os.Args[1:], args), daemonStage, stageSleep)
	sleep = append(sleep, args[2:]...)
	cmd := detached(exe, sleep)
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, ready); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, cmd.Process.Pid)
	return errors.Join(err, cmd.Process.Release())
}

// sleepForEver sleeps until a signal ends it. It closes its output when it is ready for
// signals.
func sleepForEver(stdout io.Writer, deaf bool) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	if c, ok := stdout.(io.Closer); ok {
		c.Close()
	}
	for {
		<-signals
		if !deaf {
			return
		}
	}
}
