package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/examples"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/standalone/stack"
)

const (
	// arenaCommand is the hidden subcommand that runs the demo's game server.
	arenaCommand = "arena"
	demoGroup    = "arena"
	// demoServer is this binary in the demo's template, and demoCommand runs it.
	demoServer  = "demo-server"
	demoCommand = "exec ./" + demoServer + " " + arenaCommand
)

// demoPorts start with the default port of Minecraft clients.
var demoPorts = fleet.PortRange{Start: 25565, End: 25664}

// seedDemo writes the demo's template into the data directory unless it exists, and the server into it.
func seedDemo(dataDir string) error {
	dir := filepath.Join(dataDir, "templates", filepath.FromSlash(examples.DemoTemplateName))
	err := seedTemplate(dataDir, dir)
	if err == nil {
		err = placeServer(dataDir, dir)
	}
	if err != nil {
		return &errs.Error{Op: "seedDemo", Kind: errs.Invalid, Err: err, Message: fmt.Sprintf(
			"the demo template could not be written: %v; make %s writable, or choose another with -data", err, dataDir)}
	}
	return nil
}

// seedTemplate writes the demo's template unless it exists. It renames the complete directory into place,
// so that an aborted start leaves no partial template.
func seedTemplate(dataDir, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fresh := filepath.Join(dataDir, "demo-template.new")
	if err := errors.Join(os.RemoveAll(fresh), os.CopyFS(fresh, examples.DemoTemplate()), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// announce prints the addresses and paths and what happens to the instances at the end. It
// also creates the demo group if requested.
func announce(ctx context.Context, w io.Writer, r stack.Ready, f flags, promise string) {
	_, err := os.Stat(r.PasswordFile)
	firstPassword := err == nil
	if firstPassword {
		fmt.Fprintf(w, "\nOrrery serves at %s   user %s, password in %s: change it, and the file goes\n", r.API, r.User, r.PasswordFile)
	} else {
		fmt.Fprintf(w, "\nOrrery serves at %s   user %s, with the password you chose\n", r.API, r.User)
	}
	switch {
	case f.demo && !firstPassword:
		fmt.Fprintf(w, "-demo changes nothing: it signs in with the first password, which was changed; use an empty -data directory for a new demo\n")
	case f.demo:
		if err := declareDemo(ctx, r); err != nil {
			fmt.Fprintf(w, "The demo group could not be declared: %v\n", err)
			break
		}
		dir := filepath.Dir(r.PasswordFile)
		fmt.Fprintf(w, "The demo servers of group %q listen on ports from %d on\n  each runs in a directory of its own in %s\n  made from the template in %s\n",
			demoGroup, demoPorts.Start, filepath.Join(dir, "node", "running"), filepath.Join(dir, "templates", filepath.FromSlash(examples.DemoTemplateName)))
	}
	fmt.Fprintf(w, "Try:\n  %s\n  orrery get instances\nA clone installs orrery by: go install ./cli/cmd/orrery\n", loginLine(r))
	if r.EtcdTLS != "" {
		fmt.Fprintf(w, "To look into etcd from elsewhere:\n  etcdctl %s get --prefix --keys-only /orrery/v1/\n", r.EtcdctlFlags())
	}
	fmt.Fprintf(w, "%s\n\n", promise)
}

// loginLine returns a shell line that logs the command line in. It needs no password while the file with the first one exists.
func loginLine(r stack.Ready) string {
	return "orrery login --data " + compose.ShellQuote(filepath.Dir(r.PasswordFile))
}

// placeServer puts this binary into the demo's template as its game server, so that instances of
// any user may run it. "go run" deletes its binary when it ends.
func placeServer(dataDir, template string) error {
	file := filepath.Join(template, demoServer)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	own, err := os.Stat(exe)
	if err != nil {
		return err
	}
	if there, err := os.Stat(file); err == nil && there.Size() == own.Size() && there.ModTime().Equal(own.ModTime()) {
		return nil
	}
	fresh := filepath.Join(dataDir, demoServer+".new")
	if err = os.RemoveAll(fresh); err == nil {
		if err = os.Link(exe, fresh); err != nil { // the data is on another disk
			err = copyProgram(exe, fresh, own.ModTime())
		}
	}
	return errors.Join(err, os.Rename(fresh, file))
}

func copyProgram(from, to string, modified time.Time) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, modified, modified))
}

// declareDemo creates the demo group through the API. If the group exists, it changes only
// the command.
func declareDemo(ctx context.Context, r stack.Ready) error {
	token, err := r.Login(ctx)
	if err != nil {
		return err
	}
	err = r.CreateGroup(ctx, token, demoSpec())
	if errs.Is(err, errs.AlreadyExists) || errs.Is(err, errs.Conflict) { // HTTP status 409 maps to either
		return r.PatchGroup(ctx, token, demoGroup, map[string]any{"command": demoCommand})
	}
	return err
}

func demoSpec() map[string]any {
	return map[string]any{
		"name":              demoGroup,
		"command":           demoCommand,
		"templates":         []string{examples.DemoTemplateName},
		"fileModifications": []string{"server.properties"},
		"readiness":         map[string]any{"type": "port"},
		"minInstances":      3,
		"maxInstances":      10,
		"maxPlayers":        20,
		"memoryMb":          64,
		"portRangeStart":    demoPorts.Start,
		"portRangeEnd":      demoPorts.End,
	}
}
