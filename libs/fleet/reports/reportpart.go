package reports

import (
	"encoding/json"
	"math"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// ReportPart is a part of the live figures of a node's instances. The node's agent writes it. Its
// key is removed with the part's last instance.
type ReportPart struct {
	record.Rev
	At        time.Time
	Instances map[fleet.InstanceID]InstanceReport
}

// reportPartRecord is the stored form of a ReportPart. At is in milliseconds. Of has an array per
// instance: players, maximum, 1 if the players are known, seconds from the last heartbeat to At
// plus one, ticks per second times ten, memory in MiB, CPU in thousandths of a core plus one, disk
// in MiB plus one. Zeros at the end of an array are omitted.
type reportPartRecord struct {
	At int64                        `json:"at"`
	Of map[fleet.InstanceID][]int64 `json:"of"`
}

// MarshalJSON encodes the part without field names, because it is written often.
func (p ReportPart) MarshalJSON() ([]byte, error) {
	out := reportPartRecord{At: p.At.UnixMilli(), Of: make(map[fleet.InstanceID][]int64, len(p.Instances))}
	for id, r := range p.Instances {
		a := []int64{int64(r.Players), int64(r.MaxPlayers), 0, 0, int64(math.Round(10 * r.TPS))}
		if r.PlayersKnown {
			a[2] = 1
		}
		if !r.HeartbeatAt.IsZero() {
			a[3] = 1 + max(0, int64(p.At.Sub(r.HeartbeatAt)/time.Second))
		}
		a = append(a, r.Usage.stored()...)
		for len(a) > 0 && a[len(a)-1] == 0 {
			a = a[:len(a)-1]
		}
		out.Of[id] = a
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes what MarshalJSON writes. It ignores further numbers in an array.
func (p *ReportPart) UnmarshalJSON(b []byte) error {
	var in reportPartRecord
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	p.At = time.UnixMilli(in.At).UTC()
	p.Instances = make(map[fleet.InstanceID]InstanceReport, len(in.Of))
	for id, a := range in.Of {
		var v [8]int64
		copy(v[:], a)
		r := InstanceReport{Players: int(v[0]), MaxPlayers: int(v[1]), PlayersKnown: v[2] != 0, TPS: float64(v[4]) / 10}
		if v[3] != 0 {
			r.HeartbeatAt = p.At.Add(-time.Duration(v[3]-1) * time.Second)
		}
		r.Usage = storedUsage(v[5], v[6], v[7])
		p.Instances[id] = r
	}
	return nil
}

// stored returns the usage as stored in reportPartRecord.
func (u Usage) stored() []int64 {
	var memory, cpu, disk int64
	if n := u.UsedMemory(); n != nil {
		memory = *n
	}
	if u.CPUKnown {
		cpu = 1 + int64(math.Round(10*u.CPU))
	}
	if n := u.UsedDisk(); n != nil {
		disk = 1 + *n
	}
	return []int64{memory, cpu, disk}
}

// storedUsage is the inverse of Usage.stored.
func storedUsage(memory, cpu, disk int64) (u Usage) {
	u.MemoryBytes = memory * mebibyte
	if cpu > 0 {
		u.CPU, u.CPUKnown = float64(cpu-1)/10, true
	}
	if disk > 0 {
		u.DiskBytes, u.DiskKnown = (disk-1)*mebibyte, true
	}
	return u
}
