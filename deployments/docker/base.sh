#!/usr/bin/env bash
# Makes the base image of the agents, a small Debian with bash, tmux, screen and
# ca-certificates, unless it is there already.
#
#   deployments/docker/base.sh            orrery/base:12
#   BASE=mine/base:1 deployments/docker/base.sh
#
# With debootstrap and root it needs Debian's packages only. Otherwise it starts
# from FROM (debian:12-slim) and installs into that, which needs a registry too.
set -euo pipefail

BASE=${BASE:-orrery/base:12}
FROM=${FROM:-debian:12-slim}
PACKAGES=(bash ca-certificates procps screen tmux)

if docker image inspect "$BASE" >/dev/null 2>&1; then
	exit 0
fi

bootstrap() {
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	debootstrap --variant=minbase --include="$(IFS=,; echo "${PACKAGES[*]}")" bookworm "$root"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
	tar -C "$root" --numeric-owner -c . | docker import --change 'CMD ["bash"]' - "$BASE"
}

extend() {
	container=$(docker create "$FROM" sh -c \
		"apt-get update && apt-get install -y --no-install-recommends ${PACKAGES[*]} && rm -rf /var/lib/apt/lists/*")
	trap 'docker rm -f "$container" >/dev/null' EXIT
	docker start --attach "$container"
	docker commit --change 'CMD ["bash"]' "$container" "$BASE"
}

if command -v debootstrap >/dev/null && [ "$(id -u)" -eq 0 ]; then
	bootstrap
else
	extend
fi
