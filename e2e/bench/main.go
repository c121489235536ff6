// Command bench measures Orrery from its users' point of view on the current machine. It
// prints one line per figure:
//
//	BENCH <id> <value> <unit> limit=<what the machine itself allowed in this run, or ->
//
// Figures are medians of many samples. The command only measures; nothing passes or fails.
//
//	go run ./e2e/bench -run 'launch|idle'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// family is a set of figures that are measured together.
type family struct {
	name    string
	measure func(context.Context, *bench) error
}

var families = []family{
	{"place-memory", measurePlaceMemory},
	{"place-etcd", measurePlaceEtcd},
	{"place-shared", measurePlaceShared},
	{"place-process", measurePlaceProcess},
	{"place-scaling", measurePlaceScaling},
	{"idle", measureIdle},
	{"launch", measureLaunch},
	{"trace", measureTrace},
	{"port", measurePort},
	{"survive", measureSurvive},
	{"survive-mass-loss", measureMassLoss},
	{"survive-paused-leader", measurePausedLeader},
	{"survive-enforcer-outage", measureEnforcerOutage},
	{"rest", measureRest},
	{"adopt", measureAdopt},
	{"console", measureConsole},
	{"api", measureAPI},
	{"events", measureEvents},
	{"certificates", measureCertificates},
	{"operate", measureOperate},
	{"groups", measureGroups},
	{"fleet100k", measureLargeFleet},
	{"template", measureTemplate},
	{"content", measureContent},
	{"cli", measureCLI},
	{"ui", measureUI},
	{"ui-large", measureLargeUI},
	{"ui-console", measureUIConsole},
}

// bench is the common state of the families.
type bench struct {
	out io.Writer
	// dir is a scratch directory, removed at the end.
	dir string
	// memory is a scratch directory in memory, removed at the end. It holds the programs'
	// run directories, as the systemd units configure them.
	memory string
	// etcdDir is the parent of etcd's directories if it is not dir.
	etcdDir string
	// standalone and arena are the built programs.
	standalone, arena string
	// contentMiB is the size of the largest template.
	contentMiB int
	// fleetShare is the divisor of the size of the large fleet.
	fleetShare int
	// uiEvents is how many events a dashboard receives before its memory is measured.
	uiEvents int
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	pattern := fs.String("run", ".", "regular expression of the families to measure")
	size := fs.Int("content-mib", contentMiB, "size of the template of the family content; smaller ones for a quick look")
	share := fs.Int("fleet-share", 1, "divide the size of the family fleet100k by this, for a quick look")
	events := fs.Int("ui-events", uiEvents, "how many events the family ui sends to a dashboard before it measures its memory; 360000 for six minutes of them")
	profile := fs.String("cpuprofile", "", "write a profile of this program's processor time to a file")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(stderr, "bench: -run:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(stderr, "bench: -cpuprofile:", err)
			return 2
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			fmt.Fprintln(stderr, "bench: -cpuprofile:", err)
			return 2
		}
		defer pprof.StopCPUProfile()
	}
	if err := measureAll(ctx, wanted, &bench{out: stdout, contentMiB: *size, fleetShare: max(1, *share), uiEvents: *events}, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func measureAll(ctx context.Context, wanted *regexp.Regexp, b *bench, stderr io.Writer) error {
	began := time.Now()
	dir, err := os.MkdirTemp("", "orrery-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // instances run as other users
		return err
	}
	memory, err := os.MkdirTemp("/dev/shm", "orrery-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(memory)
	b.dir, b.memory = dir, memory
	if b.standalone, err = b.build(ctx, "./standalone"); err != nil {
		return err
	}
	if b.arena, err = b.build(ctx, "./examples/arena/cmd/arena"); err != nil {
		return err
	}
	for _, f := range families {
		if !wanted.MatchString(f.name) {
			continue
		}
		fmt.Fprintln(stderr, "measuring", f.name)
		family := time.Now()
		if err := f.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(stderr, "measured %s in %s, %s in all\n", f.name, elapsed(family), elapsed(began))
	}
	return nil
}

func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

func (b *bench) build(ctx context.Context, pkg string) (string, error) {
	bin := filepath.Join(b.dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building %s (run this from the repository's root): %w", pkg, err)
	}
	return bin, nil
}

// report prints one figure. A negative limit means none.
func (b *bench) report(id string, value float64, unit string, limit float64) {
	l := "-"
	if limit >= 0 {
		l = short(limit)
	}
	fmt.Fprintf(b.out, "BENCH %s %s %s limit=%s\n", id, short(value), unit, l)
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// quantile returns a quantile of durations in milliseconds.
func quantile(ds []time.Duration, q float64) float64 {
	s := slices.Sorted(slices.Values(ds))
	return milliseconds(s[int(q*float64(len(s)-1)+0.5)])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
