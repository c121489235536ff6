package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/local"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/spf13/cobra"
)

// upTimeout bounds up without --timeout.
const upTimeout = 2 * time.Minute

func up(a *app.App) *cobra.Command {
	var data string
	var demo bool
	cmd := command.New(a, command.Spec{
		Use:   "up [-- FLAG...]",
		Short: "Start Orrery on this machine and log in",
		Long: `It starts the program standalone, which is beside orrery or in PATH, in the background, and waits until it is ready.
Its output is in standalone.log of the data directory. Flags behind -- are passed to it: see standalone -help.
orrery down stops it.`,
		Local: true,
		Example: `orrery up --demo
orrery up --data /srv/orrery -- -listen 0.0.0.0:8443 -tls-cert cert.pem -tls-key key.pem`,
		Args: command.Between(0, -1, ""),
		Run:  func(ctx context.Context, args []string) error { return runUp(ctx, a, data, demo, args) },
	})
	cmd.Flags().StringVar(&data, "data", local.DefaultData, "`directory` that holds everything: the store, templates, instances, logs")
	cmd.Flags().BoolVar(&demo, "demo", false, "declare a group of small game servers")
	return cmd
}

// dataDirectory returns the absolute path of --data. An empty one would be the current directory.
func dataDirectory(data string) (string, error) {
	if data == "" {
		return "", command.UsageError("a variable of the shell may have no value", "--data names no directory")
	}
	return filepath.Abs(data)
}

func runUp(ctx context.Context, a *app.App, data string, demo bool, flags []string) error {
	dir, err := dataDirectory(data)
	if err != nil {
		return err
	}
	pid, err := local.Running(dir)
	if err != nil {
		return err
	}
	if pid != 0 {
		return alreadyUp(ctx, a, dir, pid)
	}
	args, err := local.Command(dir, demo, flags)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := local.Find(self, a.Env("PATH"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a.Notef("starting %s", program)
	if a.Flags.Timeout == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, upTimeout)
		defer cancel()
	}
	ready, err := local.Start(ctx, program, args, dir)
	if errors.Is(err, context.DeadlineExceeded) && a.Flags.Timeout == 0 {
		err = exit.With(exit.TimedOut, fmt.Errorf("standalone is not ready after %s", upTimeout), exit.HintOf(err))
	}
	if err != nil {
		return err
	}
	return afterUp(ctx, a, dir, ready)
}

// alreadyUp says that a standalone runs, and logs in unless the user is logged in there. It is no error: what up is for
// is true.
func alreadyUp(ctx context.Context, a *app.App, dir string, pid int) error {
	ready, err := local.ReadReady(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Conflict, fmt.Errorf("process %d uses the data directory %s, but is not ready", pid, dir), "wait until it is ready or has ended; orrery down stops it")
	}
	if err != nil {
		return err
	}
	if err := a.Say(ready, ready.API, "Orrery runs already at %s, as process %d", ready.API, pid); err != nil {
		return err
	}
	loggedIn, err := logInAt(ctx, a, ready)
	if err == nil && !loggedIn {
		a.Notef("you are not logged in there: orrery login --data %s", dir)
	}
	return err
}

// logInAt logs in at a standalone, unless commands use it already with a login that is accepted. It returns false if the
// password is not in its file.
func logInAt(ctx context.Context, a *app.App, ready *local.Ready) (bool, error) {
	if accepted(ctx, a, ready.API) {
		return true, nil
	}
	if _, err := os.Stat(ready.PasswordFile); err != nil {
		return false, nil
	}
	if err := runLogin(ctx, a, loginOptions{data: ready.Data, quiet: true}, nil); err != nil {
		return false, exit.Explain(err, fmt.Sprintf("Orrery runs at %s, but the login failed", ready.API))
	}
	a.Notef("logged in to %s", ready.API)
	return true, nil
}

// accepted reports whether commands use a server with a login that it accepts.
func accepted(ctx context.Context, a *app.App, server string) bool {
	target, err := a.Target()
	if err != nil || !slices.Contains(target.Servers, server) {
		return false
	}
	client, err := a.ClientOf(target)
	if err != nil {
		return false
	}
	_, err = client.GetCurrentUser(ctx)
	return err == nil
}

// afterUp logs in and says what to do next.
func afterUp(ctx context.Context, a *app.App, dir string, ready *local.Ready) error {
	loggedIn, err := logInAt(ctx, a, ready)
	if err != nil {
		return err
	}
	return a.Show(ready, ready.API, func(output.Printer) error {
		lines := []string{fmt.Sprintf("Orrery runs at %s, as process %d", ready.API, ready.PID), "its log is " + local.Log(dir), "next:"}
		if !loggedIn {
			lines = append(lines, "  orrery login --data "+dir)
		}
		return a.Lines(append(lines, "  orrery status", "  orrery get instances", "  orrery down --data "+dir))
	})
}

func down(a *app.App) *cobra.Command {
	var data string
	cmd := command.New(a, command.Spec{
		Use:   "down",
		Short: "Stop Orrery on this machine",
		Long: `It stops the standalone with the data directory, however it was started, and waits until it has ended. Its servers stop
too, except if it was started with -stop-instances=false, or is a service of systemd while the host stays up: then they run on,
and the next start finds them. Nothing is deleted.`,
		Local: true, Example: "orrery down",
		Run: func(ctx context.Context, _ []string) error { return runDown(ctx, a, data) },
	})
	cmd.Flags().StringVar(&data, "data", local.DefaultData, "data `directory` of the standalone")
	return cmd
}

func runDown(ctx context.Context, a *app.App, data string) error {
	dir, err := dataDirectory(data)
	if err != nil {
		return err
	}
	pid, err := local.Running(dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return a.Say(map[string]any{"running": false}, "", "no standalone runs with the data directory %s", dir)
	}
	a.Notef("stopping process %d", pid)
	if err := local.Stop(ctx, dir, pid); err != nil {
		return err
	}
	return a.Say(map[string]any{"running": false, "pid": pid}, "", "Orrery has stopped; the data is in %s", dir)
}
