#!/usr/bin/env bash
# Builds what docker-compose.yml runs without a registry: static binaries into bin/ beside
# this script, the agents' base image where there is none, and an image per target of the
# Dockerfile. It prints the digest of each image, and writes them to bin/images of the repository.
#
#   deployments/docker/build.sh [TARGET…]
#   deployments/docker/build.sh binaries     only bin/
#   deployments/docker/build.sh version      prints the version that the programs report
#
# ORRERY_TAG is the images' tag (dev). BASE is a base image to use instead of base.sh's.
# ORRERY_VERSION is the version that the programs report; by default git's tag and commit.
set -euo pipefail
cd "$(dirname "$0")"

TAG=${ORRERY_TAG:-dev}
export BASE=${BASE:-orrery/base:12}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
	targets=(etcd apigateway scheduler enforcer templatesvc agent agent-demo init)
fi

version() {
	if [ -n "${ORRERY_VERSION:-}" ]; then
		echo "$ORRERY_VERSION"
	else
		git describe --tags --always --dirty 2>/dev/null || echo devel
	fi
}

binaries() {
	local services=(apigateway scheduler enforcer templatesvc nodeagent) packages=()
	local flags=(-trimpath -ldflags "-s -w -X github.com/orreryhq/orrery/libs/telemetry.version=$(version)")
	for service in "${services[@]}"; do
		packages+=("./$service/cmd/$service")
	done
	mkdir -p bin
	export CGO_ENABLED=0 GOOS=linux
	go build -C ../.. "${flags[@]}" -o deployments/docker/bin/ "${packages[@]}" ./cli/cmd/orrery ./examples/arena/cmd/arena
	GOWORK=off go build -C etcd "${flags[@]}" -o ../bin/etcd go.etcd.io/etcd/server/v3
	GOWORK=off go build -C etcd "${flags[@]}" -o ../bin/etcdctl go.etcd.io/etcd/etcdctl/v3
	cp init.sh bin/
}

# dockerfile is the Dockerfile with bin/ in the place of the stage that compiles.
dockerfile() {
	sed '/^# compile:/,/^# compiled\.$/c\
FROM scratch AS binaries\
COPY bin /out' Dockerfile
}

case "${targets[*]}" in
binaries | version)
	"${targets[0]}"
	exit
	;;
esac
./base.sh & # waits for packages for about as long as the compiler takes
base=$!
trap wait EXIT
binaries
wait "$base"
digests=../../bin/images
mkdir -p ../../bin
: >"$digests"
for target in "${targets[@]}"; do
	digest=$(dockerfile | docker build --quiet --network none --build-arg "BASE=$BASE" --target "$target" --tag "orrery/$target:$TAG" --file - .)
	echo "orrery/$target:$TAG $digest" | tee -a "$digests"
done
