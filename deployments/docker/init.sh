#!/usr/bin/env bash
# Makes the cluster secret and the first password of the user admin for docker-compose.yml.
# All services share the directory of the secret. Only the gateways read the password's.
# A value in the environment replaces the file. Without one, an existing file stays.
# The script prints a password that it made.
set -euo pipefail
umask 077
export LC_ALL=C # lengths are in bytes

secrets=${ORRERY_SECRETS_DIR:-/run/orrery}
admin=${ORRERY_ADMIN_DIR:-/run/orrery-admin}

# store FILE VALUE replaces a file at once, or ends the script.
store() {
	if ! printf '%s' "$2" >"$1.new" || [ "$(stat -c %s "$1.new")" -ne ${#2} ] || ! mv "$1.new" "$1"; then
		rm -f "$1.new"
		echo "cannot write $1: check the owner of its directory and the free space of its disk" >&2
		exit 1
	fi
}

# random LENGTH leaves as many hexadecimal digits in the variable made, 64 at most.
random() {
	made=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')
	made=${made:0:$1}
	if [ ${#made} -ne "$1" ]; then
		echo "read ${#made} of $1 random digits from /dev/urandom" >&2
		exit 1
	fi
}

# Earlier versions kept the password beside the secret.
if [ -e "$secrets/admin-password" ]; then
	if [ ! -s "$admin/admin-password" ]; then
		store "$admin/admin-password" "$(cat "$secrets/admin-password")"
	fi
	rm "$secrets/admin-password"
fi

if [ -n "${ORRERY_CLUSTER_SECRET:-}" ]; then
	store "$secrets/cluster-secret" "$ORRERY_CLUSTER_SECRET"
elif [ ! -s "$secrets/cluster-secret" ]; then
	random 64
	store "$secrets/cluster-secret" "$made"
	echo "made a cluster secret"
fi

if [ -n "${ORRERY_ADMIN_INITIAL_PASSWORD:-}" ]; then
	store "$admin/admin-password" "$ORRERY_ADMIN_INITIAL_PASSWORD"
elif [ ! -s "$admin/admin-password" ]; then
	random 20
	store "$admin/admin-password" "$made"
	echo "first password of the user admin: $made"
	echo "it is not printed again: sign in and change it"
	exit
fi
echo "the first password of the user admin was given or made before"
