// Package usage reads the host's capacity and its resource usage.
package usage

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
)

const mib = 1 << 20

// Capacity is the host's capacity: memory within the limit of the agent's control group, the
// processors available to it, and the disk of its data directory. Unknown parts are 0.
func Capacity(dataDir string) fleet.Resources {
	_, disk := Disk(dataDir)
	memory := meminfo("MemTotal")
	if limit := memoryLimit(); limit > 0 && (memory == 0 || limit < memory) {
		memory = limit
	}
	return fleet.Resources{MemoryMiB: memory, CPU: runtime.NumCPU() * 100, DiskMiB: disk}
}

// Disk is the free and total space of the filesystem of dir, in MiB.
func Disk(dir string) (free, total int) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, 0
	}
	size := uint64(s.Bsize)
	return int(s.Bavail * size / mib), int(s.Blocks * size / mib)
}

// Memory is the host's used memory, in MiB.
func Memory() int { return max(0, meminfo("MemTotal")-meminfo("MemAvailable")) }

func meminfo(field string) int {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib / 1024
		}
	}
	return 0
}

// memoryLimit is the memory limit of the agent's own control group in MiB; 0 without one.
func memoryLimit() int {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		file := ""
		switch {
		case parts[0] == "0":
			file = filepath.Join("/sys/fs/cgroup", parts[2], "memory.max")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			file = filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		default:
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// "max", or a number near the maximum, means no limit.
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && n < 1<<50 {
			return int(n / mib)
		}
	}
	return 0
}

// Processor measures CPU usage between two calls of Used.
type Processor struct{ busy, total uint64 }

// Used is the used share of all processors since the last call, 0 to 1. The first call returns 0.
func (p *Processor) Used() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	fields := strings.Fields(string(line))
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0
	}
	var total, idle uint64
	for n, f := range fields[1:min(len(fields), 9)] { // user time includes guest time
		v, _ := strconv.ParseUint(f, 10, 64)
		total += v
		if n == 3 || n == 4 {
			idle += v
		}
	}
	busy := total - idle
	last := *p
	*p = Processor{busy, total}
	if last.total == 0 || total <= last.total || busy < last.busy {
		return 0
	}
	return float64(busy-last.busy) / float64(total-last.total)
}

// Host describes the host for people.
func Host() fleet.HostInfo {
	h := fleet.HostInfo{
		OSName: runtime.GOOS, Arch: runtime.GOARCH, LogicalCores: runtime.NumCPU(), TotalMiB: meminfo("MemTotal"),
	}
	h.Hostname, _ = os.Hostname()
	release := keyed("/etc/os-release", "=")
	if name := strings.Trim(release["NAME"], `"`); name != "" {
		h.OSName, h.OSVersion = name, strings.Trim(release["VERSION_ID"], `"`)
	}
	h.CPUModel = keyed("/proc/cpuinfo", ":")["model name"]
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		h.PhysicalCores = physicalCores(string(b))
	}
	if b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); err == nil {
		kHz, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		h.MaxFreqHz = kHz * 1000
	}
	return h
}

// physicalCores counts the cores in the content of /proc/cpuinfo, where several processors may
// share one. 0 if it does not say.
func physicalCores(info string) int {
	cores, socket := map[string]bool{}, ""
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "physical id":
			socket = strings.TrimSpace(value)
		case "core id":
			cores[socket+"/"+strings.TrimSpace(value)] = true
		}
	}
	return len(cores)
}

// keyed reads lines of "key<sep>value". The first value of a key counts.
func keyed(path, sep string) map[string]string {
	values := map[string]string{}
	b, err := os.ReadFile(path)
	if err != nil {
		return values
	}
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, sep)
		if key = strings.TrimSpace(key); !ok || values[key] != "" {
			continue
		}
		values[key] = strings.TrimSpace(value)
	}
	return values
}
