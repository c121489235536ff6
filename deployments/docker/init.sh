#!/usr/bin/env bash
# Makes the cluster secret, the sealing key, the first password of the user admin and the certificates for
# docker-compose.yml. All services share the directory of the secret. Only the gateways read
# the password's, and only they and the template services the sealing key's. Each service and node has a directory of its own for its certificate.
# A value in the environment replaces the file. Without one, an existing file stays.
# Certificates are issued again each time. The script prints a password that it made.
set -euo pipefail
umask 077
export LC_ALL=C # lengths are in bytes

secrets=${ORRERY_SECRETS_DIR:-/run/orrery}
admin=${ORRERY_ADMIN_DIR:-/run/orrery-admin}
authority=${ORRERY_PKI_DIR:-/run/orrery-pki}
seal=${ORRERY_SEAL_DIR:-/run/orrery-seal}
trust=${ORRERY_TRUST_DIR:-/run/orrery-trust}

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

# Gateways and template services only: it wraps the keys that seal secrets in etcd.
if [ ! -s "$seal/seal-key" ]; then
	random 64
	store "$seal/seal-key" "$made"
	echo "made a sealing key"
fi

# issue IDENTITY OUT [FLAG…] issues a certificate, or ends the script.
issue() {
	local identity=$1 out=$2
	shift 2
	orrery pki issue "$identity" --dir "$authority" --out "$out" --force "$@" 2>/dev/null || {
		echo "cannot issue the certificate of $identity in $(dirname "$out"): check its owner and the free space of its disk" >&2
		exit 1
	}
}

if [ ! -s "$authority/nodes.pem" ]; then # also of a volume that has an authority from before there were two
	orrery pki init --dir "$authority" >/dev/null 2>&1 || {
		echo "cannot make an authority in $authority: check its owner and the free space of its disk" >&2
		exit 1
	}
	echo "made an authority for certificates"
fi
for service in apigateway scheduler enforcer templatesvc; do
	issue "$service" "$trust/$service/trust.pem" --days 30 # a gateway renews it
done
for node in agent-1 agent-2 agent-3; do
	issue "nodeagent/$node" "$trust/$node/trust.pem" --through-gateways --days 1 # the agent renews it
done
for name in nodes authority; do # gateways renew certificates
	store "$trust/apigateway/$name.pem" "$(cat "$authority/$name.pem")"
done
issue etcd "$trust/etcd/etcd" --host etcd-1 --host etcd-2 --host etcd-3 --host localhost --host 127.0.0.1
store "$trust/etcd/authority.crt" "$(cat "$authority/authority.crt")"

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
