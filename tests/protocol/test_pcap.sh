#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The Wireshark dissector on a capture of every kind: headers, contents, and damaged frames.
# usage: test_pcap.sh WRITE_PCAP KVROUTE_LUA PROTOCOL_MD
set -eu
command -v tshark >/dev/null || { echo "tshark is not installed"; exit 77; }
writer=$1 lua=$2 doc=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME="$dir" XDG_CONFIG_HOME="$dir"

"$writer" "$dir/all.pcap" >"$dir/want"
good=$(wc -l <"$dir/want")
run() {
	tshark -r "$dir/all.pcap" -X "lua_script:$lua" "$@" 2>"$dir/err"
	if grep -v 'Running as user' "$dir/err" | grep .; then echo "tshark complained"; exit 1; fi
}
fail() { echo "FAILED: $*"; exit 1; }

# 1. every good frame: header fields and the name, as the codec says
run -T fields -E separator=, -e frame.number -e kvroute.kind -e kvroute.source -e kvroute.id \
	-e kvroute.msg_len -e kvroute.frag_off -Y "frame.number <= $good" >"$dir/fields"
sed 's/,kvroute [A-Z_]*$//' "$dir/want" | diff - "$dir/fields" || fail "header fields differ"
run -V -Y "frame.number <= $good" >"$dir/tree"
sed 's/.*,\(kvroute [A-Z_]*\)$/\1/' "$dir/want" | sort >"$dir/names"
grep -o '^kvroute [A-Z_]*$' "$dir/tree" | sort | diff "$dir/names" - || fail "names differ"

# 2. nothing good is called malformed
run -Y "frame.number <= $good && (kvroute.bad_length || kvroute.bad_kind || _ws.lua.error || _ws.malformed)" \
	>"$dir/bad"
[ ! -s "$dir/bad" ] || { cat "$dir/bad"; fail "good frames are called bad"; }

# 3. contents: filter -> how many frames must match
while read -r want filter; do
	got=$(run -Y "frame.number <= $good && $filter" | wc -l)
	[ "$got" -eq "$want" ] || fail "$filter: $got frames, not $want"
done <<'LIST'
1 kvroute.kind == 16 && kvroute.hash == 14643705804678351452 && kvroute.isl == 8
1 kvroute.kind == 16 && kvroute.request.flags.query == 1 && kvroute.token == 5
1 kvroute.kind == 24 && kvroute.client_ip == ::ffff:192.0.2.9 && kvroute.client_port == 40000 && kvroute.request.flags == 0
1 kvroute.request.flags.prefill_leg == 1 && kvroute.hint.prefill_worker == 0xb1 && kvroute.hint.room == 77 && kvroute.hint.port == 8998 && kvroute.hint.bootstrap_host == "10.0.0.7"
1 kvroute.request.flags.decode_leg == 1 && kvroute.hint.prefill_worker == 0xb1 && kvroute.hint.opaque == 72:65:73:75:6c:74
1 kvroute.kind == 17 && kvroute.prefill_worker == 0xb1 && kvroute.prefill_overlap_blocks == 2 && kvroute.path == 1
3 kvroute.kind == 17 && kvroute.prefill_dp_rank == 4294967295 && kvroute.path == 0
1 kvroute.kind == 18 && kvroute.rejected.code == 6 && kvroute.text == "no room to reassemble" && kvroute.retryable == 1
1 kvroute.kind == 26 && kvroute.response.flags.tokens == 1 && kvroute.token == 103
1 kvroute.kind == 26 && kvroute.response.flags.fin == 1 && kvroute.data == 62:79:65
1 kvroute.kind == 32 && kvroute.hint.pool == "llama-70b" && kvroute.hint.domain == "rack-1" && kvroute.hint.weight == 0.5
2 kvroute.hint.pool == "llama-70b"
1 kvroute.pool_name == "qwen" && kvroute.pool_name == "llama-70b"
1 kvroute.kind == 48 && kvroute.type == 3 && kvroute.tier == 1 && kvroute.first_event_id == 10
1 kvroute.kv_events.flags.dump_end == 1 && kvroute.resume_event_id == 14
1 kvroute.kind == 34 && kvroute.kv_used_blocks == 1234 && kvroute.event_form == 2 && kvroute.canaries_missed == 7
1 kvroute.kind == 81 && kvroute.prefill_tokens == 16
3 kvroute.session_id == "chat-1"
1 kvroute.kind == 64 && kvroute.timeout_s == 330
1 kvroute.kind == 69 && kvroute.session_status.code == 82
4 kvroute.kind == 80 && kvroute.fragment
3 kvroute.kind == 80 && kvroute.frag_off > 0
LIST

# 4. every frame truncated by 8 bytes is reported, and none stops the dissector
total=$(run -T fields -e frame.number | wc -l)
[ "$total" -eq $((2 * good)) ] || fail "$total frames in the capture"
told=$(run -Y "frame.number > $good && kvroute.bad_length" | wc -l)
short=$(run -Y "frame.number > $good && udp.length < 56" | wc -l)
[ $((told + short)) -eq "$good" ] || fail "$told damaged frames told and $short below a header, of $good"
run -Y "_ws.lua.error" >"$dir/bad"
[ ! -s "$dir/bad" ] || { cat "$dir/bad"; fail "the dissector failed"; }
echo "$good frames decoded, $good damaged ones told"
