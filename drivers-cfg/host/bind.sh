#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Bind PCI functions to vfio-pci: bind.sh [--apply] [--force] [--noiommu] 0000:3b:00.0...
# or back to their kernel driver: bind.sh [--apply] --back 0000:3b:00.0...
# Prints the changes; --apply makes them. Rejects an interface that is up with an address (it
# may carry your ssh session) unless --force is given, and NVIDIA functions, which need mlx5_core.
set -eu
. "$(dirname "$0")/lib.sh"
force=no back=no noiommu=no
functions=
while [ $# -gt 0 ]; do
	case $1 in
	--apply) apply=yes ;;
	--force) force=yes ;;
	--back) back=yes ;;
	--noiommu) noiommu=yes ;;
	-*) sed -n '3,6s/^# //p' "$0" >&2; exit 2 ;;
	*) functions="$functions $1" ;;
	esac
	shift
done
[ -n "$functions" ] || die "PCI function missing (lspci -D | grep Ethernet lists them)"

check() { # FUNCTION
	dir=$SYSFS/bus/pci/devices/$1
	[ -d "$dir" ] || die "$1: no such PCI function (form 0000:3b:00.0)"
	case $(cat "$dir/class") in
	0x02*) ;;
	*) die "$1: not a network function" ;;
	esac
	[ "$(cat "$dir/vendor")" != 0x15b3 ] || die "$1: NVIDIA functions must stay with mlx5_core (nic/mlx5.md)"
	[ "$force" = no ] || return 0
	for net in "$dir"/net/*; do
		[ -e "$net" ] || continue
		if ip -br addr show dev "$(basename "$net")" 2>/dev/null | grep -q 'UP.*[0-9]'; then
			die "$1: $(basename "$net") is up and has an address (--force overrides)"
		fi
	done
}

driver_of() { # FUNCTION
	[ ! -e "$SYSFS/bus/pci/devices/$1/driver" ] ||
		basename "$(readlink "$SYSFS/bus/pci/devices/$1/driver")"
}

rebind() { # FUNCTION DRIVER ("" = the kernel's choice)
	now=$(driver_of "$1")
	echo "$1: driver ${now:-none}"
	[ "$now" != "$2" ] || [ -z "$2" ] || return 0
	[ -z "$now" ] || put "$1" "$SYSFS/bus/pci/devices/$1/driver/unbind"
	put "$2" "$SYSFS/bus/pci/devices/$1/driver_override"
	put "$1" "$SYSFS/bus/pci/drivers_probe"
}

for f in $functions; do
	[ "$back" = yes ] || check "$f"
done
if [ "$back" = no ]; then
	run modprobe vfio-pci
	if [ -z "$(ls "$SYSFS/kernel/iommu_groups" 2>/dev/null)" ]; then
		[ "$noiommu" = yes ] || die "no IOMMU: boot with intel_iommu=on (or amd_iommu), or use --noiommu, with which the NIC can write all memory"
		put 1 "$SYSFS/module/vfio/parameters/enable_unsafe_noiommu_mode"
	fi
fi
for f in $functions; do
	if [ "$back" = yes ]; then rebind "$f" ""; else rebind "$f" vfio-pci; fi
done
finish
