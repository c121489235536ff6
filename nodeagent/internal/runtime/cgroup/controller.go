package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// controller is a cgroup controller and the limit it enforces.
type controller struct {
	limit string
	// v2 and v1 are its names in the two cgroup versions.
	v2, v1 string
	// values returns what to write into a group's files for a run's limits; none if no limit
	// needs this controller.
	values func(p part, want runtime.Limits) []value
}

// value is a file of a group and the value to write. An optional file may be missing.
type value struct {
	file, value string
	optional    bool
}

// controllers are the controllers that enforce limits.
var controllers = []controller{
	{fleet.LimitMemory, "memory", "memory", memory},
	{fleet.LimitCPU, "cpu", "cpu", cpu},
	{fleet.LimitProcesses, "pids", "pids", processes},
	{fleet.LimitIO, "io", "blkio", disk},
}

const (
	// period is the period of a CPU quota, in µs.
	period = 100_000
	// wrapper is the number of processes that the agent adds: the shell around the command.
	wrapper = 1
)

func memory(p part, want runtime.Limits) []value {
	if want.MemoryMiB <= 0 {
		return nil
	}
	limit := want.MemoryMiB << 20
	if p.dir != "" {
		return []value{
			{file: "memory.limit_in_bytes", value: strconv.Itoa(limit)},
			{file: "memory.memsw.limit_in_bytes", value: strconv.Itoa(limit), optional: true},
		}
	}
	// memory.high is not set: without swap the kernel throttles the run at that mark almost to a
	// standstill, long before it reaches the limit.
	return []value{
		{file: "memory.max", value: strconv.Itoa(limit)},
		{file: "memory.swap.max", value: "0", optional: true},
	}
}

func cpu(p part, want runtime.Limits) (values []value) {
	if quota := want.CPU * period / 100; quota > 0 && p.dir != "" {
		values = append(values, value{file: "cpu.cfs_period_us", value: strconv.Itoa(period)}, value{file: "cpu.cfs_quota_us", value: strconv.Itoa(quota)})
	} else if quota > 0 {
		values = append(values, value{file: "cpu.max", value: fmt.Sprintf("%d %d", quota, period)})
	}
	switch weight := want.CPUWeight; {
	case weight <= 0:
	case p.dir != "": // the default is 1,024
		values = append(values, value{file: "cpu.shares", value: strconv.Itoa(min(max(weight*1024/100, 2), 1<<18))})
	default:
		values = append(values, value{file: "cpu.weight", value: strconv.Itoa(min(weight, 10_000))})
	}
	return values
}

func processes(_ part, want runtime.Limits) []value {
	if want.Processes <= 0 {
		return nil
	}
	return []value{{file: "pids.max", value: strconv.Itoa(want.Processes + wrapper)}}
}

// disk writes all weights that the kernel has. The device's I/O scheduler uses one of them:
// io.bfq.weight with BFQ, io.weight with io.cost.qos.
func disk(p part, want runtime.Limits) []value {
	if want.IOWeight <= 0 {
		return nil
	}
	if p.dir != "" {
		weight := strconv.Itoa(min(max(want.IOWeight, 10), 1000)) // the valid range
		return []value{{file: "blkio.weight", value: weight, optional: true}, {file: "blkio.bfq.weight", value: weight, optional: true}}
	}
	return []value{
		{file: "io.weight", value: "default " + strconv.Itoa(want.IOWeight), optional: true},
		{file: "io.bfq.weight", value: strconv.Itoa(min(want.IOWeight, 1000)), optional: true},
	}
}

// find finds the controller and creates the agent's group for it: in version 2 if the tree is
// there and has the controller, else in version 1. The error says why it cannot be used. version
// returns systemd's version.
func (c controller) find(owner string, tree *Tree, own map[string]string, version func() int) (part, error) {
	p := part{controller: c}
	var refused error
	if parent, ok := own[unified]; ok && offers(parent, c.v2) {
		if tree == nil {
			refused = errs.New(errs.Unavailable, "the agent cannot make control groups below its own, %s: %s", parent, scopeAdvice)
		} else if refused = tree.enable(parent, c.v2, version); refused == nil {
			return p.probe(filepath.Join(tree.dir, "probe"))
		}
	}
	dir, ok := own[c.v1]
	switch {
	case !ok && refused != nil:
		return p, refused
	case !ok && offeredAbove(own[unified], c.v2):
		return p, errs.New(errs.Unavailable, "systemd does not delegate the controller to the agent's control group %s: %s", own[unified], grantAdvice(own[unified], version()))
	case !ok:
		return p, errs.New(errs.Unavailable, "the kernel offers no controller for it here")
	}
	p.dir = filepath.Join(dir, groupPrefix+owner)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return p, err
	}
	return p.probe(filepath.Join(p.dir, "probe"))
}

// probe checks that a group accepts every kind of limit.
func (p part) probe(probe string) (part, error) {
	if err := recreate(probe); err != nil {
		return p, err
	}
	defer os.Remove(probe)
	full := runtime.Limits{MemoryMiB: 1, CPU: 1, CPUWeight: 1, Processes: 1, IOWeight: 1}
	found := false
	for _, v := range p.values(p, full) {
		switch there := exists(filepath.Join(probe, v.file)); {
		case there:
			found = true
		case !v.optional:
			return p, errs.New(errs.Unavailable, "the kernel has no %s", v.file)
		}
	}
	if !found {
		return p, errs.New(errs.Unavailable, "the kernel has no I/O weights here")
	}
	return p, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// offers reports whether a version 2 group can delegate a controller.
func offers(group, controller string) bool {
	b, _ := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(b)), controller)
}

// offeredAbove reports whether an ancestor of a version 2 group can delegate a controller.
func offeredAbove(group, controller string) bool {
	for dir := filepath.Dir(group); len(dir) > 1; dir = filepath.Dir(dir) {
		if offers(dir, controller) {
			return true
		}
	}
	return false
}

// enable delegates a controller to the tree's groups. A group with processes cannot delegate:
// then the agent moves itself to a leaf group, which helps if it is the only process.
func (t *Tree) enable(parent, controller string, version func() int) error {
	paths, err := pathsOf("self")
	if err != nil {
		return err
	}
	if unit := serviceOf(paths[unified]); unit != "" {
		return errs.New(errs.Unavailable, "systemd has put the agent directly into the control group of %s, where it cannot limit instances: %s", unit, delegationAdvice(unit, version()))
	}
	err = delegate(parent, controller)
	if errors.Is(err, unix.EBUSY) {
		if err = moveToLeaf(parent); err == nil {
			err = delegate(parent, controller)
		}
	}
	if errors.Is(err, unix.EBUSY) {
		return errs.New(errs.Unavailable, "the agent shares its control group with other processes: %s", scopeAdvice)
	}
	if err != nil {
		return err
	}
	return delegate(t.dir, controller)
}

func delegate(group, controller string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0)
}

func moveToLeaf(parent string) error {
	dir := filepath.Join(parent, leaf)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}
