#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The real router on a veth end; engines and a client on plain sockets at the other, over IPv4
# and over IPv6: answers, overlap, queries, cancelling, bad frames.
#   sockets_test.sh KVROUTE ENGINE CLIENT
. "$(dirname "$0")/_init.sh"
kvroute=$1 engine=$2 client=$3

router_conf </dev/null
start_router "$kvroute"
background ends engine1 "$engine" -r 10.9.0.1 -w 1 -p default -b 16 -n 2 -c 4096
e1=$pid
background ends engine2 "$engine" -r '[fd09::1]' -w 2 -p default -b 16 -n 2 -c 4096
e2=$pid
for router in 10.9.0.1 '[fd09::1]'; do
	in_ends timeout 50 "$client" -r "$router" -p default -n 40 -k 4 || fail "client over $router"
done
kill -0 "$router_pid" || fail "the router has ended"
kill -TERM "$e1" "$e2"
wait_for 5 grep -q dispatched "$tmp/engine1.log" || fail "engine 1 does not leave"
cat "$tmp/engine1.log" "$tmp/engine2.log"
