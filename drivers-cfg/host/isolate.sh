#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Keep the kernel off the polling CPUs: isolate.sh [--apply] CPUS (such as 2-5 or 2,4)
# --apply moves interrupts away and sets the performance governor, until the next boot. The kernel
# arguments that keep the scheduler and timers away are only printed.
set -eu
. "$(dirname "$0")/lib.sh"
cpus=
while [ $# -gt 0 ]; do
	case $1 in
	--apply) apply=yes ;;
	-*) sed -n '3,5s/^# //p' "$0" >&2; exit 2 ;;
	*) cpus=$1 ;;
	esac
	shift
done
case $cpus in '' | *[!0-9,-]*) die "CPUS is a list such as 2-5 or 2,4" ;; esac

expand() { # LIST -> one number a line
	echo "$1" | tr ',' '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done
}
poll=$(expand "$cpus")
rest=
for c in $(expand "$(cat "$SYSFS/devices/system/cpu/online")"); do
	echo "$poll" | grep -qx "$c" || rest=$rest,$c
done
rest=${rest#,}
[ -n "$rest" ] || die "$cpus leaves no CPU to the kernel"

for irq in "$PROCFS"/irq/[0-9]*; do
	[ -e "$irq/smp_affinity_list" ] || continue
	for c in $(expand "$(cat "$irq/smp_affinity_list")"); do
		if echo "$poll" | grep -qx "$c"; then
			# Some interrupts are bound to one CPU; that is not an error.
			put "$rest" "$irq/smp_affinity_list" || echo "  ($(basename "$irq") cannot move)"
			break
		fi
	done
done
for c in $poll; do
	g=$SYSFS/devices/system/cpu/cpu$c/cpufreq/scaling_governor
	[ ! -e "$g" ] || [ "$(cat "$g")" = performance ] || put performance "$g"
done
for s in "$SYSFS/devices/system/cpu/smt/active"; do
	[ ! -e "$s" ] || [ "$(cat "$s")" = 0 ] ||
		echo "note: SMT is on; leave the siblings of $cpus idle or switch it off"
done
echo "for every boot: isolcpus=managed_irq,domain,$cpus nohz_full=$cpus rcu_nocbs=$cpus irqaffinity=$rest"
echo "and stop irqbalance, or give it IRQBALANCE_BANNED_CPULIST=$cpus"
finish
