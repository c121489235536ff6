#!/bin/sh
# Builds the foreign programs the end-to-end tests run: OUTDIR/dragonfly and OUTDIR/raknet-ping.
# The versions are those of the go.mod files here; outside the workspace, so that they
# never decide a version for Orrery itself.
set -eu
if [ $# -ne 1 ]; then
	echo "usage: $0 OUTDIR" >&2
	exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
export GOWORK=off
go build -o "$out/dragonfly" github.com/df-mc/dragonfly
go build -C raknetping -o "$out/raknet-ping" .
