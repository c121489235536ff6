// Command clidocs writes the reference pages and the manual pages of the command line.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("clidocs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	pages := flags.String("pages", "", "write the reference pages into this `directory`")
	manual := flags.String("man", "", "write the manual pages into this `directory`")
	check := flags.Bool("check", false, "write nothing, exit 1 when a reference page is out of date")
	if flags.Parse(args) != nil {
		return 2
	}
	cmd := root.New(&app.App{Env: func(string) string { return "" }, Settings: settings.New("", nil), In: new(bytes.Buffer), Out: io.Discard, Err: io.Discard})
	var err error
	if *pages != "" {
		err = settle(*pages, markdown(cmd), *check)
	}
	if *manual != "" {
		err = errors.Join(err, writeManual(cmd, *manual))
	}
	if err != nil {
		fmt.Fprintln(stdout, err)
		return 1
	}
	return 0
}

// settle makes a directory hold exactly these pages. With check it reports what differs instead.
func settle(dir string, pages map[string][]byte, check bool) error {
	existing, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, path := range existing {
		if _, wanted := pages[filepath.Base(path)]; wanted {
			continue
		}
		if check {
			return fmt.Errorf("%s is of no command: run make references", path)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if !check {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		path := filepath.Join(dir, name)
		if !check {
			if err := os.WriteFile(path, pages[name], 0o644); err != nil {
				return err
			}
			continue
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, pages[name]) {
			return fmt.Errorf("%s is out of date: run make references", path)
		}
	}
	return nil
}

// writeManual writes a manual page for each command. SOURCE_DATE_EPOCH is their date.
func writeManual(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cmd.DisableAutoGenTag = true
	return doc.GenManTree(cmd, &doc.GenManHeader{Title: "ORRERY", Section: "1", Source: "Orrery", Manual: "Orrery"}, dir)
}
