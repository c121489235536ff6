package fleet

// Usage is what a running instance takes of its node's host. The zero value knows nothing.
type Usage struct {
	// MemoryBytes is the resident memory of its processes; 0 when it is not known.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// CPU is the processor time it took lately, in hundredths of a core.
	CPU      float64 `json:"cpu,omitempty"`
	CPUKnown bool    `json:"cpuKnown,omitempty"`
	// DiskBytes is what its directory holds.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	DiskKnown bool  `json:"diskKnown,omitempty"`
}

// UsedMemory is the memory in MiB, rounded up; nil when it is not known.
func (u Usage) UsedMemory() *int64 { return mebibytes(u.MemoryBytes, u.MemoryBytes > 0) }

// UsedDisk is the disk space in MiB, rounded up; nil when it is not known.
func (u Usage) UsedDisk() *int64 { return mebibytes(u.DiskBytes, u.DiskKnown) }

// UsedCPU is the processor time in hundredths of a core; nil when it is not known.
func (u Usage) UsedCPU() *float64 {
	if !u.CPUKnown {
		return nil
	}
	return &u.CPU
}

// DiskOnly is the part of the usage that outlives a run.
func (u Usage) DiskOnly() Usage { return Usage{DiskBytes: u.DiskBytes, DiskKnown: u.DiskKnown} }

const mebibyte = 1 << 20

func mebibytes(n int64, known bool) *int64 {
	if !known {
		return nil
	}
	n = (n + mebibyte - 1) / mebibyte
	return &n
}
