package fleet

import (
	"github.com/orreryhq/orrery/libs/errs"
)

// Resources is what one instance reserves or what a node has.
type Resources struct {
	// MemoryMiB is both the reservation and the limit of memory. 0 reserves nothing.
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// CPU is a reservation and a weight, in hundredths of a core. 0 reserves nothing.
	CPU int `json:"cpu,omitempty"`
	// DiskMiB is reserved disk space. 0 reserves nothing.
	DiskMiB int `json:"diskMiB,omitempty"`
}

// Add returns r plus o.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.MemoryMiB + o.MemoryMiB, r.CPU + o.CPU, r.DiskMiB + o.DiskMiB}
}

// Sub returns r minus o. Parts may be negative.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.MemoryMiB - o.MemoryMiB, r.CPU - o.CPU, r.DiskMiB - o.DiskMiB}
}

// Fits reports whether free contains at least what r asks for.
func (r Resources) Fits(free Resources) bool {
	return (r.MemoryMiB <= 0 || r.MemoryMiB <= free.MemoryMiB) &&
		(r.CPU <= 0 || r.CPU <= free.CPU) &&
		(r.DiskMiB <= 0 || r.DiskMiB <= free.DiskMiB)
}

// These limits prevent overflows of sums and catch typing errors.
const (
	MaxMemoryMiB = 16 << 20 // 16 TiB
	MaxCPU       = 1 << 20  // 10,485 cores
	maxDiskMiB   = 1 << 30  // 1 PiB
)

func (r Resources) validate() []error {
	var problems []error
	check := func(field string, v, limit int) {
		switch {
		case v < 0:
			problems = append(problems, errs.Field(field, "must not be negative, is %d", v))
		case v > limit:
			problems = append(problems, errs.Field(field, "must be at most %d, is %d", limit, v))
		}
	}
	check("memoryMb", r.MemoryMiB, MaxMemoryMiB)
	check("cpu", r.CPU, MaxCPU)
	check("diskReservationMb", r.DiskMiB, maxDiskMiB)
	return problems
}

// PortRange is an inclusive range of ports.
type PortRange struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Contains reports whether the port is in the range.
func (p PortRange) Contains(port int) bool { return port >= p.Start && port <= p.End }

// Len returns the number of ports in the range.
func (p PortRange) Len() int { return max(0, p.End-p.Start+1) }

func (p PortRange) validate(startField, endField string) []error {
	var problems []error
	inRange := func(field string, v int) {
		if v < 1 || v > 65535 {
			problems = append(problems, errs.Field(field, "must be between 1 and 65535, is %d", v))
		}
	}
	inRange(startField, p.Start)
	inRange(endField, p.End)
	if len(problems) == 0 && p.Start > p.End {
		problems = append(problems, errs.Field(startField, "must not be greater than %s (%d > %d): set both", endField, p.Start, p.End))
	}
	return problems
}

// NamedPort is an additional port of an instance, available as %PORT_<NAME>%.
type NamedPort struct {
	Name     string    `json:"name"`
	Protocol string    `json:"protocol"` // "tcp" or "udp"
	Range    PortRange `json:"range"`
}
