#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Rows 34, 35, 38, 39: a start that fails reports one line with the remedy; a long start reports its progress and can be stopped;
# missing standard files do no harm.
#   start_errors.sh KVROUTE
set -u
shopt -s lastpipe # refuse() counts failures in this shell
kvroute=$1
dir=$(mktemp -d)
pids=()
trap 'for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done; rm -rf "$dir"' EXIT
bad=0
fail() {
	echo "FAILED: $*"
	bad=1
}
# conf DEVICE [LINE OF [router]] ...
conf() {
	local device=$1
	shift
	printf '[router]\nfile_prefix = kvr-rs35-%s\nhugepages = off\nmemory_mb = 128\nlarge_buffers = 4\n' $$
	printf '%s\n' "$@"
	printf '[port p]\ndevice = %s\nipv4 = 10.0.0.1\n[pool m]\nmax_requests = 64\nmax_jobs = 64\nmax_blocks = 4096\nmax_active_blocks = 4096\nmax_ranks = 8\n' "$device"
}
# refuse NAME 'regular expression of the one line': the configuration on standard input does not start
refuse() {
	cat >"$dir/r.conf"
	local out rc
	timeout 30 "$kvroute" --config "$dir/r.conf" >"$dir/r.log" 2>&1
	rc=$?
	out=$(grep -v 'msg="starting: ' "$dir/r.log" | sed 's/\\"/"/g') # a busy machine
	[ $rc -eq 1 ] || fail "$1: exit $rc"
	[ "$(wc -l <<<"$out")" -eq 1 ] || fail "$1: more than one line: $out"
	grep -qE "^(kvroute: |time=.* level=error msg=).*r.conf:[0-9]+: .*$2" <<<"$out" || fail "$1: said: $out"
}
# ready LOG PID: 0 when it became ready
ready() {
	for _ in $(seq 200); do
		grep -q 'kvroute: ready' "$1" && return 0
		kill -0 "$2" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
# ends PID: rc = its exit status; killed after 5 s
ends() {
	for _ in $(seq 50); do
		[ "$(awk '/^State/ {print $2}' "/proc/$1/status" 2>/dev/null)" = Z ] && break
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -9 "$1" 2>/dev/null
	wait "$1"
	rc=$?
}

# Each of them one line.
twice() { sed "s/^$1 = .*/$1 = $2/"; }
conf net_af_packet0,iface=kvr-absent | refuse interface 'device: no such interface: "kvr-absent".*ip link'
conf 0000:ff:1f.7 | refuse pci 'device: no such PCI device: "0000:ff:1f.7"'
conf net_absent0 | refuse driver 'device: no such driver of the device: "net_absent0"'
conf net_memif0,role=server,id=0,bogus=1 | refuse argument 'device: net_memif has no argument "bogus"'
conf net_af_packet0,iface=lo,bogus=1 | refuse packet-argument 'device: net_af_packet has no argument "bogus", allowed: iface, qpairs'
conf net_af_packet0 | refuse packet-interface 'device: net_af_packet needs iface=NAME'
conf net_tap0,bogus=1 | refuse tap-argument 'device: net_tap has no argument "bogus"'
conf net_memif0,role=server,zero-copy=yes | refuse zero-copy 'zero-copy: got "yes".*change frames after'
conf net_memif0,role=server,socket-abstract=no,socket=/kvr-absent/m.sock |
	refuse folder 'socket "/kvr-absent/m.sock": No such file.*folder'
conf net_memif0,role=client,socket-abstract=no,socket=$dir/absent.sock |
	refuse client 'device: net_memif does not start.*absent.sock'
conf net_null0 'eal = --bogus' | refuse eal 'eal: got "--bogus".*unrecognized option'
free=$(awk '/^HugePages_Free/ {print $2}' /proc/meminfo)
[ "${free:-0}" -ne 0 ] || conf net_null0 | twice hugepages on |
	refuse hugepages 'hugepages: on, but 0 MiB of them are free.*hugepages.sh'
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
	mkdir "$dir/run"
	chmod 777 "$dir" "$dir/run"
	conf net_af_packet0,iface=lo >"$dir/c.conf"
	chmod 644 "$dir/c.conf"
	out=$(XDG_RUNTIME_DIR=$dir/run setpriv --reuid=65534 --clear-groups --inh-caps=-all "$kvroute" --config "$dir/c.conf" 2>&1 | grep -v 'msg="starting: ')
	case $out in
	*"Permission denied"* | *"cannot execute"*) ;; # the program lies where others may not go
	*) grep -q 'net_af_packet0 needs CAP_NET_RAW' <<<"$out" && [ "$(wc -l <<<"$out")" -eq 1 ] ||
		fail "capability: said: $out" ;;
	esac
	out=$(XDG_RUNTIME_DIR=/proc setpriv --reuid=65534 --clear-groups --inh-caps=-all "$kvroute" --config "$dir/c.conf" 2>&1 | grep -v 'msg="starting: ')
	case $out in
	*"cannot execute"* | *"failed to execute"*) ;;
	*) grep -q 'file_prefix: cannot create the runtime folder.*XDG_RUNTIME_DIR' <<<"$out" && [ "$(wc -l <<<"$out")" -eq 1 ] ||
		fail "runtime folder: said: $out" ;;
	esac
fi

# More than there is, in a line; a long start speaks and can be stopped.
have=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
all=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo) # others may leave meanwhile
conf net_null0 | twice memory_mb "$all" | refuse memory 'memory_mb: got .* leaves [0-9]+ MiB'
# Block tables lie beside memory_mb when there are no huge pages: at least 16 bytes a block.
[ "$all" -gt 26000 ] || conf net_null0 | twice max_blocks $((all * 80000)) |
	twice memory_mb 3600 | refuse tables 'memory_mb: got .* leaves [0-9]+ MiB.*block tables \(max_blocks\)'
if [ "$have" -gt 6000 ]; then
	conf net_null0 | twice memory_mb 4096 >"$dir/l.conf"
	"$kvroute" --config "$dir/l.conf" >"$dir/l.log" 2>&1 &
	pid=$!
	pids+=("$pid")
	for _ in $(seq 100); do
		grep -qE 'starting: |ready' "$dir/l.log" && break
		sleep 0.1
	done
	if grep -q ready "$dir/l.log"; then
		echo "4096 MiB in less than a second: neither progress nor SIGTERM during the start can be tested"
	else
		kill $pid
		ends $pid
		[ "$rc" = 0 ] || fail "SIGTERM during the start: exit $rc"
		grep -q 'stopped during the start' "$dir/l.log" || fail "said: $(cat "$dir/l.log")"
	fi
fi

# Without standard files; the router becomes ready, and file 1 is not reused.
conf net_null0 >"$dir/s.conf"
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
	rm -rf "/var/run/dpdk/kvr-rs35-$$" "/tmp/dpdk/kvr-rs35-$$" # what a router that was ended early has left
	eval "exec 9>'$dir/s.log'; '$kvroute' --config '$dir/s.conf' >&9 2>&9 $closed 9>&- &"
	pid=$!
	exec 9>&-
	pids+=("$pid")
	prefix=kvr-rs35-$$
	for _ in $(seq 100); do # ready when its telemetry answers
		[ -S "/var/run/dpdk/$prefix/dpdk_telemetry.v2" ] || [ -S "/tmp/dpdk/$prefix/dpdk_telemetry.v2" ] && break
		sleep 0.1
	done
	for _ in $(seq 100); do # while the EAL starts, what it prints is caught
		ls -l "/proc/$pid/fd" | grep -q kvr_eal || break
		sleep 0.1
	done
	for fd in 0 1 2; do
		to=$(readlink "/proc/$pid/fd/$fd")
		case $to in
		/dev/null | "$dir"/* | pipe:* | /dev/* ) ;;
		*) fail "closed $closed: file $fd is $to" ;;
		esac
	done
	kill $pid
	ends $pid
	[ "$rc" = 0 ] || fail "closed $closed: SIGTERM: exit $rc"
done

# A file prefix that is in use.
"$kvroute" --config "$dir/s.conf" >"$dir/one.log" 2>&1 &
pid=$!
pids+=("$pid")
ready "$dir/one.log" $pid || fail "no start: $(cat "$dir/one.log")"
conf net_null0 | refuse prefix 'file_prefix: "kvr-rs35-[0-9]+" is in use by another process'
# --check=full beside a router that runs, silent; what only a start can see.
out=$("$kvroute" --config "$dir/s.conf" --check=full 2>&1) && [ -z "$(grep -v 'msg="starting: ' <<<"$out")" ] || fail "check=full: $out"
conf net_af_packet0,iface=kvr-absent >"$dir/f.conf"
"$kvroute" --config "$dir/f.conf" --check || fail "--check looks for interfaces"
out=$("$kvroute" --config "$dir/f.conf" --check=full 2>&1) && fail "--check=full does not miss the interface"
grep -q 'no such interface: .*kvr-absent' <<<"$out" || fail "check=full: $out"
conf net_null0 'ring_size = 1048576' | twice memory_mb 64 >"$dir/f.conf"
out=$("$kvroute" --config "$dir/f.conf" --check=full 2>&1) && fail "--check=full does not miss the memory"
grep -q 'memory_mb' <<<"$out" && [ "$(grep -cv 'msg="starting: ' <<<"$out")" -eq 1 ] || fail "check=full: $out"
kill $pid
ends $pid
[ "$rc" = 0 ] || fail "end: $rc"
exit $bad
