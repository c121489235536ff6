package nodeagent

import (
	"log/slog"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/usage"
)

// roomSettings name the settings behind the parts of a node's room, capacitySettings
// those behind the same parts of its capacity.
var (
	roomSettings = map[string]string{
		"reserved.memoryMb": "reserve-memory", "reserved.cpu": "reserve-cpu", "reserved.diskReservationMb": "reserve-disk",
		"cpuFactor": "cpu-factor", "maxInstances": "max-instances",
	}
	capacitySettings = map[string]string{"reserved.memoryMb": "memory", "reserved.cpu": "cpu"}
)

// CheckOffer lists what is wrong with what a node shall offer (memory in MiB, CPU in
// hundredths of a core, 0 for what the host has) and with its room, each an Invalid
// error that names the setting.
func CheckOffer(memoryMiB, cpu int, room fleet.NodeRoom) []error {
	var problems []error
	check := func(r fleet.NodeRoom, settings map[string]string) {
		for _, err := range r.Validate() {
			problems = append(problems, errs.Field(settings[errs.FieldOf(err)], "%s", errs.MessageOf(err)))
		}
	}
	check(fleet.NodeRoom{Reserved: fleet.Resources{MemoryMiB: memoryMiB, CPU: cpu}}, capacitySettings)
	check(room, roomSettings)
	return problems
}

// capacity is what the node has: as configured, else what the host has.
func (a *Agent) capacity() fleet.Resources {
	c := usage.Capacity(a.cfg.DataDir)
	if a.cfg.MemoryMiB > 0 {
		c.MemoryMiB = a.cfg.MemoryMiB
	}
	if a.cfg.CPU > 0 {
		c.CPU = a.cfg.CPU
	}
	return c
}

// tellOffer warns when the node has nothing to give: it would stand idle without a word.
func tellOffer(log *slog.Logger, capacity fleet.Resources, room fleet.NodeRoom) {
	free, err := room.Of(capacity)
	if err != nil {
		log.Error("the host says something impossible of itself: set memory and cpu by hand", "problem", errs.MessageOf(err))
		return
	}
	short := func(what, setting string, free, reserved int) {
		if reserved > 0 && free == 0 {
			log.Warn("nothing of the node's "+what+" is left to instances: lower "+setting, "reserved", reserved)
		}
	}
	short("memory", "reserve-memory", free.MemoryMiB, room.Reserved.MemoryMiB)
	short("CPU", "reserve-cpu", free.CPU, room.Reserved.CPU)
	short("disk", "reserve-disk", free.DiskMiB, room.Reserved.DiskMiB)
}

// limitsOf is which limits of instances the host holds, the bound of their logs included.
func limitsOf(l fleet.NodeLimits, dir string) fleet.NodeLimits {
	if err := console.Bounded(dir); err != nil {
		l.Why = strings.TrimPrefix(l.Why+"; "+errs.MessageOf(err), "; ")
	}
	return l
}

// tellPorts warns when servers cannot wait for the leftover connections on their ports.
func tellPorts(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("a server whose port still has connections of its last run is FAILED, as if another program held the port", "why", errs.MessageOf(err))
	}
}

// tellLimits tells which limits of instances the host holds: once, for it concerns them all.
func tellLimits(log *slog.Logger, l fleet.NodeLimits) {
	if l.Why == "" {
		log.Info("instances are held to their limits", "by", l.By)
		return
	}
	log.Warn("instances are not held to all of their limits", "by", l.By, "held", l.Held, "why", l.Why)
}
