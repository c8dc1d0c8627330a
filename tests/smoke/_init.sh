# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the namespace tests, which call themselves again inside fresh user, mount and network
# namespaces (no root needed). Afterwards there are two named network namespaces:
#
#   router: veth end rt0, without address (the router's port owns 10.9.0.1 and fd09::1 itself)
#   ends:   veth end en0, 10.9.0.2/24 and fd09::2/64
#
# Usage:  . "$(dirname "$0")/_init.sh"; start_router KVROUTE; in_ends PROGRAM ...
# $tmp holds logs and is kept, and shown, when a test fails. cleanup COMMAND registers undo steps.
set -eu

if [ -z "${KVR_SMOKE_INSIDE:-}" ]; then
	if ! unshare -rnm true 2>/dev/null; then
		echo "namespaces are not permitted here: skipped"
		exit 77
	fi
	# Packet sockets lock their rings (4 MiB here) against this limit.
	ulimit -l unlimited 2>/dev/null || ulimit -l "$(ulimit -H -l)"
	KVR_SMOKE_INSIDE=1 exec unshare -rnm --kill-child "$0" "$@"
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/kvr-smoke.XXXXXX")
undo=()

cleanup() {
	undo=("$*" "${undo[@]+"${undo[@]}"}")
}

# Undo in reverse order; show the logs of a failed test.
finish() {
	local status=$? step
	set +e
	for step in "${undo[@]+"${undo[@]}"}"; do
		eval "$step"
	done
	if [ $status -ne 0 ] && [ $status -ne 77 ]; then
		for log in "$tmp"/*.log; do
			[ -s "$log" ] && printf '%s\n' "--- $log" && tail -n 40 "$log"
		done
		echo "logs are kept in $tmp"
	else
		rm -rf "$tmp"
	fi
	exit $status
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAILED: $*"
	exit 1
}

# Named namespaces need a writable /run/netns; ours is private to this mount namespace.
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
for ns in router ends; do
	ip netns add $ns
	ip -n $ns link set lo up
done
ip -n router link add rt0 type veth peer name en0 netns ends
# No duplicate address detection: addresses are usable at once.
ip netns exec ends sysctl -qw net.ipv6.conf.en0.accept_dad=0
ip -n ends addr add 10.9.0.2/24 dev en0
ip -n ends addr add fd09::2/64 dev en0 nodad
ip -n ends link set en0 up
# The kernel at the router's end stays out of it: no IPv6 link-local chatter, no answers.
ip netns exec router sysctl -qw net.ipv6.conf.rt0.disable_ipv6=1
ip -n router link set rt0 up
# veth leaves checksums to the receiver, which is no kernel here.
if command -v ethtool >/dev/null; then
	ip netns exec ends ethtool -K en0 tx off >/dev/null 2>&1 || true
fi

in_router() {
	ip netns exec router "$@"
}

in_ends() {
	ip netns exec ends "$@"
}

# Start PROGRAM in namespace NS in the background, log to NAME.log, stop it at the end. Sets $pid.
# background NS NAME PROGRAM ...
background() {
	local ns=$1 name=$2
	shift 2
	ip netns exec "$ns" "$@" >"$tmp/$name.log" 2>&1 &
	pid=$!
	cleanup "kill $pid 2>/dev/null; wait $pid 2>/dev/null"
}

# Wait until COMMAND succeeds, SECONDS at most. wait_for SECONDS COMMAND ...
wait_for() {
	local tries=$(($1 * 10))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.1
	done
}

# A configuration for the router on rt0, extended by the lines on standard input.
router_conf() {
	cat >"$tmp/router.conf" <<-CONF
	[router]
	ingress = 0
	hugepages = off
	memory_mb = 512
	[port p0]
	device = net_af_packet0,iface=rt0,blocksz=16384,framesz=2048,framecnt=1024
	ipv4 = 10.9.0.1
	ipv6 = fd09::1
	rx_checksum = trust
	answer_arp = on
	[pool default]
	id = 0
	block_size = 16
	max_ranks = 64
	max_blocks = 64K
	CONF
	cat >>"$tmp/router.conf"
}

# start_router KVROUTE [ARG ...]; the configuration must be there. Sets $router_pid.
start_router() {
	background router router "$@" --config "$tmp/router.conf"
	router_pid=$pid
}
