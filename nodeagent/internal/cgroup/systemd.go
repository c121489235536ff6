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
	// subgroupVersion is the first systemd that knows DelegateSubgroup.
	subgroupVersion = 254
	// versionTimeout bounds the question for systemd's version.
	versionTimeout = 5 * time.Second
	// inScope says how a program that is no service gets a control group of its own.
	inScope = "start it in one of its own, with systemd-run --scope -p Delegate=yes COMMAND, and --user after systemd-run if you are not root"
)

// serviceOf is the unit whose very control group a path is; empty for any other group.
// systemd starts each main process of a unit in that group. While groups below hold
// instances to limits it cannot put the next agent there, and that one would not start. So
// an agent in such a group hands no controllers on.
func serviceOf(group string) string {
	if unit := path.Base(group); strings.HasSuffix(unit, ".service") {
		return unit
	}
	return ""
}

// delegation says what makes a version of systemd start a unit's agent below the unit's
// control group. Version 0 is one that is not known.
func delegation(unit string, version int) string {
	setting := fmt.Sprintf("Delegate=yes and DelegateSubgroup=%s in its [Service] section", leaf)
	if version > 0 && version < subgroupVersion {
		return fmt.Sprintf("systemd %d does not know DelegateSubgroup; install version %d or later (on Debian 12: apt-get install -t bookworm-backports systemd), "+
			"see that %s has %s, and restart it", version, subgroupVersion, unit, setting)
	}
	return fmt.Sprintf("run systemctl edit %s, set %s, and restart it; DelegateSubgroup needs systemd %d or later", unit, setting, subgroupVersion)
}

// given says what makes a version of systemd give all controllers to the control group of
// the agent.
func given(group string, version int) string {
	if strings.Contains(group, "/user@") {
		return "run systemctl edit user@.service as root, set Delegate=cpu cpuset io memory pids in its [Service] section, restart the host, and " + inScope
	}
	if unit := serviceOf(group); unit != "" {
		return delegation(unit, version)
	}
	return inScope
}

// systemdVersion is the version of the host's systemd, 0 when it is not known.
func systemdVersion() int {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	if err != nil {
		return 0
	}
	return parseVersion(string(out))
}

// parseVersion reads the number of "systemd 252 (252.39-1~deb12u1)"; 0 of anything else.
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
