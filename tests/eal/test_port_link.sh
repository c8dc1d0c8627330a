#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Changes of a link, on a veth in a network namespace of its own: down and up at either end, a peer with a new MAC address
# (a fail-over), a removed interface, and jumbo frames of one VLAN. Arguments: path of port_echo, af_packet or af_xdp (our program).
# 77 = cannot run here.
set -eu
echo_bin=$1
kind=$2
. "${0%/*}/veth.sh"
ns=-rnm
[ "$kind" != af_xdp ] || ns=-nm # loading an XDP program needs the real root
in_namespace $ns "$echo_bin" "$kind"
make_veth

# start COUNT MTU KEY...: start port_echo for COUNT datagrams
start() {
	count=$1 mtu=$2
	shift 2
	device=net_af_packet0,iface=va,blocksz=20480,framesz=10240,framecnt=64 mbufs=6143
	if [ "$kind" = af_xdp ]; then device=net_af_xdp0,iface=va mbufs=16383; fi
	run_echo $device 10.9.0.1 fd09::1 "$mtu" "$count" mbufs=$mbufs "$@"
}
# wait_line TEXT: wait until port_echo prints this line
wait_line() {
	i=0
	until grep -qx "$1" "$out"; do
		i=$((i + 1))
		[ $i -lt 400 ] || fail "missing line: $1"
		sleep 0.05
	done
}
# ask ADDRESS BYTES: a datagram from ADDRESS is answered. Retransmits, because a datagram sent while an end is down is lost
ask() { in_peer python3 - "$1" "$2" <<'PY'
import socket, sys, time
data = bytes(i * 31 & 255 for i in range(int(sys.argv[2])))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
s.bind((sys.argv[1], 0))
for n in range(100):
    try:
        s.connect(("10.9.0.1", 7650))
        s.send(data)
        assert s.recv(65535) == data
        sys.exit(0)
    except OSError:  # or too late
        time.sleep(0.05)
sys.exit(1)
PY
}
carrier() { # STATE: wait for the carrier of the router's end
	i=0
	until [ "$(cat /sys/class/net/va/carrier 2>/dev/null || echo 0)" = "$1" ]; do
		i=$((i + 1))
		[ $i -lt 200 ] || fail "carrier is not $1"
		sleep 0.02
	done
}
finish() {  # send the rest of COUNT datagrams
	nsenter -t "$peer" -n timeout 30 python3 -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    s.sendto(b"x", ("10.9.0.1", 7650))
    time.sleep(0.02)' &
	wait "$pid" || fail "exit status"
	pid=
	kill $! 2>/dev/null || true
	cat "$out"
}
[ "$kind" != af_xdp ] || ip addr add 10.9.0.1/24 dev va # the kernel answers ARP
start 12 1500
ask 10.9.0.2 1000 || fail "before"
in_peer ip link set vb down
carrier 0
wait_line "link down"
kill -0 "$pid" || fail "port_echo ended with the link"
in_peer ip link set vb up
carrier 1
wait_line "link up"
ask 10.9.0.2 1001 || fail "the peer's end was down and is up"
ip link set va down
in_peer true
ip link set va up
carrier 1
ask 10.9.0.2 1002 || fail "our end was down and is up"
# A second router with one of the addresses fails to start; the first is not affected.
refused() {
	"$echo_bin" net_af_packet0,iface=va "$@" 0 mbufs=6143 >"$out.2" 2>&1 && fail "two routers: $*"
	grep -q "is served at \"va\" by another process" "$out.2" || { cat "$out.2"; fail "message of a second router: $*"; }
}
refused 10.9.0.1 fd09::9 1500
refused 10.9.0.9 fd09::1 1500
"$echo_bin" net_af_packet0,iface=va 10.9.0.9 fd09::9 1500 0 mbufs=6143 >"$out.2" 2>&1 || fail "another address"
"$echo_bin" net_af_packet0,iface=va 10.9.0.1 fd09::1 1500 0 mbufs=6143 udp_port=7651 >"$out.2" 2>&1 || fail "another port"
rm -f "$out.2"
in_peer ip link set vb down
in_peer ip link set vb address 02:00:00:00:77:02
in_peer ip link set vb up
carrier 1
ask 10.9.0.2 1003 || fail "the peer has another MAC address"
in_peer ip link set vb address 02:00:00:00:77:03
ask 10.9.0.2 1004 || fail "and another one, without a pause"
finish

# The interface is removed: nothing stays behind, and another router can use an interface of that name.
start 1000 1500
ip link del va
wait_line "link gone"
kill -0 "$pid" || fail "port_echo ended with its interface"
[ ! -e /sys/fs/bpf/kvroute-va ] || fail "pins stay"
gone=$pid
ip link add va type veth peer name vb netns "$peer"
ip link set va addrgenmode none up
in_peer ip addr add 10.9.0.2/24 dev vb
in_peer ip link set vb up
carrier 1
[ "$kind" != af_xdp ] || ip addr add 10.9.0.1/24 dev va
start 2 1500
ask 10.9.0.2 1005 || fail "a second router, on a new interface of that name"
finish
kill "$gone"
wait "$gone" 2>/dev/null || true

# One VLAN with the largest frames, built by hand, as not every kernel supports VLANs.
largest=1472
if [ "$kind" = af_packet ]; then
	ip link set va mtu 9100
	in_peer ip link set vb mtu 9100
	largest=8972
fi
start 3 $((largest + 28)) vlan=100
in_peer python3 - "$(cat /sys/class/net/va/address)" $largest <<'PY' || fail "frames of the VLAN"
import socket, struct, sys

ALL, AUX, TCI_VALID = 3, 8, 0x10
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
s.setsockopt(263, AUX, 1)  # SOL_PACKET, PACKET_AUXDATA: the kernel delivers the tag separately
s.bind(("vb", 0))
s.settimeout(20)
ours, mac = bytes.fromhex("020000007709"), bytes.fromhex(sys.argv[1].replace(":", ""))

def checksum(data):
    t = sum(struct.unpack(f"!{len(data) // 2}H", data))
    t = (t & 0xffff) + (t >> 16)
    return ~((t & 0xffff) + (t >> 16)) & 0xffff

def send(tag, data):
    udp = struct.pack("!HHHH", 4000, 7650, 8 + len(data), 0) + data
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + bytes([10, 9, 0, 2, 10, 9, 0, 1])
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    s.send(mac + ours + (struct.pack("!HH", 0x8100, tag) if tag else b"") + b"\x08\x00" + ip + udp)

def answer(data):
    while True:
        frame, aux, _, _ = s.recvmsg(20000, 100)
        if frame[:6] != ours:
            continue
        tci = frame[14:16] if frame[12:14] == b"\x81\x00" else None
        frame = frame[:12] + frame[16:] if tci else frame
        for _, kind, value in aux:
            status, _, _, _, _, vlan, _ = struct.unpack_from("=IIIHHHH", value)
            tci = struct.pack("!H", vlan) if kind == AUX and status & TCI_VALID else tci
        assert tci == struct.pack("!H", 100), tci
        assert frame[42:42 + len(data)] == data, len(frame)
        return

send(0, b"untagged")
send(101, b"another VLAN")
largest = int(sys.argv[2])
for n in (1, min(1473, largest - 1), largest):
    data = bytes(i * 31 & 255 for i in range(n))
    send(100, data)
    answer(data)
PY
wait "$pid" || fail "exit status"
pid=
cat "$out"
[ "$(sed -n 's/^rx_udp=//p' "$out")" = 3 ] || fail "3 of the VLAN"
if [ "$kind" = af_packet ]; then
	[ "$(sed -n 's/^rx_other_vlan=//p' "$out")" -ge 2 ] || fail "2 of other VLANs"
else # the program passes them to the kernel
	[ "$(sed -n 's/^rx_frames=//p' "$out")" = 3 ] || fail "only those of the VLAN"
	[ "$(sed -n 's/^xdp_redirected=//p' "$out")" = 3 ] || fail "3 of the VLAN for the router"
	[ "$(sed -n 's/^xdp_kernel=//p' "$out")" -ge 2 ] || fail "frames for the kernel"
fi
