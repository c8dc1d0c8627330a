#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Debian package in a clean root: installed, run as its user, upgraded over a running router, removed; nothing is left behind.
# Needs root, debootstrap and Debian's archive; ten minutes, mostly of the compiler. Not part of tools/test.
#   tests/stress/package_test.sh [FOLDER]     FOLDER keeps build, packages and the clean root for the next time
# Exit status 77: not possible here.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] && command -v debootstrap dpkg-shlibdeps >/dev/null || exit 77
folder=${1:-}
if [ -z "$folder" ]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"
tools/package "$folder"
tools/package --version 9.9 "$folder"
if [ ! -f "$folder/clean.tar" ]; then
	debootstrap --variant=minbase bookworm "$folder/clean" http://deb.debian.org/debian >"$folder/debootstrap.log" || exit 77
	tar -C "$folder/clean" -cf "$folder/clean.tar" .
	rm -rf "$folder/clean"
fi
root=$folder/root
rm -rf "$root"
mkdir "$root"
tar -C "$root" -xf "$folder/clean.tar"
cp "$folder"/kvroute_*.deb "$root/tmp/"
# Whatever is built as a program of the project is in it.
sed -n "s/.*executable('\(kvroute[a-z-]*\)'.*/\1/p" app/*/meson.build >"$root/tmp/programs"
[ -s "$root/tmp/programs" ]
cat >"$root/tmp/inside" <<'SCRIPT'
set -eu
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
export DEBIAN_FRONTEND=noninteractive
old=$(ls /tmp/kvroute_*.deb | grep -v 9.9) new=$(ls /tmp/kvroute_9.9_*.deb)
listing() { find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path '/var/lib/dpkg' \) -prune -o -print | grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$' | sort; }
fail() { echo "FAILED: $*"; exit 1; }
apt-get update -qq
# What it depends on stays; what it brings must not.
apt-get install -y -qq --no-install-recommends $(dpkg-deb -f "$old" Depends | sed 's/([^)]*)//g; s/,/ /g') procps >/tmp/apt.log 2>&1
listing >/tmp/before
dpkg -i "$old" >/tmp/dpkg.log
while read -r p; do
	$p --version | grep -q "^$p [0-9]" || fail "$p --version"
	$p --help >/dev/null || fail "$p --help"
done </tmp/programs
# What the documents name, and a reader of the package has nowhere else.
for f in doc/kvroute/README.md doc/kvroute/PROTOCOL.md doc/kvroute/RULES.md doc/kvroute/COMMANDS.md kvroute/README.md kvroute/nic kvroute/host/bind.sh kvroute/profiles/afpacket.conf; do
	[ -e /usr/share/$f ] || fail "no /usr/share/$f"
done
kvroute --config /etc/kvroute/kvroute.conf --check || fail "its configuration"
getent passwd kvroute >/dev/null || fail "no user"
install -d -o kvroute -g kvroute -m 750 /run/kvroute
setpriv --reuid kvroute --regid kvroute --clear-groups --bounding-set -all env RUNTIME_DIRECTORY=/run/kvroute \
	kvroute --config /etc/kvroute/kvroute.conf >/tmp/router.log 2>&1 &
router=$!
for _ in $(seq 300); do grep -q 'kvroute: ready' /tmp/router.log && break; sleep 0.1; done
kvroute-ctl info >/tmp/info || { cat /tmp/router.log; fail "the router does not answer"; }
kvroute-ctl pools | grep -q block_size || fail "no pools"
# Upgraded while it runs: the old one goes on until it is restarted.
dpkg -i "$new" >>/tmp/dpkg.log
[ "$(dpkg-query -W -f '${Version}' kvroute)" = 9.9 ] || fail "not upgraded"
kvroute-ctl info >/dev/null || fail "the router does not answer after the upgrade"
kill $router
wait $router || fail "the router ended with $?"
kvroute-ctl info 2>/dev/null && fail "a router that is stopped answers"
dpkg -r kvroute >>/tmp/dpkg.log
[ -f /etc/kvroute/kvroute.conf ] || fail "the configuration goes with the package, not with purge"
dpkg -P kvroute >>/tmp/dpkg.log
getent passwd kvroute >/dev/null && fail "the user was not removed"
[ ! -e /run/kvroute ] || fail "/run/kvroute is left"
listing >/tmp/after
diff /tmp/before /tmp/after || fail "files are left behind"
echo "installed, run, upgraded, removed: nothing is left"
SCRIPT
unshare --mount --pid --fork chroot "$root" /bin/bash /tmp/inside
rm -rf "$root"
