package acting

import (
	"context"

	orrery "github.com/orreryhq/orrery/sdk"
)

// instanceVerbs returns the verbs that act on instances.
func instanceVerbs() []instanceVerb {
	return []instanceVerb{
		{
			name: "start", bulk: "start", doing: "starts", goal: goalRunning, group: startGroup,
			short: "Start stopped instances, or more instances of a group",
			long: `An instance that has ended starts again under its name, as its next generation, with the newest versions of its
templates and the settings of its group. One that runs is not changed. start group starts additional instances.`,
			example: `orrery start lobby-1
orrery start lobby-1 lobby-2 --wait --timeout 2m
orrery start group lobby --count 2
orrery start group lobby --var MAP=desert
orrery start --group lobby --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.StartInstance(ctx, name, &orrery.StartInstanceParams{DiscardData: run.options.discardData})
			},
		},
		{
			name: "stop", bulk: "stop", doing: "is stopping", goal: "stopped",
			short: "Stop instances",
			long: `The stop command of the group is written to the console. Its stop signal follows, and at last a kill. If the group is
then below its minimum, it starts another instance. To run fewer instances, scale the group.`,
			example: `orrery stop lobby-1
orrery stop instance/lobby-1 --wait --timeout 2m
orrery stop --group lobby --yes
orrery stop -l mode=duels --dry-run`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.StopInstance(ctx, name)
			},
		},
		{
			name: "restart", bulk: "restart", doing: "restarts", goal: goalRunning, group: restartGroup,
			short: "Restart instances, or the instances of a group one after another",
			long: `A restart applies the newest versions of the templates and the settings of the group. restart group replaces the
instances of the group one after another, as a deployment; restart --group restarts all of them at once.`,
			example: `orrery restart lobby-1
orrery restart group lobby --wait --timeout 5m
orrery restart --group lobby --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.RestartInstance(ctx, name)
			},
		},
		{
			name: "kill", aliases: []string{"force-stop"}, bulk: "kill", doing: "is being killed", goal: "stopped",
			short: "Kill instances at once, without saving",
			example: `orrery kill lobby-1
orrery kill --node node-1 --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.ForceStopInstance(ctx, name)
			},
		},
		{
			name: "freeze", doing: "is frozen", already: "is frozen already",
			short: "Keep instances as they are: not stopped as surplus, not restarted",
			example: `orrery freeze lobby-1
orrery freeze --group lobby --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.FreezeInstance(ctx, name)
			},
		},
		{
			name: "unfreeze", doing: "is no longer frozen", already: "is not frozen",
			short: "End a freeze",
			example: `orrery unfreeze lobby-1
orrery unfreeze --all --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.UnfreezeInstance(ctx, name)
			},
		},
		{
			name: "sleep", doing: "falls asleep", goal: "asleep",
			short: "Put instances without players to sleep",
			long:  "A sleeping instance keeps its place, its name, its node and its ports, but no memory. It wakes when it is needed.",
			selects: func(r orrery.BulkInstanceResult) bool {
				return r.State == "RUNNING"
			},
			example: `orrery sleep lobby-1
orrery sleep --group lobby --dry-run`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.SleepInstance(ctx, name)
			},
		},
		{
			name: "wake", doing: "wakes", goal: goalRunning,
			short:   "Wake sleeping instances",
			selects: func(r orrery.BulkInstanceResult) bool { return r.State == "STOPPED" },
			example: `orrery wake lobby-1 --wait --timeout 1m
orrery wake --group lobby --yes`,
			one: func(ctx context.Context, run *instanceRun, name string) (*orrery.InstanceActionResponse, error) {
				return run.client.WakeInstance(ctx, name)
			},
		},
	}
}
