// Package shell has the commands that set up the user's shell.
package shell

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/spf13/cobra"
)

// shell is a shell that completes commands.
type shell struct {
	name  string
	write func(root *cobra.Command, to io.Writer) error
	// path returns the file that the shell reads.
	path func(directories) string
	// activate says what to do after the installation.
	activate string
}

// directories are those of the user.
type directories struct{ data, config string }

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{completion(a)} }

func shells() []shell {
	return []shell{
		{
			"bash", func(root *cobra.Command, to io.Writer) error { return root.GenBashCompletionV2(to, true) },
			func(d directories) string { return filepath.Join(d.data, "bash-completion", "completions", "orrery") },
			"New shells have it, if the package bash-completion is installed. In this one: source %[1]s",
		},
		{
			"zsh", func(root *cobra.Command, to io.Writer) error { return root.GenZshCompletion(to) },
			func(d directories) string { return filepath.Join(d.data, "zsh", "site-functions", "_orrery") },
			"Put these lines into ~/.zshrc, if they are not there yet, and start a new shell:\n  fpath=(%[2]s $fpath)\n  autoload -Uz compinit && compinit",
		},
		{
			"fish", func(root *cobra.Command, to io.Writer) error { return root.GenFishCompletion(to, true) },
			func(d directories) string { return filepath.Join(d.config, "fish", "completions", "orrery.fish") },
			"New shells have it.",
		},
		{
			"powershell", func(root *cobra.Command, to io.Writer) error { return root.GenPowerShellCompletionWithDesc(to) },
			func(d directories) string { return filepath.Join(d.config, "orrery", "completion.ps1") },
			"Put this line into the file that $PROFILE names, and start a new shell:\n  . '%[1]s'",
		},
	}
}

func completion(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "completion", Short: "Complete commands and names in your shell",
		Local: true, Example: "orrery completion bash --install",
	})
	for _, s := range shells() {
		cmd.AddCommand(completionOf(a, s))
	}
	return cmd
}

func completionOf(a *app.App, s shell) *cobra.Command {
	var install bool
	var cmd *cobra.Command
	cmd = command.New(a, command.Spec{
		Use: s.name, Short: "Print or install the completion of " + s.name,
		Long:  "It completes commands, flags, and the names of objects, for which it asks the server of the current context.",
		Local: true, Example: "orrery completion " + s.name + "\norrery completion " + s.name + " --install",
		Run: func(context.Context, []string) error {
			var script bytes.Buffer
			if err := s.write(cmd.Root(), &script); err != nil {
				return err
			}
			if install {
				return installCompletion(a, s, script.Bytes())
			}
			_, err := a.Out.Write(script.Bytes())
			return err
		},
	})
	cmd.Flags().BoolVar(&install, "install", false, "write it to where "+s.name+" looks for it")
	return cmd
}

func installCompletion(a *app.App, s shell, script []byte) error {
	dirs, err := userDirectories(a)
	if err != nil {
		return err
	}
	path := s.path(dirs)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot install the completion: %w", err)
	}
	if err := os.WriteFile(path, script, 0o644); err != nil {
		return fmt.Errorf("cannot install the completion: %w", err)
	}
	text := strings.NewReplacer("%[1]s", path, "%[2]s", filepath.Dir(path)).Replace(s.activate)
	return a.Say(map[string]any{"id": s.name, "path": path}, s.name, "completion written to %s\n%s", path, text)
}

// userDirectories returns the directories of the XDG standard, which shells also use on other systems.
func userDirectories(a *app.App) (directories, error) {
	home := a.Env("HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return directories{}, fmt.Errorf("cannot find your home directory: %w", err)
		}
	}
	d := directories{data: a.Env("XDG_DATA_HOME"), config: a.Env("XDG_CONFIG_HOME")}
	if d.data == "" {
		d.data = filepath.Join(home, ".local", "share")
	}
	if d.config == "" {
		d.config = filepath.Join(home, ".config")
	}
	return d, nil
}
