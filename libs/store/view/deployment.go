package view

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Deployments returns the deployments of a group, oldest first. It returns none in a view that does
// not follow them.
func (s *Snapshot) Deployments(g fleet.GroupName) (out []deployment.Joined) {
	if s.deployments.tree == nil {
		return nil
	}
	for key, d := range under(s.deployments, string(g)+"/") {
		p, _ := s.progress.Get(string(g) + "/" + key)
		out = append(out, deployment.Joined{Deployment: d, Progress: p})
	}
	return out
}

// Deployment returns a deployment of a group.
func (s *Snapshot) Deployment(g fleet.GroupName, number int64) (deployment.Joined, bool) {
	name := keys.DeploymentName(g, number)
	d, ok := s.deployments.Get(name)
	if !ok {
		return deployment.Joined{}, false
	}
	p, _ := s.progress.Get(name)
	return deployment.Joined{Deployment: d, Progress: p}, true
}

// LatestDeployment returns the latest deployment of a group. ok is false if there is none, or the
// view does not follow deployments.
func (s *Snapshot) LatestDeployment(g fleet.GroupName) (latest deployment.Joined, ok bool) {
	all := s.Deployments(g)
	if len(all) == 0 {
		return deployment.Joined{}, false
	}
	return all[len(all)-1], true
}
