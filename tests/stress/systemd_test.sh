#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The service under a real systemd: PID 1 of namespaces of its own, in a clean root with the Debian package. Started as its user with its
# capabilities and no others, over memif, a packet socket and AF_XDP (killed, too); watchdog, reload, exporter, upgrade over the running one, removal.
# Needs root, debootstrap and Debian's archive; some minutes. Not part of tools/test.
#   tests/stress/systemd_test.sh [FOLDER]     FOLDER keeps packages and the root for the next time, as package_test.sh does
# Exit status 77: not possible here.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] && command -v debootstrap dpkg-shlibdeps unshare >/dev/null || exit 77
cgroup=
for c in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	[ "$(stat -f -c %T "$c" 2>/dev/null)" = cgroup2fs ] && cgroup=$c/kvr-systemd-$$
done
[ -n "$cgroup" ] && mkdir "$cgroup" 2>/dev/null || { echo "no cgroups of version 2 here"; exit 77; }
folder=${1:-} temporary=
[ -n "$folder" ] || folder=$(mktemp -d) temporary=$folder
root=$folder/systemd-root
cleanup() {
	# All its processes end with PID 1.
	for _ in $(seq 50); do
		find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
		[ -d "$cgroup" ] || break
		sleep 0.1
	done
	rm -rf "$root"
	[ -z "$temporary" ] || rm -rf "$temporary"
}
trap cleanup EXIT
mkdir -p "$folder"
ls "$folder"/kvroute_9.9_*.deb >/dev/null 2>&1 || { tools/package "$folder" && tools/package --version 9.9 "$folder"; }
old=$(ls "$folder"/kvroute_*.deb | grep -v 9.9)
if [ ! -f "$folder/systemd.tar" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase --include=systemd,dbus,iproute2,procps bookworm "$root" http://deb.debian.org/debian \
		>"$folder/debootstrap.log" || exit 77
	# What the package depends on stays when it goes.
	cp /etc/resolv.conf "$root/etc/"
	chroot "$root" apt-get update -qq
	# shellcheck disable=SC2046
	DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -qq --no-install-recommends \
		$(dpkg-deb -f "$old" Depends | sed 's/([^)]*)//g; s/,/ /g') >"$folder/apt.log" 2>&1
	tar -C "$root" -cf "$folder/systemd.tar" .
fi
rm -rf "$root"
mkdir "$root"
tar -C "$root" -xf "$folder/systemd.tar"
mkdir -p "$root/test"
cp "$folder"/kvroute_*.deb "$root/test/"

cat >"$root/etc/systemd/system/kvr-test.service" <<'UNIT'
[Unit]
DefaultDependencies=no
After=basic.target dbus.service
Requires=basic.target dbus.service
[Service]
Type=oneshot
ExecStart=/bin/bash /test/inside
StandardOutput=file:/test/output
StandardError=inherit
ExecStopPost=/bin/systemctl --force poweroff
TimeoutStartSec=300
UNIT
cat >"$root/test/inside" <<'SCRIPT'
set -euo pipefail
fail() {
	echo "FAILED: $*"
	systemctl status --no-pager -l kvroute.service kvroute-exporter.service || true
	journalctl --no-pager -n 40 -u kvroute -u kvroute-exporter || true
	exit 1
}
value() { systemctl show -P "$1" "${2:-kvroute.service}"; }
pid() { value MainPID; }
alive() { [ "$(value ActiveState)" = active ] && kvroute-ctl info >/dev/null; }
export DEBIAN_FRONTEND=noninteractive
before() { find /etc /usr /lib /var/lib -xdev \( -path /var/lib/dpkg -o -path /var/lib/systemd -o -path '/etc/*-' \) -prune -o -print | sort; }
before >/test/before
old=$(ls /test/kvroute_*.deb | grep -v 9.9) new=$(ls /test/kvroute_9.9_*.deb)
dpkg -i "$old" >/test/dpkg.log 2>&1 || { cat /test/dpkg.log; fail "not installed"; }
[ -n "$(pidof kvroute || true)" ] && fail "the service runs before it was started"
mkdir -p /etc/systemd/system/kvroute.service.d
printf '[Service]\nWatchdogSec=2\n' >/etc/systemd/system/kvroute.service.d/test.conf
# The profile may poll a CPU that this machine does not lend.
sed -i "s/^ingress = .*/ingress = $(awk '/Cpus_allowed_list/ {split($2, a, /[-,]/); print a[1]}' /proc/self/status)\nidle = sleep/; s/^max_blocks = .*/max_blocks = 64K/" /etc/kvroute/kvroute.conf
systemctl daemon-reload
systemd-analyze verify /lib/systemd/system/kvroute*.service /usr/lib/systemd/system/kvroute*.service >/test/verify 2>&1 || true
grep -v 'Command .man ' /test/verify | grep -i 'unknown\|failed\|invalid\|not executable' && fail "systemd-analyze verify"

systemctl start kvroute.service || fail "the service does not start"
alive || fail "started, and not ready"
status=/proc/$(pid)/status
[ "$(stat -c %U "/proc/$(pid)")" = kvroute ] || fail "it runs as $(stat -c %U "/proc/$(pid)")"
# CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_PERFMON 38, CAP_BPF 39
want=$(printf '%016x' $((1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39)))
for set in CapEff CapPrm CapBnd CapAmb; do
	[ "$(awk "/^$set:/ {print \$2}" "$status")" = "$want" ] || fail "$set is not $want: $(grep "^$set" "$status")"
done
[ "$(awk '/^NoNewPrivs:/ {print $2}' "$status")" = 1 ] || fail "new privileges"
[ "$(awk '/^Seccomp:/ {print $2}' "$status")" = 2 ] || fail "no filter of system calls"
echo "started: user kvroute, five capabilities, system calls filtered; $(systemd-analyze security kvroute.service --no-pager | tail -1)"

# Fed: the time of the last sign of life goes on; not fed: it is killed, and comes again.
first=$(value WatchdogTimestampMonotonic)
for _ in $(seq 100); do [ "$(value WatchdogTimestampMonotonic)" != "$first" ] && break; sleep 0.1; done
[ "$(value WatchdogTimestampMonotonic)" != "$first" ] || fail "the watchdog is not fed"
hung=$(pid)
kill -STOP "$hung"
for _ in $(seq 600); do [ "$(value NRestarts)" = 1 ] && [ "$(value ActiveState)" = active ] && break; sleep 0.1; done
[ "$(value NRestarts)" = 1 ] && [ "$(pid)" != "$hung" ] && alive || fail "a hanging router is not restarted"
echo "watchdog: fed while it turns; stopped, it was started again"
systemctl reload kvroute.service || fail "reload"
alive || fail "the reload ended the router"

systemctl start kvroute-exporter.service || fail "the exporter does not start"
for _ in $(seq 300); do { exec 3<>/dev/tcp/127.0.0.1/9765; } 2>/dev/null && break; sleep 0.1; done
printf 'GET /health HTTP/1.0\r\n\r\n' >&3
grep -q '^ok' <&3 || fail "the exporter sees no router"
exec 3>&-
echo "exporter: sees the router"

# What runs is the new one after an upgrade.
was=$(pid)
dpkg -i "$new" >>/test/dpkg.log 2>&1 || fail "not upgraded"
[ "$(dpkg-query -W -f '${Version}' kvroute)" = 9.9 ] && alive && [ "$(pid)" != "$was" ] || fail "upgraded, and the old one runs"
[ "$(value ActiveState kvroute-exporter.service)" = active ] || fail "the exporter did not survive"
echo "upgraded: the new one runs"

# A packet socket and AF_XDP, with no more than these capabilities.
ip link add kvr0 type veth peer name kvr1
ip link set kvr0 up
ip link set kvr1 up
xdp() { ip link show kvr0 | grep -c 'prog/xdp' || true; }
cp /etc/kvroute/kvroute.conf /test/memif.conf
for kind in af_packet af_xdp; do
	sed "s|^device = .*|device = net_${kind}0,iface=kvr0|; s/^tx_checksum = .*//" /test/memif.conf >/test/port.conf
	cp /test/port.conf /etc/kvroute/kvroute.conf
	if systemctl restart kvroute.service && alive; then
		echo "$kind: runs"
	else
		fail "$kind does not run"
	fi
	if [ $kind = af_xdp ]; then
		[ "$(xdp)" = 1 ] || fail "no XDP program"
		hung=$(pid)
		again=$(value NRestarts)
		kill -KILL "$hung"
		for _ in $(seq 600); do [ "$(value NRestarts)" != "$again" ] && [ "$(value ActiveState)" = active ] && break; sleep 0.1; done
		alive && [ "$(pid)" != "$hung" ] && [ "$(xdp)" = 1 ] || fail "killed, it does not come again"
		# One that is not started again leaves nothing, either.
		printf '[Service]\nRestart=no\n' >/etc/systemd/system/kvroute.service.d/no.conf
		systemctl daemon-reload
		kill -KILL "$(pid)"
		for _ in $(seq 600); do [ "$(value ActiveState)" = failed ] && break; sleep 0.1; done
		[ "$(value ActiveState)" = failed ] && [ "$(xdp)" = 0 ] || fail "killed, its XDP program stays"
		rm /etc/systemd/system/kvroute.service.d/no.conf
		systemctl daemon-reload
		echo "$kind: killed, it came again; killed and not restarted, its program is detached"
	fi
	cp /test/memif.conf /etc/kvroute/kvroute.conf
done
systemctl restart kvroute.service && alive || fail "the service does not start again"

systemctl stop kvroute.service kvroute-exporter.service
[ "$(value Result)" = success ] && [ ! -e /run/kvroute ] || fail "stopped: $(value Result), $(ls -d /run/kvroute)"
systemctl start kvroute.service
rm -r /etc/systemd/system/kvroute.service.d
dpkg -P kvroute >>/test/dpkg.log 2>&1 || { cat /test/dpkg.log; fail "not removed"; }
[ -z "$(pidof kvroute || true)" ] || fail "removed, and it runs"
getent passwd kvroute >/dev/null && fail "the user is left"
before >/test/after
diff /test/before /test/after || fail "something is left behind"
echo "removed: nothing is left"
echo PASSED
SCRIPT

cat >"$folder/boot" <<'SCRIPT'
set -eu
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t bpf bpf "$root/sys/fs/bpf" 2>/dev/null || true
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
	set -- $node
	mknod -m 666 "$root/dev/$1" c "$2" "$3"
done
ln -s /proc/self/fd "$root/dev/fd"
ip link set lo up
cd "$root"
mkdir -p "$root/old"
pivot_root . old
umount -l /old
exec env -i container=kvr PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=kvr-test.service --log-target=journal --show-status=no
SCRIPT
(
	echo "$BASHPID" >"$cgroup/cgroup.procs"
	exec timeout --foreground -k 10 400 unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child --propagation private \
		bash "$folder/boot" "$root"
) </dev/null >"$folder/systemd.log" 2>&1 || true
if ! grep -qs PASSED "$root/test/output"; then
	tail -20 "$folder/systemd.log"
	cat "$root/test/output" 2>/dev/null || { echo "systemd does not run here"; exit 77; }
	exit 1
fi
grep -v PASSED "$root/test/output"
