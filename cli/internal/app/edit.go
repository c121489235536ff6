package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
)

// Edit lets the user change a text in an editor and returns what the editor saved. name is the base
// name of the file, by whose ending the editor knows the syntax. The editor is that of VISUAL or
// EDITOR. If it fails, or the context ends meanwhile, the text stays in a file that the error names.
func (a *App) Edit(ctx context.Context, name string, content []byte) ([]byte, error) {
	if !a.Interactive || a.Flags.NoInput {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s cannot be edited: an editor needs a terminal", name), "")
	}
	path, err := writeTemporary(name, content)
	if err != nil {
		return nil, err
	}
	if err := a.runEditor(ctx, path); err != nil {
		return nil, exit.With(exit.Failed, err, "the text is in "+path)
	}
	edited, err := os.ReadFile(path)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, exit.Hint(err, "the text is in "+path)
	}
	return edited, os.RemoveAll(filepath.Dir(path))
}

// EditText lets the user change the content of a file in an editor. It returns nil, and says so, if the
// text stayed the same.
func (a *App) EditText(ctx context.Context, file, content string) ([]byte, error) {
	edited, err := a.Edit(ctx, path.Base(file), []byte(content))
	if err == nil && string(edited) == content {
		a.Notef("%s was not changed", file)
		return nil, nil
	}
	return edited, err
}

// KeepEdited keeps a text that the user wrote and that was refused with err. If that is because another
// writer changed the text meanwhile, it also keeps theirs, which now returns, and says how to compare them.
func (a *App) KeepEdited(err error, name string, mine []byte, now func() (string, error)) {
	path := a.KeepText(name, mine)
	if path == "" || !errors.Is(err, orrery.ErrPreconditionFailed) {
		return
	}
	theirs, err := now()
	if err != nil {
		return // the refusal says enough
	}
	other := filepath.Join(filepath.Dir(path), "current-"+filepath.Base(path))
	if err := os.WriteFile(other, []byte(theirs), 0o600); err != nil {
		a.Notef("the text of the other writer could not be stored: %v", err)
		return
	}
	a.Notef("that of the other writer is in %s", other)
	a.Notef("to compare them: diff %s %s", other, path)
}

// KeepText stores a text that the user wrote and that could not be used, and says where it is. It returns the
// path; empty if the text could not be stored, and was printed instead.
func (a *App) KeepText(name string, content []byte) string {
	path, err := writeTemporary(name, content)
	if err != nil {
		a.Notef("your text could not be stored: %v; it was:\n%s", err, content)
		return ""
	}
	a.Notef("your text is in %s", path)
	return path
}

// writeTemporary writes a file into a new directory that only the user may read.
func writeTemporary(name string, content []byte) (string, error) {
	dir, err := os.MkdirTemp("", "orrery-edit-") // mode 0700
	if err != nil {
		return "", fmt.Errorf("cannot create a directory for the editor: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(name))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("cannot write the file for the editor: %w", err), os.RemoveAll(dir))
	}
	return path, nil
}

// runEditor returns when the editor has ended. The context does not end it, because that would lose
// what was not saved.
func (a *App) runEditor(ctx context.Context, path string) error {
	editor := cmp.Or(a.Env("VISUAL"), a.Env("EDITOR"), defaultEditor())
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", editor+` "$@"`, editor, path)
	if runtime.GOOS == "windows" {
		words := strings.Fields(editor)
		cmd = exec.CommandContext(context.WithoutCancel(ctx), words[0], append(words[1:], path)...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	if a.Width == 0 {
		cmd.Stdout = a.Err // standard output is not the terminal
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q failed: %w; VISUAL or EDITOR names another one", editor, err)
	}
	return nil
}

func defaultEditor() string {
	if runtime.GOOS == "windows" {
		return "notepad"
	}
	return "vi"
}
