#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a Python test against a router on one end of a veth pair, in namespaces of its own.
#   protocol_test.sh KVROUTE TEST.py [ARGUMENT...]
# The router's end carries no address of the kernel, so the router answers ARP and ND itself. Exit
# status 77: namespaces, veth or dpdk-telemetry.py are not to be had here.
set -u
if [ "${1-}" != --inside ]; then
	command -v unshare ip python3 dpdk-telemetry.py >/dev/null || exit 77
	unshare -rnm true 2>/dev/null || { echo "namespaces are not permitted"; exit 77; }
	exec unshare -rnm "$0" --inside "$@"
fi
shift
kvroute=$1 test=$2
shift 2
# EAL and telemetry want a writable /run; this one goes away with the namespace.
mount -t tmpfs tmpfs /run || exit 77
ip link set lo up
ip link add kvr-peer type veth peer name kvr-router || { echo "no veth here"; exit 77; }
echo 1 >/proc/sys/net/ipv6/conf/kvr-router/disable_ipv6 || { echo "no IPv6 here"; exit 77; }
ip address add 10.9.0.2/24 dev kvr-peer
ip -6 address add fd09::2/64 dev kvr-peer nodad
ip link set kvr-peer up
ip link set kvr-router up
here=$(cd "$(dirname "$0")" && pwd)
# Debian's has the modules that some tests want; another one may stand before it.
python=/usr/bin/python3
[ -x $python ] || python=python3
exec $python "$here/$test" "$kvroute" "$@"
