package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/orreryhq/orrery/libs/errs"
)

// image is what matters of an image.
type image struct {
	// env is the environment it brings, user who runs in it unless told otherwise.
	env  []string
	user string
}

// Prepare makes an image present; see runtime.Preparer.
func (r *Runtime) Prepare(ctx context.Context, name string) error {
	_, err := r.image(ctx, name)
	return r.orAway(ctx, "Prepare", err)
}

// image looks at an image and has the engine get it from its registry if it is not
// there. NotFound, with the engine's own words, when it cannot be had, and Unavailable
// when the registry cannot be reached or fails.
func (r *Runtime) image(ctx context.Context, name string) (image, error) {
	img, err := r.inspect(ctx, name)
	if !errdefs.IsNotFound(err) {
		return img, missing(name, err)
	}
	r.log.Info("the image is not there, it is pulled", "image", name)
	pulled, err := r.engine.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = pulled.Wait(ctx)
	}
	if err != nil {
		return image{}, unfetched(name, err)
	}
	img, err = r.inspect(ctx, name)
	return img, missing(name, err)
}

// present looks at an image without getting it: a start does not wait for a registry.
func (r *Runtime) present(ctx context.Context, name string) (image, error) {
	img, err := r.inspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return image{}, &errs.Error{Op: "docker.image", Kind: errs.NotFound, Err: err, Message: fmt.Sprintf(
			"the image %s is not there any more: somebody removed it since the instance was prepared. The next generation gets it again", name)}
	}
	return img, missing(name, err)
}

func (r *Runtime) inspect(ctx context.Context, name string) (image, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	found, err := r.engine.ImageInspect(ctx, name)
	if err != nil || found.Config == nil {
		return image{}, err
	}
	return image{env: found.Config.Env, user: found.Config.User}, nil
}

// missing tells that an image cannot be had; an engine that does not answer is another matter.
func missing(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errs.Wrap("docker.image", err)
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), errors.Is(err, context.DeadlineExceeded):
		return away("image", err)
	}
	return &errs.Error{Op: "docker.image", Kind: errs.NotFound, Err: err, Message: fmt.Sprintf(
		"the image %s is not there and cannot be had: correct container.image, or pull or load the image on the node (%s)", name, said(err))}
}

// unfetched tells why a registry did not deliver an image: Unavailable, unless the engine
// says that there is no such image, or that it may not be had.
func unfetched(name string, err error) error {
	final := errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err)
	if why := missing(name, err); final || !errs.Is(why, errs.NotFound) {
		return why
	}
	return &errs.Error{Op: "docker.image", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf(
		"the image %s is not there, and its registry does not deliver it now: look at the registry and the network, or load the image on the node (%s)", name, said(err))}
}

// said is what the engine said, in one line.
func said(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "Error response from daemon: ")), " ")
}

// environ is what an image brings, with what the instance is given over it.
func (i image) environ(given []string) []string {
	own := map[string]bool{}
	for _, v := range given {
		name, _, _ := strings.Cut(v, "=")
		own[name] = true
	}
	var env []string
	path := own["PATH"]
	for _, v := range i.env {
		name, _, _ := strings.Cut(v, "=")
		path = path || name == "PATH"
		if !own[name] {
			env = append(env, v)
		}
	}
	if !path {
		env = append(env, defaultPath)
	}
	return append(env, given...)
}

// defaultPath is the search path where neither image nor instance says one.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
