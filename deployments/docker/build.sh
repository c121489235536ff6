#!/usr/bin/env bash
# Builds what docker-compose.yml runs: static binaries into bin/ beside this
# script, the agents' base image where there is none, and an image per target of
# the Dockerfile. At the first time it also writes .env with a cluster secret and
# the admin's first password.
#
#   deployments/docker/build.sh [TARGET…]
#
# ORRERY_TAG is the images' tag (dev), BASE another base image than base.sh makes.
set -euo pipefail
cd "$(dirname "$0")"

TAG=${ORRERY_TAG:-dev}
export BASE=${BASE:-orrery/base:12}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
	targets=(etcd apigateway scheduler enforcer templatesvc agent agent-demo)
fi

binaries() {
	local flags=(-trimpath -ldflags '-s -w') services=(apigateway scheduler enforcer templatesvc nodeagent) packages=()
	for service in "${services[@]}"; do
		packages+=("./$service/cmd/$service")
	done
	mkdir -p bin
	export CGO_ENABLED=0 GOOS=linux
	go build -C ../.. "${flags[@]}" -o deployments/docker/bin/ "${packages[@]}" ./examples/arena/cmd/arena
	GOWORK=off go build -C etcd "${flags[@]}" -o ../bin/etcd go.etcd.io/etcd/server/v3
	GOWORK=off go build -C etcd "${flags[@]}" -o ../bin/etcdctl go.etcd.io/etcd/etcdctl/v3
}

# environment writes .env once; whoever has one keeps it.
environment() {
	local file=../../.env
	[ -e "$file" ] && return
	(umask 077 && cat >"$file" <<-END
		# Read by docker compose. The secret protects the calls between the services;
		# the password is the admin's at the first start.
		ORRERY_CLUSTER_SECRET=$(random)
		ORRERY_ADMIN_INITIAL_PASSWORD=$(random | cut -c1-20)
	END
	)
	echo "wrote .env with a new cluster secret and the admin's password"
}

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

environment
./base.sh & # a minute of waiting for packages, as long as the compiler takes
base=$!
trap wait EXIT
binaries
wait "$base"
for target in "${targets[@]}"; do
	docker build --quiet --network none --build-arg "BASE=$BASE" --target "$target" --tag "orrery/$target:$TAG" .
done
