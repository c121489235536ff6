package site

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs maps the last element of a package's path to its binary.
type Programs map[string]string

// Build compiles commands of the workspace, such as "./scheduler/cmd/scheduler", into a
// directory, which it opens to the users of instances. It works from any directory of the workspace.
func Build(ctx context.Context, dir string, race bool, packages ...string) (Programs, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	root := filepath.Dir(strings.TrimSpace(string(out)))
	if err != nil || root == "." {
		return nil, fmt.Errorf("no go.work is in force: call this from within the repository (%w)", err)
	}
	built := Programs{}
	args := []string{"build"}
	if race {
		args = append(args, "-race")
	}
	args = append(append(args, "-o", dir+string(filepath.Separator)), packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %v: %w", packages, err)
	}
	if err := Open(dir); err != nil {
		return nil, err
	}
	for _, p := range packages {
		built[filepath.Base(p)] = filepath.Join(dir, filepath.Base(p))
	}
	return built, nil
}

// Packages returns the commands that a site runs.
func Packages() []string {
	return []string{
		"./e2e/cmd/etcd", "./templatesvc/cmd/templatesvc", "./scheduler/cmd/scheduler", "./enforcer/cmd/enforcer",
		"./apigateway/cmd/apigateway", "./nodeagent/cmd/nodeagent",
	}
}
