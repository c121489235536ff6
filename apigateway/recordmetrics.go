package apigateway

import "github.com/orreryhq/orrery/libs/store/view"

// countRecords calls tell with the number of records of each kind that grows and is bounded.
func countRecords(s *view.Snapshot, tell func(v float64, labels ...string)) {
	var finished, deployments, runs, allocations int
	for _, i := range s.Instances.All() {
		if i.Terminal() {
			finished++
		}
	}
	for g := range s.Groups.All() {
		deployments += len(s.Deployments(g))
	}
	for _, state := range s.ScheduleStates.All() {
		runs += len(state.History)
	}
	for _, c := range s.Claims.All() {
		allocations += len(c.Claims)
	}
	counts := map[string]int{
		"allocations": allocations, "api_tokens": s.APITokens.Len(), "audit": s.Audit.Len(), "cluster_settings": s.ConfigVersions.Len(),
		"crashes": s.Crashes.Len(), "deployments": deployments, "finished_instances": finished, "join_tokens": s.JoinTokens.Len(),
		"logins": s.Logins.Len(), "messages": s.Messages.Len(), "plans": s.Plans.Len(), "schedule_runs": runs, "transfers": s.Transfers.Len(),
	}
	for kind, n := range counts {
		tell(float64(n), kind)
	}
}
