#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Reserve huge pages: hugepages.sh [--apply] [--size 2M|1G] [--node N] COUNT
# Prints the changes; --apply makes them. Also prints the kernel arguments for a reservation that
# survives a reboot, which 1G pages usually need.
set -eu
. "$(dirname "$0")/lib.sh"
size=2M node= count=
while [ $# -gt 0 ]; do
	case $1 in
	--apply) apply=yes ;;
	--size) size=$2; shift ;;
	--node) node=$2; shift ;;
	-*) sed -n '3,5s/^# //p' "$0" >&2; exit 2 ;;
	*) count=$1 ;;
	esac
	shift
done
case $count in '' | *[!0-9]*) die "COUNT, the number of pages, is missing" ;; esac
case $size in
2M) kb=2048 ;;
1G) kb=1048576 ;;
*) die "--size is 2M or 1G" ;;
esac
dir=$SYSFS/kernel/mm/hugepages/hugepages-${kb}kB
[ -z "$node" ] || dir=$SYSFS/devices/system/node/node$node/hugepages/hugepages-${kb}kB
[ -e "$dir/nr_hugepages" ] || die "$dir: no such page size or node"
old=$(cat "$dir/nr_hugepages")
echo "now: $old pages of $size, wanted: $count"
[ "$old" -ge "$count" ] || put "$count" "$dir/nr_hugepages"
if ! grep -q " hugetlbfs " "$PROCFS/mounts"; then
	run mkdir -p /dev/hugepages
	run mount -t hugetlbfs -o pagesize=$size hugetlbfs /dev/hugepages
fi
echo "for every boot: default_hugepagesz=$size hugepagesz=$size hugepages=$count"
if [ "$apply" = yes ]; then
	got=$(cat "$dir/nr_hugepages")
	[ "$got" -ge "$count" ] || die "the kernel reserved only $got pages; use the boot arguments"
fi
finish
