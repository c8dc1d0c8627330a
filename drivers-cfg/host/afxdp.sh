#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Prepare a kernel interface for net_af_xdp: afxdp.sh [--apply] IFACE QUEUES
# Use as many queues as ingress CPUs, so that every queue is polled. Interrupts are deferred,
# because the polling CPU runs the interface's work itself (busy polling).
set -eu
. "$(dirname "$0")/lib.sh"
iface= queues=
while [ $# -gt 0 ]; do
	case $1 in
	--apply) apply=yes ;;
	-*) sed -n '3,5s/^# //p' "$0" >&2; exit 2 ;;
	*) if [ -z "$iface" ]; then iface=$1; else queues=$1; fi ;;
	esac
	shift
done
case $queues in '' | *[!0-9]*) die "usage: afxdp.sh [--apply] IFACE QUEUES" ;; esac
dir=$SYSFS/class/net/$iface
[ -d "$dir" ] || die "$iface: no such interface"
[ "$(cat "$dir/mtu")" -le 3000 ] ||
	die "$iface: mtu $(cat "$dir/mtu"); AF_XDP stores a packet in one page: ip link set $iface mtu 1500"
have=$(find "$dir/queues" -name 'rx-*' | wc -l)
[ "$have" -eq "$queues" ] || run ethtool -L "$iface" combined "$queues"
put 2 "$dir/napi_defer_hard_irqs"
put 200000 "$dir/gro_flush_timeout"
run ip link set "$iface" up
finish
