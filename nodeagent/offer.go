package nodeagent

import (
	"log/slog"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/usage"
)

// roomSettings maps the fields of a node's room to their settings, and capacitySettings
// the same fields to the settings of its capacity.
var (
	roomSettings = map[string]string{
		"reserved.memoryMb": "reserve-memory", "reserved.cpu": "reserve-cpu", "reserved.diskReservationMb": "reserve-disk",
		"cpuFactor": "cpu-factor", "maxInstances": "max-instances",
	}
	capacitySettings = map[string]string{"reserved.memoryMb": "memory", "reserved.cpu": "cpu"}
)

// CheckOffer checks a node's capacity (memory in MiB, CPU in hundredths of a core, 0 for
// that of the host) and its room. Each error is Invalid and names the setting.
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

// capacity is the configured capacity. Parts that are not configured are those of the host.
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

// warnNoOffer warns if the node leaves nothing for instances.
func warnNoOffer(log *slog.Logger, capacity fleet.Resources, room fleet.NodeRoom) {
	free, err := room.Of(capacity)
	if err != nil {
		log.Error("the host reports an impossible capacity: set memory and cpu", "problem", errs.MessageOf(err))
		return
	}
	short := func(what, setting string, free, reserved int) {
		if reserved > 0 && free == 0 {
			log.Warn("the node reserves all of its "+what+", so no instance fits: lower "+setting, "reserved", reserved)
		}
	}
	short("memory", "reserve-memory", free.MemoryMiB, room.Reserved.MemoryMiB)
	short("CPU", "reserve-cpu", free.CPU, room.Reserved.CPU)
	short("disk", "reserve-disk", free.DiskMiB, room.Reserved.DiskMiB)
}

// limitsOf are the limits that the host enforces on instances, including the bound of their logs.
func limitsOf(l fleet.NodeLimits, dir string) fleet.NodeLimits {
	if err := console.Bounded(dir); err != nil {
		l.Why = strings.TrimPrefix(l.Why+"; "+errs.MessageOf(err), "; ")
	}
	return l
}

// warnPortReuse warns if the agent cannot wait for leftover connections on a server's port.
func warnPortReuse(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("cannot see leftover connections: a restarted server whose port still has some fails as if another program held the port", "why", errs.MessageOf(err))
	}
}

// logLimits logs which limits the host enforces on instances.
func logLimits(log *slog.Logger, l fleet.NodeLimits) {
	if l.Why == "" {
		log.Info("the host enforces the limits of instances", "by", l.By)
		return
	}
	log.Warn("the host does not enforce all limits of instances", "by", l.By, "held", l.Held, "why", l.Why)
}
