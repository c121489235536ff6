package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// admit returns an Invalid error if the node's policy refuses a run. The scheduler has checked the same
// policy, but only the node knows its symbolic links and the values in an image's name. c is nil for runs
// without a container. admit replaces the directories of c's volumes by those that their links lead to, so
// that the engine mounts what was checked.
func (d *Deps) admit(plan fleet.Plan, c *runtime.Container) error {
	if c == nil {
		return d.refused(&d.Policy, policy.Ask{User: plan.Confine.User})
	}
	ask := policy.AskOf(true, plan.Confine, c.Container, c.Image)
	if err := d.refused(&d.Policy, ask); err != nil {
		return err
	}
	if len(c.Volumes) == 0 || slices.Contains(d.Policy.Volumes, policy.Any) {
		return nil
	}
	dirs := d.admittedDirs()
	c.Volumes = slices.Clone(c.Volumes)
	for n, v := range c.Volumes {
		host, rest, _ := strings.Cut(v, ":")
		if !filepath.IsAbs(host) {
			continue
		}
		to, err := followLinks(host)
		if err != nil {
			return &errs.Error{Op: "driver.admit", Kind: errs.Invalid, Err: err, Message: "the directory " + host + " of container.volumes cannot be checked on " + string(d.Node().ID) + ": " + cause(err) + "; correct it or change container.volumes"}
		}
		if err := d.admitDir(dirs, to); err != nil {
			return err
		}
		c.Volumes[n] = to + ":" + rest
	}
	return nil
}

// admittedDirs are the directories that the policy admits, without symbolic links.
func (d *Deps) admittedDirs() (dirs []string) {
	for _, entry := range d.Policy.Volumes {
		if !filepath.IsAbs(entry) {
			continue
		}
		if to, err := followLinks(entry); err == nil {
			dirs = append(dirs, to)
		}
	}
	return dirs
}

// admitDir returns an Invalid error if a directory without symbolic links is in none of dirs. A directory
// above the agent's data admits none of it, because that has the files of all instances and their secrets.
func (d *Deps) admitDir(dirs []string, dir string) error {
	data, err := followLinks(d.DataDir)
	if err != nil {
		return errs.Wrap("driver.admitDir", err)
	}
	if policy.Below(data, dir) {
		r := policy.Refusal{Setting: policy.SettingVolumes, Field: "container.volumes", Value: dir, Hint: "contains the data of the agent"}
		return errs.New(errs.Invalid, "%s", r.On(string(d.Node().ID)))
	}
	if policy.Below(dir, data) {
		dirs = slices.DeleteFunc(slices.Clone(dirs), func(entry string) bool { return !policy.Below(entry, data) })
	}
	return d.refused(&policy.Policy{Volumes: dirs}, policy.Ask{Volumes: []string{dir}})
}

// refused returns an Invalid error that names the setting that refuses ask, or nil.
func (d *Deps) refused(p *policy.Policy, ask policy.Ask) error {
	r := p.Check(ask)
	if r == nil {
		return nil
	}
	return &errs.Error{Op: "driver.admit", Kind: errs.Invalid, Message: r.On(string(d.Node().ID))}
}

// followLinks resolves the symbolic links of a path whose last components may not exist yet, because the
// engine creates them. It fails for a link that leads nowhere, and for a result that a mount cannot name.
func followLinks(p string) (string, error) {
	real, err := filepath.EvalSymlinks(p)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(p); err == nil {
			return "", errDangling
		}
		real, err = followLinks(filepath.Dir(p))
		real = filepath.Join(real, filepath.Base(p))
	}
	if err == nil && (strings.Contains(real, ":") || validate.HasControl(real)) {
		err = errUnmountable
	}
	return real, err
}

var (
	errDangling    = errors.New("a symbolic link in it leads nowhere")
	errUnmountable = errors.New("it leads to a path with a colon or a control character")
)

// cause is the reason of an error of the file system without the path, which the message has already.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}
