// Package starting has the commands that write files to start from.
package starting

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/spf13/cobra"
)

// games has a directory for each game with group.yaml and template.
//
//go:embed games
var games embed.FS

// gameNames are the directories of games.
var gameNames = []string{"minecraft", "teeworlds", "generic"}

// templateNames are the names of the templates that the groups of the games refer to.
var templateNames = map[string]string{"minecraft": "minecraft", "teeworlds": "teeworlds", "generic": "game"}

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{initCommand(a)} }

func initCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "init", Short: "Write files to start from",
		Local: true, Example: "orrery init game minecraft --dir ./minecraft",
	})
	cmd.AddCommand(initGame(a))
	return cmd
}

func initGame(a *app.App) *cobra.Command {
	var dir string
	cmd := command.New(a, command.Spec{
		Use: "game " + strings.Join(gameNames, "|"), Short: "Write a group and a template to start from",
		Long: "It writes group.yaml, with comments, and the directory template. It does not talk to a server, and it overwrites nothing.",
		Example: `orrery init game minecraft --dir ./minecraft
orrery init game generic --dir ./arena`,
		Local: true,
		Args:  command.Between(1, 1, "a game: "+strings.Join(gameNames, ", ")),
		Complete: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return gameNames, cobra.ShellCompDirectiveNoFileComp
		},
		Run: func(_ context.Context, args []string) error { return runInitGame(a, args[0], dir) },
	})
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` to write into; the default is the name of the game")
	return cmd
}

func runInitGame(a *app.App, game, dir string) error {
	if !slices.Contains(gameNames, game) {
		return command.UsageError(app.DidYouMean(game, gameNames, "the games are "+strings.Join(gameNames, ", ")), "there is no game %q", game)
	}
	if dir == "" {
		dir = game
	}
	from, err := fs.Sub(games, "games/"+game)
	if err != nil {
		return err
	}
	files, err := freeFiles(from, dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := writeNew(from, file, filepath.Join(dir, filepath.FromSlash(file))); err != nil {
			return err
		}
	}
	answer := map[string]any{"id": game, "directory": dir, "files": files}
	return a.Say(answer, game, "%s written to %s. Look through the files, then:\n  orrery template push %s %s\n  orrery apply -f %s",
		strings.Join(files, ", "), dir, templateNames[game], filepath.Join(dir, "template"), filepath.Join(dir, "group.yaml"))
}

// freeFiles returns the files to write. It fails if one of them exists.
func freeFiles(from fs.FS, dir string) ([]string, error) {
	var files []string
	err := fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files = append(files, path)
		target := filepath.Join(dir, filepath.FromSlash(path))
		if _, err := os.Lstat(target); err == nil {
			return exit.Hint(fmt.Errorf("%s exists, and init overwrites nothing", target), "choose another directory: --dir DIRECTORY")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	return files, err
}

// writeNew copies a file to a path where there is none.
func writeNew(from fs.FS, file, path string) error {
	content, err := fs.ReadFile(from, file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(file, ".sh") {
		mode = 0o755
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = to.Write(content)
	return errors.Join(err, to.Close())
}
