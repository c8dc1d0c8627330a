#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# net_af_xdp with our XDP program: router and peer in network namespaces of their own, joined by a
# veth pair (native mode) or through a macvlan on it (generic mode). Arguments: path of port_echo, mode.
# The kernel keeps the interface's address, ARP, ping and every other port; the program is detached
# at the end, cleaned up after a kill, and neither doubled nor put over somebody else's.
# 77 = cannot run here: not root, or no XDP.
set -eu
echo_bin=$1
mode=$2
. "${0%/*}/veth.sh"
in_namespace -nm "$echo_bin" "$mode"
make_veth
iface=va
if [ "$mode" = generic ]; then # a macvlan has no XDP of its own
	ip link add link va name mv type macvlan mode bridge || exit 77
	ip link set mv addrgenmode none up
	ip link set va arp off # it would answer for the macvlan's address, and whose answer is first wins
	iface=mv
fi
ip addr add 10.9.0.1/24 dev $iface
ip -6 addr add fd09::1/64 dev $iface nodad
in_peer ip addr add 10.9.0.3/24 dev vb
in_peer ip -6 addr add fd09::2/64 dev vb nodad

program() { ip link show $iface | sed -n 's/.*prog\/xdp id [0-9]* name \([^ ]*\).*/\1/p'; }
# Arguments: how many to echo, then more keys.
start() {
	count=$1
	shift
	run_echo "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 "$count" mbufs=16383 "$@"
}
counter() { sed -n "s/^$1=//p" "$out"; }
finish() {
	wait "$pid" || fail "exit status"
	pid=
	cat "$out"
}
talk() { in_peer python3 - "$@" <<'PY'
import socket, sys
# each argument: source>port=answer, where the answer is echo, refused or nothing
for a in sys.argv[1:]:
    way, want = a.split("=")
    src, port = way.split(">")
    v6 = ":" in src
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.3 if want == "nothing" else 10)
    s.bind((src, 0))
    s.connect(("fd09::1" if v6 else "10.9.0.1", int(port)))
    data = bytes(i * 31 & 255 for i in range(1200))
    s.send(data)
    try:
        got = "echo" if s.recv(65535) == data else "other"
    except ConnectionRefusedError:
        got = "refused"
    except socket.timeout:
        got = "nothing"
    if got != want:
        sys.exit("%s: %s, not %s" % (way, got, want))
PY
}

# Ours to the router, the rest to the kernel, checksums of both directions looked at.
start 16 rx_checksum=verify
[ "$(program)" = kvroute_xdp ] || fail "no program at $iface"
[ "$(counter answers_arp)$(counter answers_nd)" = 00 ] || fail "answers for the kernel"
"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out.2" 2>&1 && fail "two routers"
grep -q "served by another process" "$out.2" || { cat "$out.2"; fail "what a second one says"; }
rm -f "$out.2"
[ "$(program)" = kvroute_xdp ] || fail "a second start took the program off"
! grep -q "^bpf /sys/fs/bpf" /proc/mounts || [ -e /sys/fs/bpf/kvroute-$iface/counts ] || fail "no pins"
set --
for n in 1 2 3 4; do
	set -- "$@" "10.9.0.2>7650=echo" "10.9.0.3>7650=echo" "fd09::2>7650=echo"
done
talk "10.9.0.2>7651=refused" "fd09::2>7651=refused" "$@" || fail "talk"
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" || fail "talk"
finish
[ "$(counter rx_udp)" = 16 ] && [ "$(counter rx_frames)" = 16 ] || fail "more than ours arrived"
[ "$(counter xdp_redirected)" = 16 ] && [ "$(counter xdp_kernel)" -ge 2 ] || fail "counts of the program"
[ "$(program)" = "" ] || fail "the program stays"
[ ! -e /sys/fs/bpf/kvroute-$iface ] || fail "pins stay"

# The allow-list and the rate are looked at before the router.
start 3 allow="10.9.0.2 fd09::/64"
talk "10.9.0.3>7650=nothing" "10.9.0.2>7650=echo" "fd09::2>7650=echo" "10.9.0.2>7650=echo" || fail "allow-list"
finish
[ "$(counter xdp_denied)" = 1 ] && [ "$(counter rx_frames)" = 3 ] || fail "the allow-list"
start 3 xdp_rate=1 xdp_burst=2
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=nothing" "10.9.0.3>7650=echo" || fail "rate"
finish
[ "$(counter xdp_limited)" = 1 ] && [ "$(counter rx_frames)" = 3 ] || fail "the rate"

# Killed: what was ours is dropped, all else stays the kernel's; the next start cleans up.
start 1000
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
[ "$(program)" = kvroute_xdp ] || fail "nothing was left behind: the next test shows nothing"
talk "10.9.0.2>7650=nothing" "10.9.0.2>7651=refused" || fail "after a kill"
start 1
talk "10.9.0.2>7650=echo" || fail "after the next start"
finish
[ "$(program)" = "" ] || fail "the program stays"

# Killed, and started without our program: what is left would drop the frames before a packet socket sees them.
left() {
	start 1000
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	[ "$(program)" = kvroute_xdp ] || fail "nothing was left behind"
}
left
ip addr del 10.9.0.1/24 dev $iface
run_echo "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 1
[ "$(program)" = "" ] || fail "what was left stays beside a packet socket"
[ ! -e /sys/fs/bpf/kvroute-$iface ] || fail "pins stay"
talk "10.9.0.2>7650=echo" || fail "a packet socket after a kill"
finish
ip addr add 10.9.0.1/24 dev $iface
if [ "$mode" = native ]; then # libxdp attaches nothing to a macvlan
	left
	run_echo "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 mbufs=16383 xdp=off
	[ "$(program)" != kvroute_xdp ] || fail "what was left stays beside another program"
	kill "$pid"
	wait "$pid" || true
	pid=
	ip link set $iface xdp off
fi
left
"$echo_bin" "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 || fail "off"
[ "$(program)" = "" ] || fail "what was left stays"
# It serves: nobody else takes it off.
start 2
"$echo_bin" "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out.2" 2>&1 || fail "off beside a router"
[ "$(program)" = kvroute_xdp ] || fail "the program of a router that serves was taken off"
rm -f "$out.2"
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" || fail "after that"
finish

# A user of its own, with what the service has: it starts, but may not read whose the program of a dead one is; root may.
# Less, and the kernel refuses the program.
service=net_raw,net_admin,bpf,perfmon,ipc_lock
less() { echo "setpriv --reuid 54321 --regid 54321 --clear-groups --no-new-privs --inh-caps=-all,$1 --ambient-caps=-all,$1 --bounding-set=-all,$1 env XDG_RUNTIME_DIR=$run"; }
if setpriv --reuid 54321 --clear-groups test -x "$echo_bin" 2>/dev/null && setpriv --bounding-set=-all,+perfmon true 2>/dev/null; then
	as=$(less "+$(echo $service | sed 's/,/,+/g')")
	start 2 rx_checksum=verify
	[ "$(program)" = kvroute_xdp ] || fail "no program at $iface"
	talk "10.9.0.2>7651=refused" "10.9.0.2>7650=echo" "fd09::2>7650=echo" || fail "a user of its own"
	finish
	[ "$(program)" = "" ] && [ "$(counter xdp_redirected)" = 2 ] || fail "a user of its own: the program"
	start 1000
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	$as "$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "it cannot know whose that is"
	grep -q "has an XDP program already (unreadable" "$out" || fail "what it says"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 || fail "taken off by root"
	[ "$(program)" = "" ] || fail "the program of a dead one stays"
	as=$(less "+$(echo $service | sed 's/perfmon,//; s/,/,+/g')")
	$as "$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "CAP_PERFMON is not needed"
	grep -q "CAP_PERFMON" "$out" || fail "what it lacks is not said"
	as=
fi

# Somebody else's is left alone.
if command -v clang >/dev/null; then
	printf '__attribute__((section("xdp"))) int foreign(void *c) { return 2; }' |
		clang -O2 -target bpf -x c -c - -o "$out.o"
	ip link set $iface xdp obj "$out.o" sec xdp 2>/dev/null || ip link set $iface xdpgeneric obj "$out.o" sec xdp
	rm -f "$out.o"
	: >"$out"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "started over another's program"
	grep -q "has an XDP program already (foreign" "$out" || fail "what it says"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 && fail "another's was taken off"
	ip link show $iface | grep -q foreign || fail "another's program was taken off"
fi
echo ok
