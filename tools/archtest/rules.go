package main

import (
	"cmp"
	"fmt"
	"slices"
)

// rule is one sentence about the architecture and the check that finds what breaks it.
type rule struct {
	name     string
	sentence string
	// check looks at one package and calls found for every breach. It is nil for a rule about
	// documents or the whole tree.
	check func(p *pkg, found func(f *file, line int, what string))
	// read looks at one document in the same way. It may be nil.
	read func(t *tree, d document, found func(line int, what string))
	// survey looks at the whole tree. It may be nil.
	survey func(t *tree, found func(path string, line int, what string))
}

// finding is one place that breaks a rule.
type finding struct {
	path string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.what) }

// breach is a rule and everything that breaks it; it has at least one finding.
type breach struct {
	rule     rule
	findings []finding
}

// check applies the rules to the tree, in their order. No breach means all hold.
func check(t *tree, rules []rule) []breach {
	var broken []breach
	for _, r := range rules {
		var findings []finding
		for _, p := range t.packages {
			if r.check != nil {
				r.check(p, func(f *file, line int, what string) {
					findings = append(findings, finding{path: f.path, line: line, what: what})
				})
			}
		}
		for _, d := range t.documents {
			if r.read != nil {
				r.read(t, d, func(line int, what string) {
					findings = append(findings, finding{path: d.path, line: line, what: what})
				})
			}
		}
		if r.survey != nil {
			r.survey(t, func(path string, line int, what string) {
				findings = append(findings, finding{path: path, line: line, what: what})
			})
		}
		slices.SortFunc(findings, func(a, b finding) int {
			return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.what, b.what))
		})
		if len(findings) > 0 {
			broken = append(broken, breach{rule: r, findings: findings})
		}
	}
	return broken
}

// services are the modules whose walls the rules guard.
var services = []string{"apigateway", "enforcer", "nodeagent", "scheduler", "templatesvc"}

// purePackages return decisions as data; other packages carry them out.
var purePackages = []string{
	"libs/fleet",
	"libs/store/sharding",
	"enforcer/internal/move",
	"enforcer/internal/plan",
	"enforcer/internal/rollout",
	"enforcer/internal/scale",
	"enforcer/internal/sleep",
	"apigateway/internal/ops/scheduleops/timetable",
	"scheduler/internal/place",
	"scheduler/internal/budget",
	"templatesvc/internal/store/chunk",
	"scheduler/internal/preempt",
	"scheduler/internal/rebalance",
	"nodeagent/internal/instance/machine",
}

// rules is the architecture, one entry per sentence.
func rules() []rule {
	return []rule{
		{
			name:     "fleet-is-the-bottom",
			sentence: "libs/fleet is the domain: it imports the standard library and libs/errs only.",
			check:    importsOnly([]string{"libs/fleet"}, "libs/errs", "libs/fleet"),
		},
		{
			name:     "libs-know-no-service",
			sentence: "libs imports no other module of the repository: dependencies point from services to libs.",
			check:    moduleImports("libs", "libs"),
		},
		{
			name:     "sdk-stands-alone",
			sentence: "sdk imports no other module of the repository: programs outside it use sdk alone.",
			check:    moduleImports("sdk", "sdk"),
		},
		{
			name:     "cli-speaks-http",
			sentence: "cli imports only sdk from the repository, libs/pki to issue certificates offline, and libs/atomicfile: it does what any client of the HTTP API can do.",
			check:    moduleImports("cli", "cli", "sdk", "libs/pki", "libs/atomicfile", "libs/errs"),
		},
		{
			name:     "etcd-client",
			sentence: "libs/store is the only importer of etcd's client, so that keys, fences and comparisons have one home; e2e and the tests of standalone may look at the raw store.",
			check: confined(home{
				imports: []string{"go.etcd.io/etcd/client", "go.etcd.io/etcd/api"},
				dirs:    []string{"libs/store", "e2e"},
				tests:   []string{"standalone"},
			}),
		},
		{
			name:     "etcd-server",
			sentence: "etcd's embedded server lives in standalone, libs/store/storetest and e2e, never in a service.",
			check: confined(home{
				imports: []string{"go.etcd.io/etcd/server"},
				dirs:    []string{"standalone", "libs/store/storetest", "e2e"},
			}),
		},
		{
			name:     "viper",
			sentence: "viper lives in libs/config: other packages receive a typed Config.",
			check:    confined(home{imports: []string{"github.com/spf13/viper"}, dirs: []string{"libs/config"}}),
		},
		{
			name:     "gin",
			sentence: "gin lives in apigateway; e2e/bench/hello is gin alone, as a comparison for benchmarks of the gateway.",
			check: confined(home{
				imports: []string{"github.com/gin-gonic", "github.com/gin-contrib"},
				dirs:    []string{"apigateway", "e2e/bench/hello"},
			}),
		},
		{
			name:     "s3",
			sentence: "minio-go lives in templatesvc only.",
			check:    confined(home{imports: []string{"github.com/minio"}, dirs: []string{"templatesvc"}}),
		},
		{
			name:     "git",
			sentence: "go-git lives in templatesvc/internal/sources/git only.",
			check: confined(home{
				imports: []string{"github.com/go-git"},
				dirs:    []string{"templatesvc/internal/sources/git"},
			}),
		},
		{
			name:     "container-engine",
			sentence: "The container engine's client lives in nodeagent/internal/runtime/docker only.",
			check: confined(home{
				imports: []string{"github.com/moby/moby", "github.com/docker/docker"},
				dirs:    []string{"nodeagent/internal/runtime/docker"},
			}),
		},
		{
			name:     "services-meet-in-etcd",
			sentence: "No service imports another's packages except its client; standalone, e2e and tests may also import the module roots.",
			check:    servicesApart,
		},
		{
			name:     "pure-imports",
			sentence: "Pure packages import no I/O, no context and no logger, and nothing of ours but libs/fleet and libs/errs: they turn a snapshot into decisions, which other packages carry out.",
			check:    pureImports,
		},
		{
			name:     "pure-time",
			sentence: "Pure packages get now as an argument: they never read the clock or wait.",
			check:    pureTime,
		},
		{
			name:     "package-names",
			sentence: "A package is named for the thing it provides, never util, common, helper, misc, types, models, base or shared.",
			check:    packageNames,
		},
		{
			name:     "exported-packages",
			sentence: "A service exports its root, its client and its commands; everything else is internal.",
			check:    exportedPackages,
		},
		{
			name:     "package-size",
			sentence: "A package outside e2e has at most 3,000 lines without its tests and generated files: split it by area.",
			check:    packageSize,
		},
		{
			name:     "internal-entries",
			sentence: "A folder named internal has at most 14 entries: group packages by the part of the system they belong to.",
			survey:   internalEntries,
		},
		{
			name:     "package-comment",
			sentence: "Every package has a package comment that says what it is for and which invariants it keeps.",
			check:    packageComment,
		},
		{
			name:     "no-init",
			sentence: "No init functions: New wires by hand, in reading order.",
			check:    noInit,
		},
		{
			name:     "no-globals",
			sentence: "No package-level variables but errors, tables, compiled patterns and embedded files: loggers, clients, registries, clocks and locks are passed in or belong to a value.",
			check:    noGlobals,
		},
		{
			name:     "no-global-services",
			sentence: "No calls to a process-wide logger, registry or HTTP client: what a package uses is passed in.",
			check:    noGlobalServices,
		},
		{
			name:     "no-sleep-in-tests",
			sentence: "No time.Sleep in a test: wait for a condition with a deadline that prints the last state (in a synctest bubble, on time.After).",
			check:    noSleepInTests,
		},
		{
			name:     "documents-name-tests",
			sentence: "A test, fuzz test or benchmark that a document names exists, in the package that the document names.",
			read:     namesTests,
		},
	}
}
