#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A kvroute whose hooks are not in effect ends with one line that names cause and remedy.
#   test_hooks_program.sh KVROUTE KVROUTE_HIDDEN
set -uo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/r.conf" <<END
[router]
hugepages = off
memory_mb = 256
[port p0]
device = net_null0
ipv4 = 10.0.0.1
[pool m]
block_size = 16
max_blocks = 1024
max_requests = 64
END
out=$("$1" --config "$dir/r.conf" --check=full 2>&1) || {
	echo "kvroute with hooks does not start: $out"
	exit 1
}
if out=$("$2" --config "$dir/r.conf" --check=full 2>&1); then
	echo "kvroute without hooks starts"
	exit 1
fi
if [ "$(grep -c . <<<"$out")" != 1 ] ||
	! grep -q 'level=error msg="hooks: net_memif does not call accept() of this program, .* build with default visibility' <<<"$out"; then
	echo "not one line with cause and remedy: $out"
	exit 1
fi
