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

// controller is one of the kernel's, by what limit it holds.
type controller struct {
	limit string
	// v2 and v1 are its names in the two versions.
	v2, v1 string
	// values are what is written into a group's files for a run's limits; none when they
	// need nothing of it.
	values func(p part, want runtime.Limits) []value
}

// value is what is written into a file of a group. An optional file need not exist.
type value struct {
	file, value string
	optional    bool
}

// controllers are those that hold limits.
var controllers = []controller{
	{fleet.LimitMemory, "memory", "memory", memory},
	{fleet.LimitCPU, "cpu", "cpu", cpu},
	{fleet.LimitProcesses, "pids", "pids", processes},
	{fleet.LimitIO, "io", "blkio", disk},
}

const (
	// period is the time a processor quota is for, in µs.
	period = 100_000
	// wrapper is the shell around each command, which is no process of the instance's.
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
	// No memory.high: without swap the kernel slows a run down at that mark until it hardly
	// moves, long before it comes to its end.
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
	case p.dir != "": // 1,024 is the usual there
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

// disk writes each weight that the kernel has. Which of them counts is up to the scheduler
// of a device: io.bfq.weight with BFQ, io.weight where io.cost.qos is enabled.
func disk(p part, want runtime.Limits) []value {
	if want.IOWeight <= 0 {
		return nil
	}
	if p.dir != "" {
		weight := strconv.Itoa(min(max(want.IOWeight, 10), 1000)) // their range
		return []value{{file: "blkio.weight", value: weight, optional: true}, {file: "blkio.bfq.weight", value: weight, optional: true}}
	}
	return []value{
		{file: "io.weight", value: "default " + strconv.Itoa(want.IOWeight), optional: true},
		{file: "io.bfq.weight", value: strconv.Itoa(min(want.IOWeight, 1000)), optional: true},
	}
}

// find finds the controller and makes the agent's part of its hierarchy: in version 2
// where the tree is and has it, else in version 1. The error says why it is of no use.
// version is the host's systemd's.
func (c controller) find(owner string, tree *Tree, own map[string]string, version func() int) (part, error) {
	p := part{controller: c}
	var refused error
	if parent, ok := own[unified]; ok && offers(parent, c.v2) {
		if tree == nil {
			refused = errs.New(errs.Unavailable, "the agent cannot make control groups below its own, %s: %s", parent, inScope)
		} else if refused = tree.enable(parent, c.v2, version); refused == nil {
			return p.checked(filepath.Join(tree.dir, "probe"))
		}
	}
	dir, ok := own[c.v1]
	switch {
	case !ok && refused != nil:
		return p, refused
	case !ok && offeredAbove(own[unified], c.v2):
		return p, errs.New(errs.Unavailable, "systemd does not give the agent's control group, %s, the controller: %s", own[unified], given(own[unified], version()))
	case !ok:
		return p, errs.New(errs.Unavailable, "the kernel offers no controller for it here")
	}
	p.dir = filepath.Join(dir, groupPrefix+owner)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return p, err
	}
	return p.checked(filepath.Join(p.dir, "probe"))
}

// checked makes sure that a group of the part takes every kind of limit.
func (p part) checked(probe string) (part, error) {
	if err := renew(probe); err != nil {
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

// offers reports whether a version 2 group may hand a controller on.
func offers(group, controller string) bool {
	b, _ := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(b)), controller)
}

// offeredAbove reports whether a group above a version 2 group may hand a controller on.
func offeredAbove(group, controller string) bool {
	for dir := filepath.Dir(group); len(dir) > 1; dir = filepath.Dir(dir) {
		if offers(dir, controller) {
			return true
		}
	}
	return false
}

// enable hands a controller on to the tree's groups. A group that has processes may
// not: then the agent moves itself out of the way, which helps where it is alone.
func (t *Tree) enable(parent, controller string, version func() int) error {
	paths, err := pathsOf("self")
	if err != nil {
		return err
	}
	if unit := serviceOf(paths[unified]); unit != "" {
		return errs.New(errs.Unavailable, "systemd has put the agent directly into the control group of %s, where it cannot limit instances: %s", unit, delegation(unit, version()))
	}
	err = handOn(parent, controller)
	if errors.Is(err, unix.EBUSY) {
		if err = stepAside(parent); err == nil {
			err = handOn(parent, controller)
		}
	}
	if errors.Is(err, unix.EBUSY) {
		return errs.New(errs.Unavailable, "the agent shares its control group with other processes: %s", inScope)
	}
	if err != nil {
		return err
	}
	return handOn(t.dir, controller)
}

func handOn(group, controller string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0)
}

func stepAside(parent string) error {
	dir := filepath.Join(parent, leaf)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}
