// Package policy decides which host users, volumes, networks and images the instances on a node may
// use. The settings of the node's agent name them, and no API can add to them.
package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

// Any in a list admits every value.
const Any = "*"

// The settings of an agent that make up its policy.
const (
	SettingUsers          = "policy.users"
	SettingContainerUsers = "policy.container-users"
	SettingVolumes        = "policy.volumes"
	SettingNetworks       = "policy.networks"
	SettingImages         = "policy.images"
)

// Policy is what a node admits beyond a plain process and a plain container. The zero value admits
// only these.
type Policy struct {
	// Users are the host users that confine.user may name. In a node's record they include the user of
	// groups that name none.
	Users []string `json:"users,omitempty"`
	// ContainerUsers are the users that container.user may name, as user or user:group.
	ContainerUsers []string `json:"containerUsers,omitempty"`
	// Volumes are directories of the host, which admit everything below them, and names of the engine's
	// volumes.
	Volumes []string `json:"volumes,omitempty"`
	// Networks are the container networks beyond none and the engine's default.
	Networks []string `json:"networks,omitempty"`
	// Images are patterns of images; see pattern. Empty admits any image.
	Images []string `json:"images,omitempty"`
}

// Ask is what a group wants of a node's policy.
type Ask struct {
	// User is the host user. Empty means the node's default.
	User string
	// Image is the container's image. Empty means no image, or one that only the node knows.
	Image string
	// ContainerUser is the user in the container. Empty means the image's.
	ContainerUser string
	Network       string
	// Volumes are the host's parts of the mounts: absolute paths, or names of volumes.
	Volumes []string
}

// AskOf returns what a group wants. docker reports whether it has runtime docker: other runtimes ignore
// the container's settings.
func AskOf(docker bool, f isolation.Confine, c isolation.Container, image string) Ask {
	a := Ask{User: f.User}
	if !docker {
		return a
	}
	a.Image, a.ContainerUser, a.Network = image, c.User, c.Network
	for _, v := range c.Volumes {
		host, _, _ := strings.Cut(v, ":")
		a.Volumes = append(a.Volumes, host)
	}
	return a
}

// Equal reports whether a and b want the same.
func (a Ask) Equal(b Ask) bool {
	return a.User == b.User && a.Image == b.Image && a.ContainerUser == b.ContainerUser && a.Network == b.Network && slices.Equal(a.Volumes, b.Volumes)
}

// Refusal says what a policy does not admit.
type Refusal struct {
	// Setting refuses Value, which the group's Field names.
	Setting, Field, Value string
	// Hint says what is wrong with a value that no entry of Setting admits. It is empty for others.
	Hint string
}

// On says what would make a node accept the value.
func (r *Refusal) On(node string) string {
	if r.Hint != "" {
		return fmt.Sprintf("%s of %s does not admit %s, which %s: change %s", r.Setting, node, r.Value, r.Hint, r.Field)
	}
	return fmt.Sprintf("%s of %s does not admit %s: add %s to this setting of its agent and restart the agent, or change %s", r.Setting, node, r.Value, r.Value, r.Field)
}

// Check returns the first thing that the policy does not admit, or nil. A nil policy is that of an
// older agent, which admits everything.
func (p *Policy) Check(a Ask) *Refusal {
	if p == nil {
		return nil
	}
	if a.User != "" && !lists(p.Users, a.User) {
		return &Refusal{Setting: SettingUsers, Field: "confine.user", Value: a.User}
	}
	if a.ContainerUser != "" && !lists(p.ContainerUsers, a.ContainerUser) {
		return &Refusal{Setting: SettingContainerUsers, Field: "container.user", Value: a.ContainerUser}
	}
	if !slices.Contains(plainNetworks[:], a.Network) && !lists(p.Networks, a.Network) {
		return &Refusal{Setting: SettingNetworks, Field: "container.network", Value: a.Network}
	}
	for _, v := range a.Volumes {
		if !p.admitsVolume(v) {
			return &Refusal{Setting: SettingVolumes, Field: "container.volumes", Value: v}
		}
	}
	if a.Image != "" && len(p.Images) > 0 && !slices.Contains(p.Images, Any) {
		return p.checkImage(a.Image)
	}
	return nil
}

// plainNetworks are those of a plain container: the engine's default by its names, and none.
var plainNetworks = [...]string{"", "none", "default", "bridge"}

func lists(admitted []string, value string) bool {
	return slices.Contains(admitted, value) || slices.Contains(admitted, Any)
}

// admitsVolume reports whether an entry is the volume's name, or the path itself or a directory above it.
func (p *Policy) admitsVolume(v string) bool {
	if !path.IsAbs(v) {
		return lists(p.Volumes, v)
	}
	return slices.ContainsFunc(p.Volumes, func(entry string) bool { return entry == Any || path.IsAbs(entry) && Below(v, entry) })
}

// Below reports whether a path is a directory or lies below it, after .. and double slashes are resolved.
func Below(p, dir string) bool {
	p, dir = path.Clean(p), path.Clean(dir)
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
