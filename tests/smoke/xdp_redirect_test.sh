#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# /kvroute/xdp/redirect of a running router behind AF_XDP: switched off it receives no frames, and they are counted as `off`;
# switched on again it answers. xdp_redirect_test.sh KVROUTE 77 = cannot run here: not root, or no XDP.
set -eu
kvroute=$1
here=$(cd "${0%/*}" && pwd)
. "$here/../eal/veth.sh"
in_namespace -nm "$kvroute"
mount -t tmpfs tmpfs /run || { echo "no /run of its own"; exit 77; }
make_veth
ip addr add 10.9.0.1/24 dev va
ip link set va up
prefix=kvr-xdp-$$
cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
cat >"$run/router.conf" <<C
[router]
ingress = $cpu
idle = sleep
hugepages = off
memory_mb = 512
file_prefix = $prefix
[port p0]
device = net_af_xdp0,iface=va
ipv4 = 10.9.0.1
[pool llama]
id = 3
block_size = 16
max_ranks = 16
max_blocks = 65536
C
"$kvroute" --config "$run/router.conf" >"$out" 2>&1 &
pid=$!
i=0
until grep -q 'kvroute: ready' "$out"; do
	i=$((i + 1))
	! grep -q 'Failed to configure xdp socket' "$out" || { cat "$out"; exit 77; }
	[ $i -lt 1200 ] && kill -0 "$pid" 2>/dev/null || fail "no start"
	sleep 0.05
done

# tell COMMAND [KEY...]: the answer of the router, or what stands there
tell() {
	python3 - "$here" "$prefix" "$@" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
from protocol_router import telemetry
value = telemetry(sys.argv[2], sys.argv[3])
for key in sys.argv[4:]:
    value = value[key]
print(value)
P
}
# ask SECONDS: whether the router answers a client of the peer: yes, or no after so long
ask() {
	in_peer python3 - "$here" "$1" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import kvrproto as p
client = p.Client('10.9.0.1')
client.connect()
p.run_until([client], lambda: client.limits, float(sys.argv[2]))
print('yes' if client.limits else 'no')
P
}
[ "$(ask 20)" = yes ] || fail "no answer to begin with"
[ "$(tell /kvroute/xdp p0 redirect)" = on ] || fail "redirect at the start: $(tell /kvroute/xdp)"
[ "$(tell /kvroute/xdp p0 off)" = 0 ] || fail "off at the start: $(tell /kvroute/xdp)"
redirected=$(tell /kvroute/xdp p0 redirected)
tell /kvroute/xdp/redirect,p0,off
[ "$(tell /kvroute/xdp p0 redirect)" = off ] || fail "it is not off: $(tell /kvroute/xdp)"
[ "$(ask 1)" = no ] || fail "an answer while it is off"
[ "$(tell /kvroute/xdp p0 off)" -gt 0 ] || fail "nothing counted as off: $(tell /kvroute/xdp)"
[ "$(tell /kvroute/xdp p0 redirected)" = "$redirected" ] || fail "frames came while it was off"
tell /kvroute/xdp/redirect,p0,on
[ "$(tell /kvroute/xdp p0 redirect)" = on ] || fail "it is not on again: $(tell /kvroute/xdp)"
[ "$(ask 20)" = yes ] || fail "no answer after it is on again"
[ "$(tell /kvroute/xdp p0 redirected)" -gt "$redirected" ] || fail "redirected: $(tell /kvroute/xdp)"
kill "$pid"
wait "$pid" || fail "exit status"
pid=
[ -z "$(ip link show va | sed -n '/prog\/xdp/p')" ] || fail "the program stays"
echo ok
