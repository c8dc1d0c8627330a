#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ports against the kernel's network stack, in a network namespace of their own: net_af_packet and
# net_af_xdp on a veth end, and net_tap. The kernel resolves the port by ARP and neighbour discovery,
# pings it, and verifies the checksums of echoed datagrams. Arguments: path of port_echo, device kind, and "sleep=on" if
# port_echo sleeps until the device wakes it: a lost wake-up is a missing answer.
# 77 = cannot run here: no user namespaces, or AF_XDP without being root.
set -eu
echo_bin=$1
kind=$2
sleep=${3:-}
if [ "${KVR_IN_NS:-}" = "" ]; then
	ns=-rnm
	[ "$kind" != af_xdp ] || ns=-nm # loading an XDP program needs the real root
	unshare $ns true 2>/dev/null || { echo "no namespaces"; exit 77; }
	exec unshare $ns env KVR_IN_NS=1 "$0" "$echo_bin" "$kind" $sleep
fi
command -v ip >/dev/null && command -v python3 >/dev/null || { echo "ip or python3 missing"; exit 77; }
out=$(mktemp)
pid=
trap '[ -n "$pid" ] && kill "$pid" 2>/dev/null; rm -f "$out"' EXIT
ip link set lo up

keys=
case $kind in
af_packet)
	ip link add va type veth peer name vb || exit 77
	ip link set va addrgenmode none mtu 9000
	ip link set vb addrgenmode none mtu 9000
	ip link set va up
	device=net_af_packet0,iface=va,blocksz=20480,framesz=10240,framecnt=64
	peer=vb
	mtu=9000
	;;
af_xdp)
	ip link add va type veth peer name vb || exit 77
	ip link set va addrgenmode none
	ip link set vb addrgenmode none
	ip link set va up
	device=net_af_xdp0,iface=va
	keys=xdp=off # the driver's own program, which takes every frame; test_port_xdp.sh tests ours
	peer=vb
	mtu=1500
	;;
tap)
	[ -w /dev/net/tun ] || { echo "no /dev/net/tun"; exit 77; }
	device=net_tap0,iface=kvrtap0
	peer=kvrtap0
	mtu=1500
	;;
esac
"$echo_bin" "$device" 10.9.0.1 fd09::1 $mtu 14 $keys $sleep >"$out" 2>&1 &
pid=$!
i=0
while ! grep -q ready "$out"; do
	i=$((i + 1))
	if [ "$kind" = af_xdp ] && grep -q 'Failed to configure xdp socket' "$out"; then
		cat "$out"
		exit 77
	fi
	if [ $i -gt 200 ] || ! kill -0 "$pid" 2>/dev/null; then
		cat "$out"
		exit 1
	fi
	sleep 0.05
done
ip link set "$peer" mtu $mtu
ip addr add 10.9.0.2/24 dev "$peer"
ip link set "$peer" up
ip -6 addr add fd09::2/64 dev "$peer" nodad
if [ "$kind" = af_packet ] && ip link add link vb name vb.100 type vlan id 100 2>/dev/null; then
	ip link set vb.100 up
	ip addr add 10.9.1.2/24 dev vb.100
	ip route add 10.9.0.1/32 dev vb.100 table 100
	ip rule add from 10.9.1.2 table 100
	vlan=10.9.1.2
fi

python3 - $mtu "${vlan:-}" <<'PY'
import socket, struct, sys

def udp(family, src, dst, sizes):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.bind((src, 0))
    s.connect((dst, 7650))
    for n in sizes:
        data = bytes(i * 31 & 255 for i in range(n))
        s.send(data)
        assert s.recv(65535) == data, (dst, n)
    print("udp", src, dst, sizes)

def ping(family, proto, request, reply, dst):
    s = socket.socket(family, socket.SOCK_RAW, proto)
    s.settimeout(10)
    body = struct.pack("!BBHHH", request, 0, 0, 77, 1) + b"kvroute!" * 4
    if family == socket.AF_INET:  # the kernel fills in the checksum of ICMPv6 only
        t = sum(struct.unpack("!%dH" % (len(body) // 2), body))
        t = (t & 0xffff) + (t >> 16)
        t = ~((t & 0xffff) + (t >> 16)) & 0xffff
        body = body[:2] + struct.pack("!H", t) + body[4:]
    s.sendto(body, (dst, 0))
    while True:
        got = s.recv(2000)
        got = got[20:] if family == socket.AF_INET else got
        if got[0] == reply and got[4:8] == body[4:8]:
            assert got[8:] == body[8:]
            break
    print("ping", dst)

mtu = int(sys.argv[1])
ping(socket.AF_INET, socket.IPPROTO_ICMP, 8, 0, "10.9.0.1")
ping(socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129, "fd09::1")
udp(socket.AF_INET, "10.9.0.2", "10.9.0.1", [1, 2, 1471, 1472, mtu - 29, mtu - 28])
udp(socket.AF_INET6, "fd09::2", "fd09::1", [1, 2, 1451, 1452, mtu - 49, mtu - 48])
if sys.argv[2]:
    udp(socket.AF_INET, sys.argv[2], "10.9.0.1", [100, 1400])
else:
    udp(socket.AF_INET, "10.9.0.2", "10.9.0.1", [100, 1400])
PY
wait "$pid"
rc=$?
pid=
cat "$out"
grep -q '^rx_udp=14$' "$out"
[ -z "$sleep" ] || { grep -q '^cannot=0$' "$out" && ! grep -q '^woken=0$' "$out"; }
grep -q '^answers_arp=1$' "$out"
if [ "$kind" = af_packet ]; then # the kernel answers for its own addresses
	ip addr add 10.9.0.1/24 dev va
	"$echo_bin" "$device" 10.9.0.1 fd09::1 $mtu 0 >"$out" 2>&1
	grep -q '^answers_arp=0$' "$out"
	grep -q '^answers_nd=1$' "$out"
fi
exit $rc
