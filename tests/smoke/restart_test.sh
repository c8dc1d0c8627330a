#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A router that was killed starts again on the sockets it left, memif's and telemetry's; a live one keeps its socket.
#   restart_test.sh KVROUTE KVROUTE_LOAD
set -u
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
# conf NAME [NAME of the router whose file prefix it takes]
conf() {
	printf '[router]\nfile_prefix = kvr-rs-%s-%s\nmemory_mb = 256\nlarge_buffers = 4\n[port p]\ndevice = net_memif0,role=server,id=0,socket=%s,socket-abstract=no\nipv4 = %s\n[pool default]\nmax_requests = 1024\nmax_blocks = 65536\nmax_active_blocks = 65536\nmax_ranks = 64\n' \
		$$ "${2-$1}" "$dir/m.sock" $address >"$dir/$1.conf"
}
# start NAME [NAME]: 0 when it became ready
start() {
	conf "$@"
	"$kvroute" --config "$dir/$1.conf" >"$dir/$1.log" 2>&1 &
	pid=$!
	for _ in $(seq 300); do
		grep -q 'kvroute: ready' "$dir/$1.log" && return 0
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
# routes WHAT: the router on the socket serves requests
routes() {
	"$load" --socket "$dir/m.sock" --router $address --engines 2 --rate 200 --seconds 1 --quiet >"$dir/load.log" 2>&1 && return
	echo "$1"
	tail -5 "$dir/load.log"
	bad=1
}
# answers WHAT NAME: telemetry of the router with that file prefix does
answers() {
	command -v dpdk-telemetry.py >/dev/null || return 0
	echo /kvroute/info | timeout 20 dpdk-telemetry.py -f "kvr-rs-$$-$2" 2>&1 | grep -q '"version"' && return
	echo "$1"
	bad=1
}
kvroute=$1 load=$2 bad=0 address=10.0.0.1
start one || { echo "first start failed"; cat "$dir/one.log"; exit 1; }
first=$pid
start two && { echo "took the socket of a live router"; bad=1; kill -9 $pid; }
[ "$(wc -l <"$dir/two.log")" -eq 1 ] && grep -q 'm.sock.*served by another process' "$dir/two.log" ||
	{ echo "the second router says:"; cat "$dir/two.log"; bad=1; }
kill -0 $first || { echo "the second router has ended the first"; exit 1; }
answers "no telemetry" one
routes "the first router does not route after the second was refused"
# The client looks for a router that is absent, while one exits and another starts.
address=10.0.0.2
"$load" --socket "$dir/m.sock" --router $address --find 100 --engines 2 --rate 200 --seconds 1 --quiet >"$dir/early.log" 2>&1 &
early=$!
for _ in $(seq 300); do
	[ "$(grep -c 'port p: link to the memif peer' "$dir/one.log")" -ge 2 ] && break
	kill -0 $early 2>/dev/null || break
	sleep 0.1
done
kill -9 $first
wait $first 2>/dev/null
# A killed router releases its memory before its locks; a router started at once waits for that.
for base in /var/run/dpdk "${XDG_RUNTIME_DIR-/tmp}/dpdk"; do
	lock=$base/kvr-rs-$$-one/kvroute.lock
	[ -e "$lock" ] || continue
	flock "$lock" sleep 0.7 &
	for _ in $(seq 100); do
		flock -n "$lock" true || break
		sleep 0.01
	done
done
[ -S "$dir/m.sock" ] || { echo "no socket left: nothing tested"; bad=1; }
start three one || { echo "no start after kill -9"; cat "$dir/three.log"; bad=1; }
answers "no telemetry after the restart" one
wait $early || { echo "who looked for the router before it was there has not found it: $?"; cat "$dir/early.log"; bad=1; }
routes "no routing after the restart"
kill $pid 2>/dev/null
wait $pid || { echo "end of the third: $?"; bad=1; }
[ ! -e "$dir/m.sock.lock" ] || { echo "the lock is left"; bad=1; }
pid=
exit $bad
