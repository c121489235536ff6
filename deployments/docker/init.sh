#!/usr/bin/env bash
# Makes the cluster secret and the first password of the user admin, for the services of
# docker-compose.yml, in files that they share. A value that is given in the environment
# is taken instead; a file that is there is kept. The password is printed when it is made.
set -euo pipefail
umask 077

dir=${ORRERY_SECRETS_DIR:-/run/orrery}

# keep FILE GIVEN LENGTH leaves a value in a file, and succeeds when it has made one.
keep() {
	local file=$dir/$1
	if [ -n "$2" ]; then
		printf '%s' "$2" >"$file.new"
	elif [ -s "$file" ]; then
		return 1
	else
		head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' | head -c "$3" >"$file.new"
	fi
	mv "$file.new" "$file"
	[ -z "$2" ]
}

if keep cluster-secret "${ORRERY_CLUSTER_SECRET:-}" 64; then
	echo "made a cluster secret"
fi
if keep admin-password "${ORRERY_ADMIN_INITIAL_PASSWORD:-}" 20; then
	echo "first password of the user admin: $(cat "$dir/admin-password")"
	echo "it is not printed again: sign in and change it"
else
	echo "the first password of the user admin was given or made before"
fi
