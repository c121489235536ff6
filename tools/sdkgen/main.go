// Command sdkgen generates the operations and types of the Go client from the OpenAPI sources of
// the gateway: one file sdk/api_<area>.go for each file in paths/ or schemas/ that has something
// for it. With -check it writes nothing and names the files that are out of date.
//
// It skips paths outside /api/v1, operations that do not work yet, operations that send a browser on,
// and streams: sdk/stream.go and the files beside it are written by hand.
//
// A request type has pointers for optional fields, so that absent and zero differ. A response type
// has them only for fields that may be null. An operation with a dry run becomes two methods.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// sourceDir has the OpenAPI sources.
const sourceDir = "apigateway/internal/openapi"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("sdkgen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the repository's root")
	check := flags.Bool("check", false, "write nothing, exit 1 when a file is out of date")
	if flags.Parse(args) != nil {
		return 2
	}
	files, err := generate(os.DirFS(filepath.Join(*root, filepath.FromSlash(sourceDir))))
	if err != nil {
		fmt.Fprintf(stderr, "sdkgen: %v\n", err)
		return 2
	}
	stale, err := settle(filepath.Join(*root, "sdk"), files, *check)
	if err != nil {
		fmt.Fprintf(stderr, "sdkgen: %v\n", err)
		return 2
	}
	for _, name := range stale {
		fmt.Fprintf(stdout, "sdk/%s is out of date: run make references\n", name)
	}
	return min(len(stale), 1)
}

// settle writes the files into dir and removes generated files that are not among them. With check
// it changes nothing and returns the names of the files that it would change.
func settle(dir string, files map[string][]byte, check bool) (stale []string, err error) {
	have, err := filepath.Glob(filepath.Join(dir, "api_*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range have {
		name := filepath.Base(path)
		switch _, wanted := files[name]; {
		case wanted:
		case check:
			stale = append(stale, name)
		default:
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if !check {
			if err := os.WriteFile(path, files[name], 0o644); err != nil {
				return nil, err
			}
			continue
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, files[name]) {
			stale = append(stale, name)
		}
	}
	return stale, nil
}
