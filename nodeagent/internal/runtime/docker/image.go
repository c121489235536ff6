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

// image holds what the runtime needs of an image.
type image struct {
	// env is the environment of the image, user its default user.
	env  []string
	user string
}

// Prepare pulls an image if it is missing; see runtime.Preparer.
func (r *Runtime) Prepare(ctx context.Context, name string) error {
	_, err := r.image(ctx, name)
	return r.markUnreachable(ctx, "Prepare", err)
}

// image inspects an image, and pulls it if it is missing. It returns NotFound, with the engine's
// message, if there is no such image, and Unavailable if the registry fails.
func (r *Runtime) image(ctx context.Context, name string) (image, error) {
	img, err := r.inspect(ctx, name)
	if !errdefs.IsNotFound(err) {
		return img, imageError(name, err)
	}
	r.log.Info("pulling a missing image", "image", name)
	pulled, err := r.engine.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = pulled.Wait(ctx)
	}
	if err != nil {
		return image{}, pullError(name, err)
	}
	img, err = r.inspect(ctx, name)
	return img, imageError(name, err)
}

// localImage inspects an image without pulling it: a start does not wait for a registry.
func (r *Runtime) localImage(ctx context.Context, name string) (image, error) {
	img, err := r.inspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return image{}, &errs.Error{Op: "docker.image", Kind: errs.NotFound, Err: err, Message: fmt.Sprintf(
			"the image %s was removed since the instance was prepared; the next generation pulls it again", name)}
	}
	return img, imageError(name, err)
}

func (r *Runtime) inspect(ctx context.Context, name string) (image, error) {
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	found, err := r.engine.ImageInspect(ctx, name)
	if err != nil || found.Config == nil {
		return image{}, err
	}
	return image{env: found.Config.Env, user: found.Config.User}, nil
}

// imageError explains why an image is not available, or says that the engine does not answer.
func imageError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errs.Wrap("docker.image", err)
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), errors.Is(err, context.DeadlineExceeded):
		return unreachable("image", err)
	}
	return &errs.Error{Op: "docker.image", Kind: errs.NotFound, Err: err, Message: fmt.Sprintf(
		"the image %s is missing and cannot be pulled: correct container.image, or pull or load the image on the node (%s)", name, engineMessage(err))}
}

// pullError explains why a pull failed: Unavailable, unless the engine says that the image does
// not exist or access is denied.
func pullError(name string, err error) error {
	final := errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err)
	if why := imageError(name, err); final || !errs.Is(why, errs.NotFound) {
		return why
	}
	return &errs.Error{Op: "docker.image", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf(
		"the image %s is missing, and its registry does not deliver it now: check the registry and the network, or load the image on the node (%s)", name, engineMessage(err))}
}

// engineMessage returns the engine's message in one line.
func engineMessage(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "Error response from daemon: ")), " ")
}

// environ returns the image's environment, overridden by the instance's.
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

// defaultPath is the search path if neither image nor instance sets one.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
