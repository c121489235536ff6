package cgroup

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// subgroupVersion is the first systemd version with DelegateSubgroup.
	subgroupVersion = 254
	// versionTimeout limits the call of systemctl --version.
	versionTimeout = 5 * time.Second
	// scopeAdvice says how to start a program that is not a service in its own control group.
	scopeAdvice = "start it in one of its own, with systemd-run --scope -p Delegate=yes COMMAND, and --user after systemd-run if you are not root"
)

// serviceOf returns the unit whose own control group a path is; empty for another group. systemd
// starts the main process of a unit in that group. It cannot do that while the group has
// delegated controllers, and a restarted agent would not start. So an agent directly in such a
// group delegates none.
func serviceOf(group string) string {
	if unit := path.Base(group); strings.HasSuffix(unit, ".service") {
		return unit
	}
	return ""
}

// delegationAdvice says how to make systemd start a unit's agent in a subgroup. Version 0 is unknown.
func delegationAdvice(unit string, version int) string {
	setting := fmt.Sprintf("Delegate=yes and DelegateSubgroup=%s in its [Service] section", leaf)
	if version > 0 && version < subgroupVersion {
		return fmt.Sprintf("systemd %d does not know DelegateSubgroup; install version %d or later (on Debian 12: apt-get install -t bookworm-backports systemd), "+
			"see that %s has %s, and restart it", version, subgroupVersion, unit, setting)
	}
	return fmt.Sprintf("run systemctl edit %s, set %s, and restart it; DelegateSubgroup needs systemd %d or later", unit, setting, subgroupVersion)
}

// grantAdvice says how to make systemd delegate all controllers to the agent's control group.
func grantAdvice(group string, version int) string {
	if strings.Contains(group, "/user@") {
		return "run systemctl edit user@.service as root, set Delegate=cpu cpuset io memory pids in its [Service] section, restart the host, and " + scopeAdvice
	}
	if unit := serviceOf(group); unit != "" {
		return delegationAdvice(unit, version)
	}
	return scopeAdvice
}

// systemdVersion returns the version of the host's systemd; 0 if it is unknown.
func systemdVersion() int {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	if err != nil {
		return 0
	}
	return parseVersion(string(out))
}

// parseVersion parses "systemd 252 (252.39-1~deb12u1)"; 0 for anything else.
func parseVersion(text string) int {
	fields := strings.Fields(text)
	if len(fields) < 2 || fields[0] != "systemd" {
		return 0
	}
	number, _, _ := strings.Cut(fields[1], ".")
	number, _, _ = strings.Cut(number, "~")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
