#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A bad configuration ends the start with one line that names file, line, key and what is allowed.
#   config_test.sh KVROUTE
set -u
kvroute=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
good='[router]
ingress = 0
[port p0]
device = net_null0
ipv4 = 10.0.0.1
[pool m]
block_size = 16
'
passed=0 failed=0
# bad NAME 'sed program applied to the good file' 'regular expression of the one line'
bad() {
	local out
	sed "$2" <<<"$good" >"$dir/r.conf"
	out=$("$kvroute" --config "$dir/r.conf" --check 2>&1)
	local rc=$?
	if [ $rc -eq 1 ] && [ "$(wc -l <<<"$out")" -eq 1 ] && grep -qE "$3" <<<"$out"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "$1: exit $rc, said: $out"
	fi
}
echo "$good" >"$dir/r.conf"
if out=$("$kvroute" --config "$dir/r.conf" --check 2>&1) && [ -z "$out" ]; then
	passed=$((passed + 1))
else
	failed=$((failed + 1)) && echo "good configuration refused: $out"
fi
bad unknown-key 's/^ingress.*/ingres = 0/' 'r.conf:2: .*ingres'
bad unknown-section 's/^\[port p0\]/[prot p0]/' 'r.conf:3: .*prot p0'
bad least-memory 's/^ingress.*/memory_mb = 256\nlarge_buffers = 4096/' 'r.conf:2: .*memory_mb.*"256".*at least [0-9]{4} MiB.*large_buffers [0-9]{4}'
bad least-memory-jobs 's/^block_size.*/max_jobs = 1000000/' 'memory_mb.*"768".*at least [0-9]+ MiB.*max_jobs'
bad least-memory-requests 's/^block_size.*/max_requests = 4000000/' 'memory_mb.*"768".*max_requests of the pools [0-9]{4}'
bad least-memory-ranks 's/^block_size.*/max_active_blocks = 100000000/' 'memory_mb.*"768".*ranks [0-9]{4}'
bad least-memory-pages 's/^ingress.*/memory_mb = 200\nhugepages = off/; s/^ipv4.*/&\nmbufs = 40000/' 'memory_mb.*"200".*packet buffers 15[0-9],'
# The amounts that a rejection names suffice for a start: --check=full accepts them.
sed 's/^ingress.*/memory_mb = 200\nhugepages = off/; s/^ipv4.*/&\nmbufs = 40000/; s/^block_size.*/max_requests = 400000/' <<<"$good" >"$dir/r.conf"
least=$("$kvroute" --config "$dir/r.conf" --check 2>&1 | grep -oE 'at least [0-9]+' | grep -oE '[0-9]+')
sed -i "s/^memory_mb.*/memory_mb = ${least:-0}/" "$dir/r.conf"
if out=$("$kvroute" --config "$dir/r.conf" --check=full 2>&1); then
	passed=$((passed + 1))
else
	failed=$((failed + 1)) && echo "least-is-enough: ${least:-0} MiB: $out"
fi
bad too-many-ranks 's/^block_size.*/max_ranks = 16385/' 'r.conf:7: .*max_ranks.*"16385".*16384'
bad bad-value 's/^block_size.*/block_size = many/' 'r.conf:7: .*block_size.*many'
bad out-of-range 's/^block_size.*/block_size = 0/' 'r.conf:7: .*block_size.*1'
bad bad-choice 's/^block_size.*/router_mode = fastest/' 'r.conf:7: .*router_mode.*round-robin'
bad missing-port '/port p0/,/ipv4/d' 'port'
bad missing-pool '/pool m/,$d' 'pool'
bad twice 's/^\[pool m\]/[port p0]\n[pool m]/' 'r.conf:6: .*p0'
bad prefix-outside 's/^ingress.*/file_prefix = ..\/..\/x/' 'r.conf:2: .*file_prefix.*"../../x".*allowed: letters'
bad prefix-above 's/^ingress.*/file_prefix = ../' 'r.conf:2: .*file_prefix.*allowed: letters'
bad prefix-empty 's/^ingress.*/file_prefix =/' 'r.conf:2: .*file_prefix.*allowed: letters'
bad cpu-twice 's/^ingress.*/ingress = 0,0/' 'r.conf:2: .*ingress: "0,0" names CPU 0 twice, allowed: once, or .* 0@0,1@0'
bad cpu-malformed 's/^ingress.*/ingress = zero/' 'ingress.*zero'
bad cpu-absent 's/^ingress.*/ingress = 1000/' 'ingress.*1000'
bad lcores-poll 's/^ingress.*/ingress = 0@0,1@0/' 'r.conf:1: .router. idle: got "poll", but lcores 0 and 1 share CPU 0.*allowed: sleep, interrupt'
bad lcores-poll-role 's/^block_size.*/event_cpu = 1@0/' 'idle: got "poll", but lcores 0 and 1 share CPU 0'
bad lcores-order 's/^ingress.*/ingress = 0@0,2@0/' 'r.conf:2: .*ingress: got "2@0", allowed: IDs in order, the next is 1'
bad lcores-order-role 's/^block_size.*/event_cpu = 3@0/' 'r.conf:7: .*event_cpu: got "3@0", allowed: IDs in order, the next is 1'
bad lcores-absent 's/^ingress.*/ingress = 0@1000/' 'r.conf:2: .*ingress: CPU 1000 is not available'
sed 's/^ingress.*/ingress = 0@0,1@0,2@0\nidle = sleep/; s/^block_size.*/&\nevent_cpu = 2@0\nscheduler_cpu = 3@0/' <<<"$good" >"$dir/r.conf"
if out=$("$kvroute" --config "$dir/r.conf" --check 2>&1) && [ -z "$out" ]; then
	passed=$((passed + 1))
else
	failed=$((failed + 1)) && echo "lcores that share a CPU refused: $out"
fi
bad liveness 's/^ingress.*/dead_ms = 200/' 'dead_ms'
bad pool-id-twice '$a [pool n]\nid = 0' 'id.*pool m'
bad pool-key-twice 's/^\[pool m\]/[pool a-b]/; $a [pool a_b]\nid = 1' 'r.conf:9: .*pool a_b.*telemetry.*"a_b".*pool a-b'
bad port-key-twice '$a [port p.0]\ndevice = net_null1\nipv4 = 10.0.0.2\n[port p_0]\ndevice = net_null2\nipv4 = 10.0.0.3' \
	'port p_0.*telemetry.*"p_0".*port p.0'
bad workers-of-a-pool 's/^ingress.*/max_workers = 3/; $a max_workers = 4' 'max_workers.*got 3.*pool m.*4'
bad event-cpu 's/^block_size.*/event_cpu = x/' 'event_cpu'
bad sessions-range 's/^block_size.*/max_sessions = 16777217/' 'r.conf:7: .*max_sessions.*16777216'
bad sessions-negative 's/^block_size.*/max_sessions = -1/' 'r.conf:7: .*max_sessions'
bad affinity-zero 's/^block_size.*/session_affinity_ttl_secs = 0/' 'r.conf:7: .*session_affinity_ttl_secs.*31536000'
bad affinity-long 's/^block_size.*/session_affinity_ttl_secs = 31536001/' 'r.conf:7: .*session_affinity_ttl_secs'
bad affinity-text 's/^block_size.*/session_affinity_ttl_secs = day/' 'r.conf:7: .*session_affinity_ttl_secs.*day'
bad class-without-pool '$a [class x gold]' 'class x gold'
bad class-twice '$a [class m gold]\n[class m gold]' 'class m gold'
bad class-quantum '$a [class m gold]\nquantum = 0' 'r.conf:10: .*quantum'
bad no-value 's/^block_size.*/block_size/' 'r.conf:7'
# Ports: faults that are visible without their devices.
bad ipv4 's/^ipv4.*/ipv4 = 10.0.0.999/' 'r.conf:5: .*ipv4: got "10.0.0.999", allowed: a unicast IPv4'
bad ipv4-group 's/^ipv4.*/ipv4 = 224.0.0.1/' 'r.conf:5: .*ipv4: got "224.0.0.1"'
bad ipv4-length 's/^ipv4.*/ipv4 = 10.0.0.1\/24/' 'r.conf:5: .*ipv4'
bad ipv4-loopback 's/^ipv4.*/ipv4 = 127.0.0.1/' 'r.conf:5: .*ipv4: got "127.0.0.1", allowed: .*not the loopback'
bad ipv6 's/^ipv4.*/ipv6 = fd00:::1/' 'r.conf:5: .*ipv6: got "fd00:::1", allowed: a unicast IPv6'
bad no-address '/^ipv4/d' 'port p0.*neither ipv4 nor ipv6'
bad mac 's/^ipv4.*/&\nmac = 02:00:00:00:01/' 'r.conf:6: .*mac: got "02:00:00:00:01", allowed: a unicast'
bad mac-group 's/^ipv4.*/&\nmac = 01:00:00:00:00:01/' 'r.conf:6: .*mac'
bad allow 's/^ipv4.*/&\nallow = 10.0.0.0\/8 10.1.0.0\/33/' 'r.conf:6: .*allow: got "10.1.0.0/33"'
bad allow-agents 's/^ipv4.*/&\nallow_agents = 10.0.0.0\/8,10.1.0.0\/33/' 'r.conf:6: .*allow_agents: got "10.1.0.0/33"'
bad allow-repeated 's/^ipv4.*/&\nallow = 10.0.0.0\/8\nallow = 10.1.0.0\/33/' 'r.conf:7: .*allow: got "10.1.0.0/33"'
bad allow-host-bits 's/^ipv4.*/&\nallow = 10.0.0.5\/24/' 'r.conf:6: .*allow: got "10.0.0.5/24".*allowed: 10.0.0.0/24, or'
bad allow-agents-host-bits 's/^ipv4.*/&\nallow_agents = fd00::1\/64/' 'r.conf:6: .*allow_agents: got "fd00::1/64".*allowed: fd00::/64, or'
bad device-none '/^device/d' 'port p0.*device: not given'
bad driver 's/^device.*/device = net_nul0/' 'r.conf:4: .*device: no such driver of the device: "net_nul0"'
bad memif-argument 's/^device.*/device = net_memif0,role=server,sockets=x/' 'r.conf:4: .*net_memif has no argument "sockets"'
bad memif-argument-value 's/^device.*/device = net_memif0,socket-abstract=no,sock=x/' 'no argument "sock", allowed: id, role, .*secret'
bad packet-argument 's/^device.*/device = net_af_packet0,iface=lo,frames=3/' \
	'r.conf:4: .*net_af_packet has no argument "frames", allowed: iface, qpairs, blocksz'
bad packet-interface 's/^device.*/device = net_af_packet0,qpairs=1/' 'r.conf:4: .*net_af_packet needs iface=NAME, allowed: iface'
bad packet-interface-empty 's/^device.*/device = net_af_packet0,iface=/' 'r.conf:4: .*net_af_packet needs iface=NAME'
bad xdp-interface 's/^device.*/device = net_af_xdp0/' 'r.conf:4: .*net_af_xdp needs iface=NAME'
bad tap-argument 's/^device.*/device = net_tap0,ifname=x/' 'r.conf:4: .*net_tap has no argument "ifname", allowed: iface, remote, mac'
bad memif-role 's/^device.*/device = net_memif0,role=servant/' 'r.conf:4: .*role: got "servant", allowed: server, client'
bad memif-zero-copy 's/^device.*/device = net_memif0,role=client,zero-copy=yes/' \
	'r.conf:4: .*zero-copy: got "yes", allowed: no; the peer could change frames after they have been checked'
bad memif-buffer 's/^device.*/device = net_memif0,role=client,bsize=1/' 'r.conf:4: .*bsize: got "1", allowed: 64 to 65535 bytes'
bad memif-buffer-large 's/^device.*/device = net_memif0,bsize=65536,role=client/' 'r.conf:4: .*bsize: got "65536"'
bad memif-buffer-text 's/^device.*/device = net_memif0,role=client,bsize=2k/' 'r.conf:4: .*bsize: got "2k"'
bad memif-ring 's/^device.*/device = net_memif0,role=client,rsize=15/' 'r.conf:4: .*rsize: got "15", allowed: 1 to 14'
second='[port p1]\ndevice = net_null1\nipv4 = 10.0.0.2'
bad address-twice "\$a ${second%2}1" 'r.conf:11: .*port p1.*ipv4: 10.0.0.1 with UDP port 7650 is already the address of port p0'
bad address6-twice "s/^ipv4.*/ipv6 = fd00::1/;\$a ${second%ipv4*}ipv6 = fd00:0::1" 'port p1.*ipv6: fd00:0::1.*port p0'
bad device-twice "\$a ${second/null1/null0}" 'r.conf:10: .*port p1.*device: "net_null0" is already the device of port p0'
bad mac-twice "s/^ipv4.*/&\nmac = 02:00:00:00:00:0a/;\$a $second\nmac = 02:00:00:00:00:0A" 'port p1.*mac: .*port p0'
# Pairs of pools: one decode and one prefill pool of a model, alike where they must be.
pair='[pool p]\nmodel = m\nrole = prefill\nblock_size = 16'
good_pair='s/^block_size.*/&\nrole = decode/;$a '$pair
bad prefill-alone 's/^block_size.*/&\nrole = prefill/' 'pool m.*role.*without a decode pool.*"m"'
bad prefill-of-another-model 's/^block_size.*/&\nrole = decode/;$a [pool p]\nrole = prefill' \
	'pool p.*role.*without a decode pool.*"p"'
bad decode-twice 's/^block_size.*/&\nrole = decode/;$a [pool n]\nmodel = m\nrole = decode' \
	'pool n.*role.*pool m.*"m".*one prefill and one decode'
bad prefill-twice "$good_pair\n[pool q]\nmodel = m\nrole = prefill" 'pool q.*role.*pool p.*"m"'
bad aggregated-beside "s/x/x/;\$a $pair" 'pool p.*role.*pool m.*"m"'
bad aggregated-twice '$a [pool n]\nmodel = m' 'pool n.*role.*pool m.*"m"'
bad pair-block-size "${good_pair%16}32" 'pool p.*block_size.*32.*pool m.*16'
bad pair-scheduler "$good_pair\nscheduler_cpu = 1" 'pool p.*scheduler_cpu'
bad reroutes "$good_pair\nreroutes = 17" 'r.conf:14: .*reroutes.*16'
bad enforce "$good_pair\nenforce_disagg = perhaps" 'r.conf:14: .*enforce_disagg.*perhaps'
sed "$good_pair" <<<"$good" >"$dir/r.conf"
if out=$("$kvroute" --config "$dir/r.conf" --check 2>&1) && [ -z "$out" ]; then
	passed=$((passed + 1))
else
	failed=$((failed + 1)) && echo "good pair refused: $out"
fi
"$kvroute" --config "$dir/absent.conf" --check >"$dir/out" 2>&1
if [ $? -eq 1 ] && grep -q absent.conf "$dir/out"; then passed=$((passed + 1)); else
	failed=$((failed + 1)) && cat "$dir/out"
fi
# A folder that the start would reject is found by the full check, before any device.
sed "/^\[router\]/a state_dir = $dir/absent" <<<"$good" >"$dir/r.conf"
"$kvroute" --config "$dir/r.conf" --check=full >"$dir/out" 2>&1
if [ $? -eq 1 ] && grep -q "r.conf: \[router\] state_dir: $dir/absent is not a writable folder" "$dir/out"; then passed=$((passed + 1)); else
	failed=$((failed + 1)) && cat "$dir/out"
fi
# The number of workers follows from the ranks, and is not written into the dumped file.
printf '%s\n[pool n]\nid = 1\nmax_ranks = 40\n[pool o]\nid = 2\nmax_ranks = 50\nmax_workers = 9\n' "$good" >"$dir/r.conf"
sed -i 's/^block_size.*/&\nmax_ranks = 100/' "$dir/r.conf"
if "$kvroute" --config "$dir/r.conf" --dump-config | sed -n '/^\[router\]/,/^\[port/p' | grep -qE '^max_workers = 0( |$)'; then
	passed=$((passed + 1))
else
	failed=$((failed + 1))
	echo "the file's max_workers is changed: $("$kvroute" --config "$dir/r.conf" --dump-config | grep max_workers)"
fi
# The output of --dump-config is a configuration again, and the same one.
{ sed "$good_pair" <<<"$good" && printf '[class m gold]\nquantum = 3\n'; } >"$dir/r.conf"
"$kvroute" --config "$dir/r.conf" --dump-config >"$dir/one.conf" &&
	"$kvroute" --config "$dir/one.conf" --dump-config >"$dir/two.conf"
if [ -s "$dir/one.conf" ] && cmp -s "$dir/one.conf" "$dir/two.conf"; then
	passed=$((passed + 1))
else
	failed=$((failed + 1)) && diff "$dir/one.conf" "$dir/two.conf" | head -5
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
