#!/usr/bin/env bash
# Builds the guest of the rig: a Debian 12 with systemd, as an image of its disk, its
# kernel and its initrd. It needs root, debootstrap and mkfs.ext4.
#
#   e2e/vm/guest.sh [DIRECTORY]
#
# DIRECTORY is by default the one where the rig looks: it is named by the hash of this
# script, so a change of the script makes another guest. A guest that exists is kept.
set -euo pipefail

name=orrery-guest-$(sha256sum "$0" | cut -c -16)
DIRECTORY=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/$name}
SUITE=bookworm
MIRROR=${MIRROR:-http://deb.debian.org/debian}
PACKAGES=(
	# what boots, on control groups of version 2
	systemd systemd-sysv dbus udev linux-image-cloud-amd64 initramfs-tools
	# what the rig speaks to over a virtio port
	qemu-guest-agent
	# what the documents and the runtimes of instances use
	ca-certificates curl iproute2 procps screen tmux
	# a container engine, without what only builds images or filters packets
	apparmor docker.io busybox-static
)

if [ -e "$DIRECTORY/initrd" ]; then
	exit 0
fi
# What debootstrap mounts and starts ends with this script, however it ends.
if [ "${ORRERY_GUEST_BUILD:-}" != inside ]; then
	ORRERY_GUEST_BUILD=inside exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
mkdir -p "$(dirname "$DIRECTORY")"
work=$(mktemp -d "$DIRECTORY.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root

# The disk of the build needs no flush after each file: a build that breaks off is thrown away.
mkdir -p "$root/etc/dpkg/dpkg.cfg.d" "$root/etc/initramfs-tools/conf.d"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
printf 'path-exclude=/usr/share/%s/*\n' doc man locale >"$root/etc/dpkg/dpkg.cfg.d/small"

debootstrap --variant=minbase --include="$(IFS=,; echo "${PACKAGES[*]}")" "$SUITE" "$root" "$MIRROR" >"$work/log" 2>&1 ||
	{ tail -n 20 "$work/log" >&2; exit 1; }

rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
rm "$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
echo guest >"$root/etc/hostname"
cat >"$root/etc/fstab" <<-END
	/dev/vda / ext4 defaults 0 1
	LABEL=payload /payload ext4 ro,noauto 0 0
END
mkdir "$root/payload"
: >"$root/etc/machine-id" # each guest makes its own
mkdir -p "$root/var/log/journal" # the journal outlives a restart
# An engine runs only where a scenario starts it. A guest has no clock to ask and nothing to update.
ln -sf /dev/null "$root/etc/systemd/system/apt-daily.timer"
ln -sf /dev/null "$root/etc/systemd/system/apt-daily-upgrade.timer"
for unit in docker.service docker.socket containerd.service e2scrub_reap.service; do
	systemctl --root "$root" --quiet disable "$unit"
done
# A guest emulated on a busy machine starts slowly: nothing of it is given up early.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultTimeoutStartSec=10min\nDefaultDeviceTimeoutSec=10min\n' >"$root/etc/systemd/system.conf.d/slow.conf"

mkdir "$work/guest"
cp "$root"/boot/vmlinuz-* "$work/guest/kernel"
mkfs.ext4 -q -L guest -d "$root" "$work/guest/disk" 4G
cp "$root"/boot/initrd.img-* "$work/guest/initrd.new"
mv "$work/guest/initrd.new" "$work/guest/initrd"
chmod -R a+rX "$work/guest"
mv -T "$work/guest" "$DIRECTORY"
