#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# net_af_xdp with our XDP program: router and peer in network namespaces of their own, connected by a
# veth pair (native mode) or through a macvlan on it (generic mode). Arguments: path of port_echo, mode.
# The kernel keeps the interface's address, ARP, ping and every other port; the program is detached
# at the end, cleaned up after a kill, and never attached twice or over a foreign program.
# 77 = cannot run here: not root, or no XDP.
set -eu
echo_bin=$1
mode=$2
. "${0%/*}/veth.sh"
in_namespace -nm "$echo_bin" "$mode"
make_veth
iface=va
if [ "$mode" = generic ]; then # a macvlan supports generic XDP only
	ip link add link va name mv type macvlan mode bridge || exit 77
	ip link set mv addrgenmode none up
	ip link set va arp off # it would also answer for the macvlan's address
	iface=mv
fi
ip addr add 10.9.0.1/24 dev $iface
ip -6 addr add fd09::1/64 dev $iface nodad
in_peer ip addr add 10.9.0.3/24 dev vb
in_peer ip -6 addr add fd09::2/64 dev vb nodad

program() { ip link show $iface | sed -n 's/.*prog\/xdp id [0-9]* name \([^ ]*\).*/\1/p'; }
# start COUNT KEY...
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

# Frames to the router's port reach the router, others the kernel; checksums are verified in both directions.
start 16 rx_checksum=verify
[ "$(program)" = kvroute_xdp ] || fail "no program at $iface"
[ "$(counter answers_arp)$(counter answers_nd)" = 00 ] || fail "answers for the kernel"
"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out.2" 2>&1 && fail "two routers"
grep -q "served by another process" "$out.2" || { cat "$out.2"; fail "message of a second router"; }
rm -f "$out.2"
[ "$(program)" = kvroute_xdp ] || fail "a second start detached the program"
! grep -q "^bpf /sys/fs/bpf" /proc/mounts || [ -e /sys/fs/bpf/kvroute-$iface/counts ] || fail "no pins"
set --
for n in 1 2 3 4; do
	set -- "$@" "10.9.0.2>7650=echo" "10.9.0.3>7650=echo" "fd09::2>7650=echo"
done
talk "10.9.0.2>7651=refused" "fd09::2>7651=refused" "$@" || fail "talk"
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" || fail "talk"
finish
[ "$(counter rx_udp)" = 16 ] && [ "$(counter rx_frames)" = 16 ] || fail "frames of others arrived"
[ "$(counter xdp_redirected)" = 16 ] && [ "$(counter xdp_kernel)" -ge 2 ] || fail "counts of the program"
[ "$(program)" = "" ] || fail "the program stays"
[ ! -e /sys/fs/bpf/kvroute-$iface ] || fail "pins stay"

# The program applies the allow-list and the rate.
start 3 allow="10.9.0.2 fd09::/64"
talk "10.9.0.3>7650=nothing" "10.9.0.2>7650=echo" "fd09::2>7650=echo" "10.9.0.2>7650=echo" || fail "allow-list"
finish
[ "$(counter xdp_denied)" = 1 ] && [ "$(counter rx_frames)" = 3 ] || fail "the allow-list"
start 3 xdp_rate=1 xdp_burst=2
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" "10.9.0.2>7650=nothing" "10.9.0.3>7650=echo" || fail "rate"
finish
[ "$(counter xdp_limited)" = 1 ] && [ "$(counter rx_frames)" = 3 ] || fail "the rate"

# After a kill the router's frames are dropped and others go to the kernel; the next start cleans up.
start 1000
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
[ "$(program)" = kvroute_xdp ] || fail "the program is gone: the next test would prove nothing"
talk "10.9.0.2>7650=nothing" "10.9.0.2>7651=refused" || fail "after a kill"
start 1
talk "10.9.0.2>7650=echo" || fail "after the next start"
finish
[ "$(program)" = "" ] || fail "the program stays"

# Killed and restarted without our program: a program left behind would drop frames before a packet socket receives them.
left() {
	start 1000
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	[ "$(program)" = kvroute_xdp ] || fail "the program is gone"
}
left
ip addr del 10.9.0.1/24 dev $iface
run_echo "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 1
[ "$(program)" = "" ] || fail "the program stays beside a packet socket"
[ ! -e /sys/fs/bpf/kvroute-$iface ] || fail "pins stay"
talk "10.9.0.2>7650=echo" || fail "a packet socket after a kill"
finish
ip addr add 10.9.0.1/24 dev $iface
if [ "$mode" = native ]; then # libxdp does not attach to a macvlan
	left
	run_echo "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 mbufs=16383 xdp=off
	[ "$(program)" != kvroute_xdp ] || fail "the program stays beside another one"
	kill "$pid"
	wait "$pid" || true
	pid=
	ip link set $iface xdp off
fi
left
"$echo_bin" "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 || fail "off"
[ "$(program)" = "" ] || fail "the program stays"
# The router is running: another process must not detach its program.
start 2
"$echo_bin" "net_af_packet0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out.2" 2>&1 || fail "off beside a router"
[ "$(program)" = kvroute_xdp ] || fail "the program of a running router was detached"
rm -f "$out.2"
talk "10.9.0.2>7650=echo" "10.9.0.2>7650=echo" || fail "after that"
finish

# A user with the capabilities of the service: the router starts, but cannot read the owner of a dead router's program; root can.
# With fewer capabilities the kernel rejects the program.
service=net_raw,net_admin,bpf,perfmon,ipc_lock
with_caps() { echo "setpriv --reuid 54321 --regid 54321 --clear-groups --no-new-privs --inh-caps=-all,$1 --ambient-caps=-all,$1 --bounding-set=-all,$1 env XDG_RUNTIME_DIR=$run"; }
if setpriv --reuid 54321 --clear-groups test -x "$echo_bin" 2>/dev/null && setpriv --bounding-set=-all,+perfmon true 2>/dev/null; then
	as=$(with_caps "+$(echo $service | sed 's/,/,+/g')")
	start 2 rx_checksum=verify
	[ "$(program)" = kvroute_xdp ] || fail "no program at $iface"
	talk "10.9.0.2>7651=refused" "10.9.0.2>7650=echo" "fd09::2>7650=echo" || fail "service user"
	finish
	[ "$(program)" = "" ] && [ "$(counter xdp_redirected)" = 2 ] || fail "service user: the program"
	start 1000
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	$as "$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "started without reading the owner of the program"
	grep -q "has an XDP program already (unreadable" "$out" || fail "error message"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 || fail "detached by root"
	[ "$(program)" = "" ] || fail "the program of a dead router stays"
	as=$(with_caps "+$(echo $service | sed 's/perfmon,//; s/,/,+/g')")
	$as "$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "CAP_PERFMON is not needed"
	grep -q "CAP_PERFMON" "$out" || fail "the missing capability is not named"
	as=
fi

# A foreign program is left in place.
if command -v clang >/dev/null; then
	printf '__attribute__((section("xdp"))) int foreign(void *c) { return 2; }' |
		clang -O2 -target bpf -x c -c - -o "$out.o"
	ip link set $iface xdp obj "$out.o" sec xdp 2>/dev/null || ip link set $iface xdpgeneric obj "$out.o" sec xdp
	rm -f "$out.o"
	: >"$out"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 1 >"$out" 2>&1 && fail "started over a foreign program"
	grep -q "has an XDP program already (foreign" "$out" || fail "error message"
	"$echo_bin" "net_af_xdp0,iface=$iface" 10.9.0.1 fd09::1 1500 off >"$out" 2>&1 && fail "a foreign program was detached"
	ip link show $iface | grep -q foreign || fail "a foreign program was detached"
fi
echo ok
