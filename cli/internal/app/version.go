package app

import (
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Version returns the version of this program.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}

// version is set by the linker.
var version string

// VersionsDiffer reports whether two versions are those of different releases.
func VersionsDiffer(a, b string) bool {
	return Released(a) && Released(b) && strings.TrimPrefix(a, "v") != strings.TrimPrefix(b, "v")
}

// VersionNote says how the release of the server differs from that of this program; empty if it does not.
func VersionNote(own, server string) string {
	if !VersionsDiffer(own, server) {
		return ""
	}
	its, mine := numbers(server), numbers(own)
	switch order := slices.Compare(its, mine); {
	case len(its) == 0, len(mine) == 0, order == 0:
	case order < 0:
		return "the server is older than this program: it may refuse what this program can do"
	default:
		return "the server is newer than this program: install the orrery of version " + server + " to use all that it can do"
	}
	return "the versions differ: one of them may lack what the other has"
}

// numbers returns the numbers of a release: 1, 2 and 0 of v1.2.0-rc.1.
func numbers(version string) (all []int) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return all
		}
		all = append(all, n)
	}
	return all
}

// Released reports whether a version is that of a release. Programs built from a checkout have none to compare.
func Released(version string) bool { return strings.ContainsAny(version, "0123456789") }
