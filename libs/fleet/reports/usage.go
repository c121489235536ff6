package reports

// Usage is the resource usage of a running instance. The zero value means unknown.
type Usage struct {
	// MemoryBytes is the resident memory of its processes, 0 if unknown.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// CPU is its recent CPU usage in hundredths of a core.
	CPU      float64 `json:"cpu,omitempty"`
	CPUKnown bool    `json:"cpuKnown,omitempty"`
	// DiskBytes is the size of its directory.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	DiskKnown bool  `json:"diskKnown,omitempty"`
}

// UsedMemory returns the memory in MiB, rounded up, nil if unknown.
func (u Usage) UsedMemory() *int64 { return mebibytes(u.MemoryBytes, u.MemoryBytes > 0) }

// UsedDisk returns the disk space in MiB, rounded up, nil if unknown.
func (u Usage) UsedDisk() *int64 { return mebibytes(u.DiskBytes, u.DiskKnown) }

// UsedCPU returns the CPU usage in hundredths of a core, nil if unknown.
func (u Usage) UsedCPU() *float64 {
	if !u.CPUKnown {
		return nil
	}
	return &u.CPU
}

// DiskOnly returns the part of the usage that remains after a run.
func (u Usage) DiskOnly() Usage { return Usage{DiskBytes: u.DiskBytes, DiskKnown: u.DiskKnown} }

const mebibyte = 1 << 20

func mebibytes(n int64, known bool) *int64 {
	if !known {
		return nil
	}
	n = (n + mebibyte - 1) / mebibyte
	return &n
}
