package upstream

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Files lists a directory of an instance. Errors are those of call and client.Files.
func (a *Agents) Files(ctx context.Context, i *fleet.Instance, path string) (client.Directory, error) {
	return call(ctx, a, a.breakers, i, func(ctx context.Context, agent Agent) (client.Directory, error) {
		return agent.Files(ctx, i.Intent.ID, path)
	})
}

// File reads a part of a file of an instance. Errors are those of call and client.Files.
func (a *Agents) File(ctx context.Context, i *fleet.Instance, path string, maxBytes int, tail bool) (client.FileContent, error) {
	return call(ctx, a, a.breakers, i, func(ctx context.Context, agent Agent) (client.FileContent, error) {
		return agent.File(ctx, i.Intent.ID, path, maxBytes, tail)
	})
}

// Files lists a directory.
func (a nodeAgent) Files(ctx context.Context, id fleet.InstanceID, path string) (client.Directory, error) {
	return a.client.Files(ctx, id, path)
}

// File reads a part of a file.
func (a nodeAgent) File(ctx context.Context, id fleet.InstanceID, path string, maxBytes int, tail bool) (client.FileContent, error) {
	return a.client.File(ctx, id, path, maxBytes, tail)
}
