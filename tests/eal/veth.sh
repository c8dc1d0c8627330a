# SPDX-License-Identifier: BSD-3-Clause
# Sourced by test_port_link.sh and test_port_xdp.sh: two network namespaces connected by a veth, va (the
# router's end) and vb (in_peer), and port_echo on va. Set echo_bin first. A skipped test ends with 77.

# in_namespace UNSHARE-FLAGS ARGUMENT...: run the calling script again, in namespaces of its own
in_namespace() {
	flags=$1
	shift
	[ "${KVR_IN_NS:-}" = "" ] || return 0
	unshare "$flags" true 2>/dev/null || { echo "no namespaces"; exit 77; }
	exec unshare "$flags" env KVR_IN_NS=1 "$0" "$@"
}
fail() {
	echo "FAILED: $*"
	[ ! -s "$out" ] || sed 's/^/  | /' "$out"
	exit 1
}
in_peer() { nsenter -t "$peer" -n "$@"; }
# The peer's namespace lives as long as this process.
make_veth() {
	command -v ip >/dev/null && command -v python3 >/dev/null || { echo "ip or python3 missing"; exit 77; }
	out=$(mktemp)
	run=$(mktemp -d) # for users that may not write to /run
	chmod 777 "$run"
	pid= peer=
	trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; [ -z "$peer" ] || kill "$peer" 2>/dev/null || true; rm -rf "$out" "$run"' EXIT
	mount -t sysfs sysfs /sys 2>/dev/null || true
	mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
	unshare -n sleep 900 &
	peer=$!
	i=0
	until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do
		i=$((i + 1))
		[ $i -lt 200 ] || fail "no namespace"
		sleep 0.02
	done
	ip link set lo up
	ip link add va type veth peer name vb netns "$peer" || exit 77
	ip link set va addrgenmode none up
	in_peer ip addr add 10.9.0.2/24 dev vb
	in_peer ip link set vb up
}
# run_echo ARGUMENT...: start port_echo and wait until it is ready; "as" is a command that drops privileges
as=
run_echo() {
	: >"$out"
	$as "$echo_bin" "$@" >"$out" 2>&1 &
	pid=$!
	i=0
	until grep -q ready "$out"; do
		i=$((i + 1))
		# Skip only if port_echo has never started.
		[ -n "${ran:-}" ] || ! grep -q 'Failed to configure xdp socket' "$out" || { cat "$out"; exit 77; }
		[ $i -lt 1200 ] && kill -0 "$pid" 2>/dev/null || fail "no start"
		sleep 0.05
	done
	ran=yes
}
