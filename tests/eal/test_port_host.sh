#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The host scripts of drivers-cfg on a fake /sys and /proc: without --apply nothing
# changes, with --apply the right files do. Argument: the folder drivers-cfg/host.
set -eu
host=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export SYSFS=$top/sys PROCFS=$top/proc
fail() { echo "FAILED: $*"; exit 1; }
same() { [ "$(cat "$1")" = "$2" ] || fail "$1 is '$(cat "$1")', not '$2'"; }
make() { mkdir -p "$(dirname "$1")"; echo "$2" >"$1"; }

huge=$SYSFS/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages
make "$huge" 0
make "$PROCFS/mounts" "hugetlbfs /dev/hugepages hugetlbfs rw 0 0"
"$host/hugepages.sh" --size 1G --node 1 4 | grep -q "+ echo 4 > $huge" || fail "hugepages prints"
same "$huge" 0
"$host/hugepages.sh" --apply --size 1G --node 1 4 >/dev/null
same "$huge" 4
! "$host/hugepages.sh" --size 4K 1 2>/dev/null || fail "page size accepted"
! "$host/hugepages.sh" 2>/dev/null || fail "no count accepted"
! "$host/hugepages.sh" --node 7 1 2>/dev/null || fail "missing node accepted"

make "$SYSFS/devices/system/cpu/online" 0-3
make "$PROCFS/irq/10/smp_affinity_list" 0-3
make "$PROCFS/irq/11/smp_affinity_list" 0
make "$SYSFS/devices/system/cpu/cpu2/cpufreq/scaling_governor" powersave
"$host/isolate.sh" 2-3 | grep -q "isolcpus=managed_irq,domain,2-3 nohz_full=2-3" || fail "isolate"
same "$PROCFS/irq/10/smp_affinity_list" 0-3
"$host/isolate.sh" --apply 2-3 >/dev/null
same "$PROCFS/irq/10/smp_affinity_list" 0,1
same "$PROCFS/irq/11/smp_affinity_list" 0
same "$SYSFS/devices/system/cpu/cpu2/cpufreq/scaling_governor" performance
! "$host/isolate.sh" 0-3 2>/dev/null || fail "no CPU left accepted"

pci=$SYSFS/bus/pci/devices
make "$pci/0000:3b:00.0/class" 0x020000
make "$pci/0000:3b:00.0/vendor" 0x8086
make "$pci/0000:3b:00.0/driver_override" ""
make "$pci/0000:af:00.0/class" 0x020000
make "$pci/0000:af:00.0/vendor" 0x15b3
make "$pci/0000:00:01.0/class" 0x010000
make "$pci/0000:00:01.0/vendor" 0x8086
make "$SYSFS/bus/pci/drivers_probe" ""
mkdir -p "$SYSFS/kernel/iommu_groups/0"
"$host/bind.sh" 0000:3b:00.0 | grep -q "+ echo vfio-pci > $pci/0000:3b:00.0/driver_override" ||
	fail "bind prints"
same "$pci/0000:3b:00.0/driver_override" ""
! "$host/bind.sh" 0000:af:00.0 2>/dev/null || fail "NVIDIA accepted"
! "$host/bind.sh" 0000:00:01.0 2>/dev/null || fail "a disk accepted"
! "$host/bind.sh" 0000:ff:00.0 2>/dev/null || fail "missing function accepted"
rmdir "$SYSFS/kernel/iommu_groups/0"
! "$host/bind.sh" 0000:3b:00.0 >/dev/null 2>&1 || fail "no IOMMU accepted"
"$host/bind.sh" --noiommu 0000:3b:00.0 | grep -q enable_unsafe_noiommu_mode || fail "noiommu"
"$host/bind.sh" --apply --back 0000:3b:00.0 >/dev/null
same "$SYSFS/bus/pci/drivers_probe" 0000:3b:00.0

net=$SYSFS/class/net/eth1
make "$net/mtu" 9000
mkdir -p "$net/queues/rx-0" "$net/queues/rx-1"
! "$host/afxdp.sh" eth1 2 2>/dev/null || fail "mtu 9000 accepted"
make "$net/mtu" 1500
"$host/afxdp.sh" eth1 1 | grep -q "+ ethtool -L eth1 combined 1" || fail "ethtool"
! "$host/afxdp.sh" eth1 2 | grep -q ethtool || fail "needless ethtool"
[ ! -e "$net/napi_defer_hard_irqs" ] || fail "changed without --apply"
! "$host/afxdp.sh" eth7 1 2>/dev/null || fail "missing interface accepted"
echo ok
