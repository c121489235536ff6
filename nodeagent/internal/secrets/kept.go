package secrets

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxBuilds is of how many builds of a directory the values are known, if they differ.
const maxBuilds = 8

// Known are the values of an instance's secrets that its node knows of.
type Known struct {
	// Values are those that its directory was built with.
	Values map[string]string
	// All are these and those of its builds before, the latest last.
	All []map[string]string
}

// With is k once the directory was built with other values.
func (k Known) With(values map[string]string) Known {
	next := Known{Values: values}
	for _, v := range k.All {
		if !maps.Equal(v, values) {
			next.All = append(next.All, v)
		}
	}
	next.All = append(next.All, values)
	next.All = next.All[max(0, len(next.All)-maxBuilds):]
	return next
}

// file is what is kept of an instance, all of it sealed.
type file struct {
	// Records are what was read of the store last.
	Records map[string]fleet.Secret `json:"records,omitempty"`
	// Builds are the values its directory was built with, the latest last.
	Builds []build `json:"builds,omitempty"`
}

type build struct {
	// Of tells the build from others.
	Of     string `json:"of"`
	Sealed []byte `json:"sealed"`
}

func aboutBuild(id fleet.InstanceID, of string) string { return "build/" + string(id) + "/" + of }

// Keep keeps, sealed, the values that an instance's directory is built with. of tells this
// build from the others of the instance.
func (r *Resolver) Keep(id fleet.InstanceID, of string, values map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.read(id)
	if len(values) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil // it has no secrets, and never had
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return errs.Wrap("secrets.Keep", err)
	}
	var builds []build
	for _, b := range f.Builds {
		if before, ok := r.open(id, b); b.Of != of && (!ok || !maps.Equal(before, values)) {
			builds = append(builds, b)
		}
	}
	builds = append(builds, build{Of: of, Sealed: r.box.About(aboutBuild(id, of)).Seal(plain)})
	f.Builds = builds[max(0, len(builds)-maxBuilds):]
	return r.write(id, f)
}

// Recall has the values of a build as they were kept. refs are the references of its
// secrets. NotFound when the values cannot be told; then it has those of other builds.
func (r *Resolver) Recall(id fleet.InstanceID, of string, refs map[string]string) (Known, error) {
	r.mu.Lock()
	f, err := r.read(id)
	r.mu.Unlock()
	if len(refs) == 0 && errors.Is(err, fs.ErrNotExist) {
		return Known{}, nil
	}
	var k Known
	found := false
	for _, b := range f.Builds {
		values, ok := r.open(id, b)
		if !ok {
			continue
		}
		k.All = append(k.All, values)
		if b.Of == of {
			k.Values, found = values, true
		}
	}
	if !found {
		return k, errs.New(errs.NotFound, "the values of the secrets that it was built with are not known any more: restart it")
	}
	return k, nil
}

func (r *Resolver) open(id fleet.InstanceID, b build) (values map[string]string, ok bool) {
	plain, err := r.box.About(aboutBuild(id, b.Of)).Open(b.Sealed)
	return values, err == nil && json.Unmarshal(plain, &values) == nil
}

// read is what is kept of an instance. What cannot be read was not kept. The lock is held.
func (r *Resolver) read(id fleet.InstanceID) (f file, err error) {
	b, err := os.ReadFile(r.path(id))
	if err == nil && json.Unmarshal(b, &f) != nil {
		f = file{}
	}
	return f, err
}

// write replaces what is kept of an instance. The lock is held.
func (r *Resolver) write(id fleet.InstanceID, f file) error {
	b, err := json.Marshal(f)
	if err != nil {
		return errs.Wrap("secrets.write", err)
	}
	path := r.path(id)
	if err := os.MkdirAll(r.cfg.Keep, 0o700); err != nil {
		return errs.As(errs.Unavailable, "secrets.write", err)
	}
	if err := os.WriteFile(path+partial, b, 0o600); err != nil {
		return errs.As(errs.Unavailable, "secrets.write", errors.Join(err, os.Remove(path+partial)))
	}
	return errs.As(errs.Unavailable, "secrets.write", os.Rename(path+partial, path))
}
