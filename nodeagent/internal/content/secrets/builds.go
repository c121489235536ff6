package secrets

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// maxBuilds is the number of builds whose values are stored, if they differ.
const maxBuilds = 8

// Known holds the secret values of an instance that its node knows.
type Known struct {
	// Values are those its directory was built with.
	Values map[string]string
	// All are those of all stored builds, the latest last.
	All []map[string]string
}

// With returns k after another build with the given values.
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

// file is the stored state of an instance. All values in it are sealed.
type file struct {
	// Records are the stored secrets that were last read from etcd.
	Records map[string]content.Secret `json:"records,omitempty"`
	// Asked is what a gateway last answered, sealed.
	Asked []byte `json:"asked,omitempty"`
	// Builds are the values of the directory's builds, the latest last.
	Builds []build `json:"builds,omitempty"`
}

type build struct {
	// Of identifies the build.
	Of     string `json:"of"`
	Sealed []byte `json:"sealed"`
}

func sealContext(id fleet.InstanceID, of string) string { return "build/" + string(id) + "/" + of }

// Keep stores, sealed, the values that an instance's directory is built with. of identifies
// the build.
func (r *Resolver) Keep(id fleet.InstanceID, of string, values map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.read(id)
	if len(values) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil // it never had secrets
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
	builds = append(builds, build{Of: of, Sealed: r.box.About(sealContext(id, of)).Seal(plain)})
	f.Builds = builds[max(0, len(builds)-maxBuilds):]
	return r.write(id, f)
}

// Recall returns the stored values of a build. refs are the references of its secrets. It
// returns NotFound, with the values of other builds, if those of this one are unknown.
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
		return k, errs.New(errs.NotFound, "the secret values of the current build are no longer known: restart the instance")
	}
	return k, nil
}

func (r *Resolver) open(id fleet.InstanceID, b build) (values map[string]string, ok bool) {
	plain, err := r.box.About(sealContext(id, b.Of)).Open(b.Sealed)
	return values, err == nil && json.Unmarshal(plain, &values) == nil
}

// read reads the state of an instance. An unreadable file counts as empty. The caller holds the lock.
func (r *Resolver) read(id fleet.InstanceID) (f file, err error) {
	b, err := os.ReadFile(r.path(id))
	if err == nil && json.Unmarshal(b, &f) != nil {
		f = file{}
	}
	return f, err
}

// write replaces the state of an instance. The caller holds the lock.
func (r *Resolver) write(id fleet.InstanceID, f file) error {
	b, err := json.Marshal(f)
	if err != nil {
		return errs.Wrap("secrets.write", err)
	}
	path := r.path(id)
	if err := os.MkdirAll(r.cfg.StateDir, 0o700); err != nil {
		return errs.WrapAs(errs.Unavailable, "secrets.write", err)
	}
	if err := os.WriteFile(path+partial, b, 0o600); err != nil {
		return errs.WrapAs(errs.Unavailable, "secrets.write", errors.Join(err, os.Remove(path+partial)))
	}
	return errs.WrapAs(errs.Unavailable, "secrets.write", os.Rename(path+partial, path))
}
