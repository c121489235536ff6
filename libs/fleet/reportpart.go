package fleet

import (
	"encoding/json"
	"math"
	"time"
)

// ReportParts is the number of records that hold the live figures of a node's instances,
// so that a player who joins rewrites one of them and not the node's report.
const ReportParts = 16

// ReportPart is a part of the live figures of a node's instances. The node's agent writes
// it; its key goes with the part's last instance.
type ReportPart struct {
	Rev
	At        time.Time
	Instances map[InstanceID]InstanceReport
}

// Part is the part of a node's figures that the instance belongs to, from 0 to
// ReportParts-1.
func (id InstanceID) Part() int { return int(hash(string(id)) % ReportParts) }

// hash is FNV-1a.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h ^= uint32(s[i])
		h *= 16777619
	}
	return h
}

// reportPartRecord is a ReportPart as it is stored. At is in milliseconds. Of has an array
// for each instance: players, maximum, 1 if the players are known, one more than the
// seconds from the last heartbeat to At, ten times the ticks per second, the memory in MiB,
// one more than the CPU in thousandths of a core, and one more than the disk space in MiB.
// Zeros at the end of an array are left out.
type reportPartRecord struct {
	At int64                  `json:"at"`
	Of map[InstanceID][]int64 `json:"of"`
}

// MarshalJSON writes the part without names of fields: it is written often.
func (p ReportPart) MarshalJSON() ([]byte, error) {
	out := reportPartRecord{At: p.At.UnixMilli(), Of: make(map[InstanceID][]int64, len(p.Instances))}
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

// UnmarshalJSON reads what MarshalJSON writes. It ignores further numbers of an array.
func (p *ReportPart) UnmarshalJSON(b []byte) error {
	var in reportPartRecord
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	p.At = time.UnixMilli(in.At).UTC()
	p.Instances = make(map[InstanceID]InstanceReport, len(in.Of))
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

// stored is the usage as reportPartRecord has it.
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

// storedUsage is the usage that was stored so.
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
