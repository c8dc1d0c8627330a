#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A router that was killed starts again on the memif socket it left; a live one keeps its socket.
#   restart_test.sh KVROUTE
set -u
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
conf() {
	printf '[router]\nfile_prefix = kvr-rs-%s-%s\nmemory_mb = 256\nlarge_buffers = 4\n[port p]\ndevice = net_memif0,role=server,id=0,socket=%s,socket-abstract=no\nipv4 = 10.0.0.1\n[pool m]\nmax_requests = 256\nmax_blocks = 65536\nmax_active_blocks = 65536\nmax_ranks = 64\n' \
		$$ "$1" "$dir/m.sock" >"$dir/$1.conf"
}
# start NAME: 0 when it became ready
start() {
	conf "$1"
	"$kvroute" --config "$dir/$1.conf" >"$dir/$1.log" 2>&1 &
	pid=$!
	for _ in $(seq 300); do
		grep -q 'kvroute: ready' "$dir/$1.log" && return 0
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
kvroute=$1 bad=0
start one || { echo "first start failed"; cat "$dir/one.log"; exit 1; }
first=$pid
start two && { echo "took the socket of a live router"; bad=1; kill -9 $pid; }
kill -9 $first
wait $first 2>/dev/null
[ -S "$dir/m.sock" ] || { echo "no socket left: nothing tested"; bad=1; }
start three || { echo "no start after kill -9"; cat "$dir/three.log"; bad=1; }
kill $pid 2>/dev/null
wait $pid 2>/dev/null
pid=
exit $bad
