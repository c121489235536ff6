package app

import (
	"runtime/debug"
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

// Released reports whether a version is that of a release. Programs built from a checkout have none to compare.
func Released(version string) bool { return strings.ContainsAny(version, "0123456789") }
