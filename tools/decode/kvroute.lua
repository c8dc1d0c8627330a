-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark dissector of the kvroute protocol, version 1 (lib/wire/PROTOCOL.md).
--
--   wireshark -X lua_script:tools/decode/kvroute.lua -r capture.pcap
--   tshark -X lua_script:tools/decode/kvroute.lua -r capture.pcap -Y 'kvroute.kind == 16' -V
--
-- UDP port 7650 by default (preference "kvroute.port"); on other ports the magic number identifies the protocol.
-- A message in several frames is decoded in its first frame, as far as that frame contains it.

local kvr = Proto("kvroute", "kvroute protocol")

kvr.prefs.port = Pref.uint("UDP port", 7650, "Port of the router")

local HDR = 48

local KINDS = {
	[1] = "CONNECT", [2] = "CONNECTED",
	[16] = "ROUTE", [17] = "ACCEPTED", [18] = "REJECTED", [19] = "CANCEL", [20] = "CANCELLED",
	[21] = "PROBE", [22] = "MISSING",
	[24] = "DISPATCH", [25] = "DISPATCH_ACK", [26] = "RESPONSE", [27] = "RESPONSE_ACK",
	[28] = "PROGRESS", [29] = "PROGRESS_ACK", [30] = "ABORT", [31] = "ABORT_ACK",
	[32] = "HELLO", [33] = "WELCOME", [34] = "HEARTBEAT", [35] = "HEARTBEAT_ACK",
	[36] = "GOODBYE", [37] = "GOODBYE_ACK", [38] = "ALIVE",
	[48] = "KV_EVENTS", [49] = "KV_ACK",
	[64] = "SESSION_OPEN", [65] = "SESSION_OPENED", [66] = "SESSION_CLOSE",
	[67] = "SESSION_CLOSED", [68] = "SESSION_RELEASE", [69] = "SESSION_RELEASED",
	[80] = "POTENTIAL_LOADS", [81] = "LOADS",
}

local CODES = {
	[0] = "Ok", [1] = "UnknownVersion", [2] = "UnknownKind", [3] = "BadLength",
	[4] = "BadFragment", [5] = "TooLarge", [6] = "ReassemblyFull", [7] = "BadHint",
	[8] = "BadFlags", [9] = "NotAllowed", [10] = "CookieRequired", [11] = "RateLimited",
	[12] = "SourceLimit",
	[32] = "UnknownPool", [33] = "EmptyPrompt", [34] = "PromptTooLong",
	[35] = "InvalidOverride", [36] = "UnknownPolicyClass", [37] = "InvalidRequest",
	[38] = "UnknownRequest", [39] = "Ended", [40] = "InvalidWeight",
	[48] = "NoEndpoints", [49] = "AllEligibleWorkersOverloaded",
	[50] = "PinnedWorkerNotAllowed", [51] = "PinnedWorkerOverloaded",
	[52] = "DpRankRequired", [53] = "WorkerIdRequired", [54] = "QueueRejected",
	[55] = "NotActivated", [56] = "DuplicateRequest",
	[64] = "Busy", [65] = "NoMemory", [66] = "DispatchFailed", [67] = "WorkerLost",
	[68] = "Expired", [69] = "Shutdown", [70] = "PrefillFailed",
	[80] = "SessionOpenFailed", [81] = "SessionLimit", [82] = "UnknownSession",
	[83] = "InvalidSession", [84] = "SessionWorkerGone",
	[96] = "UnknownWorker", [97] = "StaleEpoch", [98] = "WorkerConfig", [99] = "WorkerLimit",
	[100] = "WorkerAlive",
}

local PATHS = {[0] = "aggregated", [1] = "bootstrap", [2] = "sync", [3] = "bypassed"}
local STATES = {[0] = "QUERY", [1] = "QUEUED", [2] = "DISPATCHED", [3] = "RUNNING"}
local WORKER_STATES = {[1] = "JOINING", [2] = "SERVING", [3] = "SUSPECT", [4] = "DRAINING",
	[5] = "DRAINED", [6] = "GONE"}
local ROLES = {[0] = "aggregated", [1] = "prefill", [2] = "decode"}
local EVENTS = {[1] = "STORED", [2] = "REMOVED", [3] = "CLEARED"}
local TIERS = {[0] = "device", [1] = "host_pinned", [2] = "disk", [3] = "external"}
local KV_CODES = {[0] = "OK", [1] = "GAP", [2] = "DUMP_WANTED", [3] = "HELLO", [4] = "BUSY"}
local OVERRIDES = {[1] = "overlap_score_weight", [2] = "router_temperature",
	[3] = "assume_kv_reuse", [4] = "track_prefill_tokens", [5] = "shared_cache_multiplier",
	[6] = "overlap_score_credit", [7] = "prefill_load_scale"}

local fields = {}

local function field(name, ctor, title, base, values, mask)
	local f = ctor("kvroute." .. name, title or name, base, values, mask)
	fields[name] = f
	return f
end

local function u8(name, title, values) return field(name, ProtoField.uint8, title, base.DEC, values) end
local function u16(name, title, values) return field(name, ProtoField.uint16, title, base.DEC, values) end
local function u32(name, title, values) return field(name, ProtoField.uint32, title, base.DEC, values) end
local function u64(name, title) return field(name, ProtoField.uint64, title, base.DEC) end
local function x64(name, title) return field(name, ProtoField.uint64, title, base.HEX) end

local function bits(prefix, width, list)
	local out = {}
	for _, e in ipairs(list) do
		local f = ProtoField.bool("kvroute." .. prefix .. "." .. e[2]:lower(), e[2], width, nil, e[1])
		fields[prefix .. "." .. e[2]:lower()] = f
		out[#out + 1] = f
	end
	return out
end

-- Header and structs: lists of {field, size}; "skip" marks reserved bytes.
local skip = false

local f_magic = field("magic", ProtoField.uint16, "Magic", base.HEX)
local f_kind = u8("kind", "Kind", KINDS)
local header = {
	{f_magic, 2}, {u8("version", "Version"), 1}, {f_kind, 1},
	{field("flags", ProtoField.uint16, "Flags", base.HEX), 2}, {u16("frag_len", "Fragment length"), 2},
	{x64("source", "Source"), 8}, {u64("id", "Id"), 8}, {x64("handle", "Handle"), 8},
	{u32("msg_len", "Message length"), 4}, {u32("frag_off", "Fragment offset"), 4},
	{field("epoch", ProtoField.uint32, "Epoch", base.HEX), 4}, {u32("msg_seq", "Message number"), 4},
}

local req_bits = bits("request.flags", 32, {{0x1, "QUERY"}, {0x2, "RESEND"}, {0x4, "DIRECT"},
	{0x8, "EAGLE"}, {0x10, "PREFILL_LEG"}, {0x20, "DECODE_LEG"}, {0x40, "UNPROVEN"},
	{0x80, "BOOK"}, {0x100, "AWAY"}, {0x200, "HEALTH"}, {0x400, "TRACK"},
	{0x800, "QUIET"}, {0x1000, "TRIAL"}})
local acc_bits = bits("accepted.flags", 16, {{0x1, "KEPT"}})
local resp_bits = bits("response.flags", 16, {{0x1, "FIN"}, {0x2, "ERROR"}, {0x4, "CANCELLED"},
	{0x8, "TOKENS"}, {0x10, "FAILED"}, {0x20, "REFUSED"}})
local rack_bits = bits("response_ack.flags", 32, {{0x1, "FIN"}})
local prog_bits = bits("progress.flags", 16, {{0x1, "FIRST"}, {0x2, "FIN"}, {0x4, "ERROR"},
	{0x8, "CANCELLED"}, {0x10, "FAILED"}, {0x20, "REFUSED"}})
local pool_bits = bits("pool.flags", 8, {{0x1, "EAGLE"}, {0x2, "SERVES"}})
local beat_bits = bits("heartbeat.flags", 16, {{0x1, "DRAIN"}})
local dump_bits = bits("kv_events.flags", 16, {{0x1, "DUMP_BEGIN"}, {0x2, "DUMP"}, {0x4, "DUMP_END"}})

local f_worker = x64("worker", "Worker")
local f_dp_rank = u32("dp_rank", "Rank")
local f_pool = u16("pool", "Pool")
local f_cached = u32("cached_tokens", "Cached tokens")
local f_generated = u32("generated_tokens", "Generated tokens")
local f_max_frame = u32("max_frame", "Largest frame")
local f_hints_len = u32("hints_len", "Hint bytes")
local f_code = u16("code", "Code", CODES)
local f_queue_len = u32("queue_len", "Requests waiting")
local f_active = u32("active_requests", "Active requests")
local f_block_size = u32("block_size", "Block size")
local f_role = u8("role", "Role", ROLES)
local f_n_ranks = u32("n_ranks", "Entries")
local f_next_event = u64("next_event_id", "Next event")
local f_req_flags = field("request.flags", ProtoField.uint32, "Flags", base.HEX)
local f_client_ip = field("client_ip", ProtoField.ipv6, "Client address")

local request = {
	{f_pool, 2}, {u8("phase", "Phase", ROLES), 1}, {skip, 1}, {f_req_flags, 4, req_bits},
	{u32("isl", "Prompt tokens"), 4}, {u32("n_hashes", "Hashes"), 4}, {u32("n_tokens", "Tokens"), 4},
	{f_hints_len, 4}, {u32("body_len", "Body bytes"), 4}, {u32("max_tokens", "Tokens to generate"), 4},
	{u32("expected_output_tokens", "Tokens expected"), 4}, {u32("deadline_ms", "Deadline (ms)"), 4},
	{f_worker, 8}, {f_dp_rank, 4}, {u32("overlap_blocks", "Overlap blocks"), 4}, {f_cached, 4},
	{u32("attempt", "Attempt"), 4}, {f_client_ip, 16}, {u16("client_port", "Client port"), 2},
	{u16("client_frame", "Largest frame of the client"), 2}, {u32("result_len", "Result bytes"), 4},
}

local structs = {
	accepted = {{f_worker, 8}, {f_dp_rank, 4}, {fields.overlap_blocks, 4},
		{u32("required_blocks", "Required blocks"), 4}, {f_cached, 4}, {u16("state", "State", STATES), 2},
		{field("accepted.flags", ProtoField.uint16, "Flags", base.HEX), 2, acc_bits}, {f_queue_len, 4},
		{u32("pending_tokens", "Prompt tokens waiting"), 4},
		{u32("prefill_overlap_blocks", "Prefill overlap blocks"), 4},
		{x64("prefill_worker", "Prefill worker"), 8}, {u32("prefill_dp_rank", "Prefill rank"), 4},
		{u16("path", "Path", PATHS), 2},
		{u16("accepted.hints_len", "Hints bytes"), 2}},
	rejected = {{f_code, 2}, {u8("retryable", "Retryable"), 1}, {u8("refused_kind", "Refused kind", KINDS), 1},
		{u16("text_len", "Text bytes"), 2}, {u16("policy_class", "Policy class"), 2},
		{u64("detail", "Detail"), 8}, {fields.detail, 8}, {fields.detail, 8}, {fields.detail, 8}},
	missing = {{fields.refused_kind, 1}, {skip, 1}, {u16("n_words", "Words"), 2},
		{u32("missing_seq", "Of message number"), 4}, {u32("missing_len", "Of message length"), 4},
		{u32("unit", "Bytes of a fragment"), 4}, {u32("first", "First fragment"), 4}, {skip, 4}},
	dispatch_ack = {{u16("dispatch_code", "Code"), 2}, {skip, 6}},
	response = {{u32("seq", "Item"), 4},
		{field("response.flags", ProtoField.uint16, "Flags", base.HEX), 2, resp_bits},
		{u16("status", "Status"), 2}, {f_generated, 4}, {u32("data_len", "Data bytes"), 4}, {f_cached, 4},
		{f_hints_len, 4}, {skip, 8}},
	response_ack = {{u32("next_seq", "Next item"), 4},
		{field("response_ack.flags", ProtoField.uint32, "Flags", base.HEX), 4, rack_bits}},
	progress = {{fields.seq, 4},
		{field("progress.flags", ProtoField.uint16, "Flags", base.HEX), 2, prog_bits},
		{fields.status, 2}, {f_generated, 4}, {f_cached, 4}},
	progress_ack = {{fields.next_seq, 4}, {skip, 4}},
	abort = {{f_code, 2}, {skip, 6}},
	hello = {{f_block_size, 4}, {u32("dp_start", "First rank"), 4}, {u32("dp_size", "Ranks"), 4},
		{u32("max_num_batched_tokens", "Batched tokens"), 4}, {u64("total_kv_blocks", "Blocks per rank"), 8},
		{f_hints_len, 4}, {u16("hello_max_frame", "Largest frame"), 2}, {f_role, 1},
		{field("hello.flags", ProtoField.uint8, "Flags", base.HEX), 1}, {x64("boot", "Process"), 8}, {skip, 8}},
	welcome = {{f_pool, 2}, {field("welcome.flags", ProtoField.uint16, "Flags", base.HEX), 2}, {u32("heartbeat_ms", "Heartbeat (ms)"), 4},
		{u32("dead_ms", "Given up after (ms)"), 4}, {f_max_frame, 4}, {skip, 8}},
	heartbeat = {{f_n_ranks, 4},
		{field("heartbeat.flags", ProtoField.uint16, "Flags", base.HEX), 2, beat_bits}, {u16("wish", "Wish"), 2}},
	rank_load = {{f_dp_rank, 4}, {f_active, 4}, {u64("kv_used_blocks", "Used blocks"), 8},
		{f_next_event, 8}, {u32("events_unread", "Events not read"), 4},
		{u16("event_block_size", "Block size of events"), 2},
		{u8("event_form", "Form of events", {[1] = "tokens", [2] = "pairs"}), 1},
		{u8("canaries_missed", "Canaries missed in a row"), 1}},
	heartbeat_ack = {{u16("worker_state", "State", WORKER_STATES), 2}, {skip, 2},
		{u32("bookings", "Bookings"), 4}},
	alive = {{u32("n_requests", "Requests"), 4}, {skip, 4}},
	live_request = {{fields.handle, 8}},
	kv_events = {{u64("first_event_id", "First event"), 8}, {u64("resume_event_id", "Resume at"), 8},
		{f_dp_rank, 4}, {u16("n_events", "Events"), 2},
		{field("kv_events.flags", ProtoField.uint16, "Flags", base.HEX), 2, dump_bits}, {skip, 8}},
	kv_event = {{u8("event_type", "Type", EVENTS), 1}, {u8("tier", "Tier", TIERS), 1},
		{field("event_flags", ProtoField.uint16, "Flags", base.HEX), 2}, {u32("n_blocks", "Blocks"), 4},
		{x64("parent", "Parent"), 8}},
	kv_ack = {{f_next_event, 8}, {u64("next_dump_pos", "Next of the dump"), 8}, {f_dp_rank, 4},
		{u16("kv_code", "Code", KV_CODES), 2}, {skip, 2}},
	connect = {{f_hints_len, 4}, {fields.hello_max_frame, 2}, {skip, 2}},
	connected = {{u32("n_pools", "Pools"), 4}, {f_max_frame, 4}, {u32("limit_tokens", "Most tokens"), 4},
		{u32("limit_hashes", "Most hashes"), 4}, {u32("limit_body", "Largest body"), 4},
		{u32("total_pools", "Pools that match"), 4}, {u32("limit_message", "Largest message"), 4},
		{u32("limit_frames", "Most frames"), 4}, {x64("cookie", "Cookie"), 8}},
	pool = {{f_pool, 2}, {f_role, 1},
		{field("pool.flags", ProtoField.uint8, "Flags", base.HEX), 1, pool_bits}, {f_block_size, 4}, {u32("ranks", "Ranks"), 4},
		{u16("name_len", "Name bytes"), 2}, {skip, 2}},
	session = {{u32("timeout_s", "Timeout (s)"), 4}, {u16("id_len", "Id bytes"), 2}, {f_pool, 2}},
	session_status = {{f_code, 2}, {skip, 6}},
	loads = {{f_n_ranks, 4}, {f_queue_len, 4}, {u64("pending", "Prompt tokens waiting"), 8}},
	rank_potential = {{f_worker, 8}, {f_dp_rank, 4}, {f_active, 4},
		{u64("prefill_tokens", "Prefill tokens"), 8}, {u64("decode_blocks", "Decode blocks"), 8},
		{fields.overlap_blocks, 4}, {fields.cached_tokens, 4}},
}

local f_hash = x64("hash", "Hash")
local f_missing = x64("missing", "Missing")
local f_token = u32("token", "Token")
local f_body = field("body", ProtoField.bytes, "Body")
local f_data = field("data", ProtoField.bytes, "Data")
local f_result = field("result", ProtoField.bytes, "Transfer result")
local f_text = field("text", ProtoField.string, "Text")
local f_pool_name = field("pool_name", ProtoField.string, "Pool name")
local f_session_id = field("session_id", ProtoField.string, "Session")
local f_fragment = field("fragment", ProtoField.bytes, "Fragment of a message")

-- Hints: functions that display the value.
local function hint_string(name, title)
	local f = field("hint." .. name, ProtoField.string, title)
	return function(tree, v) tree:add(f, v) end
end
local function hint_number(name, title, ctor, size)
	local f = field("hint." .. name, ctor, title)
	return function(tree, v) if v:len() == size then tree:add_le(f, v) end end
end
-- A fixed part, then a string.
local function hint_after(name, title, fixed)
	local f = field("hint." .. name, ProtoField.string, title)
	return function(tree, v)
		if v:len() < fixed.size then return end
		fixed.show(tree, v)
		if v:len() > fixed.size then tree:add(f, v(fixed.size)) end
	end
end

local f_weight = field("hint.weight", ProtoField.double, "Weight")
local f_port = field("hint.port", ProtoField.uint16, "Port", base.DEC)
local f_room = field("hint.room", ProtoField.uint64, "Room", base.DEC)
local f_body_len = field("hint.body_len", ProtoField.uint64, "Bytes", base.DEC)
local f_action = field("hint.action", ProtoField.uint8, "Action", base.DEC, {[0] = "none", [1] = "open", [2] = "close"})
local f_timeout = field("hint.timeout_s", ProtoField.uint32, "Timeout (s)", base.DEC)
local f_enforce = field("hint.enforcement", ProtoField.uint8, "Enforcement", base.DEC,
	{[0] = "none", [1] = "preferred", [2] = "required"})
local f_allowed = field("hint.allowed_worker", ProtoField.uint64, "Allowed worker", base.HEX)
local f_override = field("hint.override", ProtoField.uint32, "Field", base.DEC, OVERRIDES)
local f_value = field("hint.value", ProtoField.double, "Value")
local f_block = field("hint.block", ProtoField.uint32, "Block", base.DEC)
local f_mm = field("hint.mm_hash", ProtoField.uint64, "Multimodal hash", base.HEX)
local f_failed_worker = field("hint.failed_worker", ProtoField.uint64, "Failed worker", base.HEX)
local f_failed_rank = field("hint.failed_rank", ProtoField.uint32, "Failed rank", base.DEC)
local f_start = field("hint.start", ProtoField.uint32, "Start", base.DEC)
local f_end = field("hint.end", ProtoField.uint32, "End", base.DEC)
local f_opaque = field("hint.opaque", ProtoField.bytes, "Bytes")

local function show_opaque(tree, v)
	if v:len() > 0 then tree:add(f_opaque, v) end
end

local tracker_fields = {{x64("tracker.worker", "Worker"), 8}, {x64("tracker.prefill_worker", "Prefill worker"), 8},
	{u32("tracker.dp_rank", "Rank"), 4}, {u32("tracker.prefill_dp_rank", "Prefill rank"), 4},
	{u32("tracker.overlap_blocks", "Overlap"), 4}, {u32("tracker.prefill_overlap_blocks", "Prefill overlap"), 4},
	{u32("tracker.required_blocks", "Required blocks"), 4}, {u32("tracker.cached_tokens", "Predicted cached tokens"), 4},
	{u32("tracker.isl", "Prompt tokens"), 4}, {u32("tracker.osl", "Generated tokens"), 4},
	{u32("tracker.queue_us", "Queue, us"), 4}, {u32("tracker.ttft_us", "To the first token, us"), 4},
	{u32("tracker.itl_us", "Between tokens, us"), 4}, {u32("tracker.prefill_us", "Prefill leg, us"), 4},
	{u32("tracker.transfer_us", "Transfer, us"), 4}}
local f_hit_rate = field("tracker.hit_rate", ProtoField.double, "Hit rate")

local function show_tracker(tree, v)
	local at = 0
	if v:len() < 80 then return end
	for _, f in ipairs(tracker_fields) do
		tree:add_le(f[1], v(at, f[2]))
		at = at + f[2]
	end
	tree:add_le(f_hit_rate, v(72, 8))
end

local HINTS = {
	[0x0000] = {"PAD", function() end},
	[0x0001] = {"LORA", hint_string("lora", "Adapter")},
	[0x0002] = {"NAMESPACE", hint_string("namespace", "Namespace")},
	[0x8003] = {"BACKEND", hint_number("backend", "Worker", ProtoField.uint64, 8)},
	[0x8004] = {"PREFILL_WORKER", hint_number("prefill_worker", "Worker", ProtoField.uint64, 8)},
	[0x8005] = {"DECODE_WORKER", hint_number("decode_worker", "Worker", ProtoField.uint64, 8)},
	[0x8006] = {"DP_RANK", hint_number("dp_rank", "Rank", ProtoField.uint32, 4)},
	[0x8007] = {"PREFILL_DP_RANK", hint_number("prefill_dp_rank", "Rank", ProtoField.uint32, 4)},
	[0x8008] = {"ALLOWED_WORKERS", function(tree, v)
		for at = 0, v:len() - 8, 8 do tree:add_le(f_allowed, v(at, 8)) end
	end},
	[0x8009] = {"REQUIRED_TAINT", hint_string("required_taint", "Taint")},
	[0x000a] = {"PREFERRED_TAINT", hint_after("preferred_taint", "Taint",
		{size = 8, show = function(tree, v) tree:add_le(f_weight, v(0, 8)) end})},
	[0x000b] = {"PRIORITY_JUMP", hint_number("priority_jump", "Seconds", ProtoField.double, 8)},
	[0x000c] = {"STRICT_PRIORITY", hint_number("strict_priority", "Priority", ProtoField.uint32, 4)},
	[0x000d] = {"PRIORITY", hint_number("priority", "Priority", ProtoField.int32, 4)},
	[0x000e] = {"POLICY_CLASS", hint_string("policy_class", "Class")},
	[0x800f] = {"OVERRIDE", function(tree, v)
		if v:len() ~= 16 then return end
		tree:add_le(f_override, v(0, 4))
		tree:add_le(f_value, v(8, 8))
	end},
	[0x0010] = {"SESSION", hint_after("session", "Session", {size = 8, show = function(tree, v)
		tree:add(f_action, v(0, 1))
		tree:add_le(f_timeout, v(4, 4))
	end})},
	[0x0011] = {"MM", function(tree, v)
		if v:len() < 8 then return end
		tree:add_le(f_block, v(0, 4))
		for at = 8, v:len() - 8, 8 do tree:add_le(f_mm, v(at, 8)) end
	end},
	[0x0012] = {"SHARED_HITS", function(tree, v)
		if v:len() ~= 8 then return end
		tree:add_le(f_start, v(0, 4))
		tree:add_le(f_end, v(4, 4))
	end},
	[0x0013] = {"BOOTSTRAP", hint_after("bootstrap_host", "Host", {size = 16, show = function(tree, v)
		tree:add_le(f_room, v(0, 8))
		tree:add_le(f_port, v(8, 2))
	end})},
	[0x0014] = {"PREFILL_RESULT", show_opaque},
	[0x0015] = {"TRACE", show_opaque},
	[0x0017] = {"FAILED_AT", function(tree, v)
		for at = 0, v:len() - 16, 16 do
			tree:add_le(f_failed_worker, v(at, 8))
			tree:add_le(f_failed_rank, v(at + 8, 4))
		end
	end},
	[0x8016] = {"BODY", function(tree, v)
		if v:len() ~= 24 then return end
		tree:add_le(f_body_len, v(0, 8))
		tree:add(f_opaque, v(8, 16))
	end},
	[0x8020] = {"POOL", hint_string("pool", "Pool")},
	[0x0021] = {"TAINT", hint_string("taint", "Taint")},
	[0x0022] = {"TOPOLOGY", hint_string("topology", "Topology")},
	[0x0023] = {"KV_TRANSFER", hint_after("domain", "Domain", {size = 16, show = function(tree, v)
		tree:add(f_enforce, v(0, 1))
		tree:add_le(f_weight, v(8, 8))
	end})},
	[0x0024] = {"BOOTSTRAP_ADDR", hint_after("bootstrap_addr", "Host", {size = 8, show = function(tree, v)
		tree:add_le(f_port, v(0, 2))
	end})},
	[0x0025] = {"ENGINE_ADDR", hint_string("engine_addr", "Engine")},
	[0x0026] = {"PREFILL_ENGINE_ADDR", hint_string("prefill_engine_addr", "Engine")},
	[0x0027] = {"BODY_ADDR", hint_string("body_addr", "Address")},
	[0x0028] = {"PREFILL_BODY_ADDR", hint_string("prefill_body_addr", "Address")},
	[0x0029] = {"TRACKER", function(tree, v) show_tracker(tree, v) end},
	[0x002a] = {"PROMPT_DETAILS", function(tree, v) tree:add(f_opaque, v) end},
	[0x002b] = {"TRACE_LINK", function(tree, v) tree:add(f_opaque, v) end},
	[0x002c] = {"RANK", function(tree, v)
		if v:len() ~= 16 then return end
		tree:add_le(f_failed_worker, v(0, 8))
		tree:add_le(f_failed_rank, v(8, 4))
	end},
}

local hint_names = {}
for t, h in pairs(HINTS) do hint_names[t] = h[1] end
local f_hint_type = field("hint.type", ProtoField.uint16, "Type", base.HEX, hint_names)
local f_hint_len = field("hint.len", ProtoField.uint16, "Length", base.DEC)

local e_length = ProtoExpert.new("kvroute.bad_length", "Lengths disagree", expert.group.MALFORMED,
	expert.severity.ERROR)
local e_kind = ProtoExpert.new("kvroute.bad_kind", "Unknown kind or version", expert.group.UNDECODED,
	expert.severity.WARN)

do
	local list = {}
	for _, f in pairs(fields) do list[#list + 1] = f end
	kvr.fields = list
	kvr.experts = {e_length, e_kind}
end

local function size_of(list)
	local n = 0
	for _, e in ipairs(list) do n = n + e[2] end
	return n
end

-- Add the members of a struct at `at`; returns the offset after it.
local function add_struct(tree, tvb, at, list)
	for _, e in ipairs(list) do
		if e[1] then
			local range = tvb(at, e[2])
			local item = e[1] == f_client_ip and tree:add(e[1], range) or tree:add_le(e[1], range)
			for _, bit in ipairs(e[3] or {}) do item:add_le(bit, range) end
		end
		at = at + e[2]
	end
	return at
end

local function pad8(n) return n + (-n) % 8 end

local function malformed(tree, what)
	tree:add_proto_expert_info(e_length, what)
	return nil
end

-- Every tail function gets (tree, tvb, at), where `at` is the offset after the fixed part. It returns the
-- offset after the bytes it has displayed, or nil after a malformed message.

local function tail_hints(tree, tvb, at, len)
	local stop = at + len
	if len % 8 ~= 0 or stop > tvb:len() then return malformed(tree, "hints leave the message") end
	while at < stop do
		local kind, n = tvb(at, 2):le_uint(), tvb(at + 2, 2):le_uint()
		local size = pad8(4 + n)
		local name = hint_names[kind] or string.format("hint 0x%04x", kind)
		if at + size > stop then return malformed(tree, "hint leaves the hints") end
		local sub = tree:add(kvr, tvb(at, size), "Hint " .. name)
		sub:add_le(f_hint_type, tvb(at, 2))
		sub:add_le(f_hint_len, tvb(at + 2, 2))
		if n > 0 and HINTS[kind] then
			HINTS[kind][2](sub, tvb(at + 4, n))
		elseif n > 0 then
			sub:add(f_opaque, tvb(at + 4, n))
		end
		at = at + size
	end
	return at
end

local function numbers(tree, title, tvb, at, n, size, f)
	if n == 0 then return end
	local sub = tree:add(kvr, tvb(at, n * size), string.format("%s (%d)", title, n))
	for i = 0, n - 1 do sub:add_le(f, tvb(at + i * size, size)) end
end

local function tail_request(tree, tvb, at)
	local base_at = at - size_of(request)
	local n_hashes, n_tokens = tvb(base_at + 12, 4):le_uint(), tvb(base_at + 16, 4):le_uint()
	local hints, body = tvb(base_at + 20, 4):le_uint(), tvb(base_at + 24, 4):le_uint()
	local result = tvb(base_at + 84, 4):le_uint()
	local function here(n) return at + n <= tvb:len() end

	-- A first fragment ends somewhere in here: show the parts that are whole.
	if not here(n_hashes * 8) then return at end
	numbers(tree, "Hashes", tvb, at, n_hashes, 8, f_hash)
	at = at + n_hashes * 8
	if not here(pad8(n_tokens * 4)) then return at end
	numbers(tree, "Tokens", tvb, at, n_tokens, 4, f_token)
	at = at + pad8(n_tokens * 4)
	if not here(hints) then return at end
	at = tail_hints(tree, tvb, at, hints)
	if at == nil or not here(pad8(body)) then return at end
	if body > 0 then tree:add(f_body, tvb(at, body)) end
	at = at + pad8(body)
	if not here(pad8(result)) then return at end
	if result > 0 then tree:add(f_result, tvb(at, result)) end
	return at + pad8(result)
end

local function bytes_tail(f, len_at)
	return function(tree, tvb, at, fixed)
		local n = tvb(at - fixed + len_at.off, len_at.size):le_uint()
		if at + pad8(n) > tvb:len() then return malformed(tree, "data leaves the message") end
		if n > 0 then tree:add(f, tvb(at, n)) end
		return at + pad8(n)
	end
end

local function tail_response(tree, tvb, at, fixed, whole)
	local flags, n = tvb(at - fixed + 4, 2):le_uint(), tvb(at - fixed + 12, 4):le_uint()
	local hints = tvb(at - fixed + 20, 4):le_uint()
	if at + pad8(n) + hints > tvb:len() and not whole then return at end -- the first of several
	if at + pad8(n) > tvb:len() then return malformed(tree, "data leaves the message") end
	if math.floor(flags / 8) % 2 == 1 then
		numbers(tree, "Tokens", tvb, at, math.floor(n / 4), 4, f_token)
	elseif n > 0 and math.floor(flags / 2) % 4 > 0 then
		tree:add(f_text, tvb(at, n))
	elseif n > 0 then
		tree:add(f_data, tvb(at, n))
	end
	return tail_hints(tree, tvb, at + pad8(n), hints)
end

local function hints_at(off, size)
	return function(tree, tvb, at, fixed)
		return tail_hints(tree, tvb, at, tvb(at - fixed + off, size or 4):le_uint())
	end
end

local function entries(list, title)
	return function(tree, tvb, at, fixed)
		local n, size = tvb(at - fixed, 4):le_uint(), size_of(list)
		if n * size > tvb:len() - at then return malformed(tree, "entries leave the message") end
		for i = 1, n do
			local sub = tree:add(kvr, tvb(at, size), string.format("%s %d", title, i))
			at = add_struct(sub, tvb, at, list)
		end
		return at
	end
end

local function tail_connected(tree, tvb, at, fixed)
	local n, size = tvb(at - fixed, 4):le_uint(), size_of(structs.pool)
	if n * size > tvb:len() - at then return malformed(tree, "pools leave the message") end
	local name_at = at + n * size
	for i = 1, n do
		local len = tvb(at + 12, 2):le_uint()
		if name_at + pad8(len) > tvb:len() then return malformed(tree, "names leave the message") end
		local sub = tree:add(kvr, tvb(at, size), string.format("Pool %d", i))
		at = add_struct(sub, tvb, at, structs.pool)
		if len > 0 then sub:add(f_pool_name, tvb(name_at, len)) end
		name_at = name_at + pad8(len)
	end
	return name_at
end

local function tail_missing(tree, tvb, at, fixed)
	local n = tvb(at - fixed + 2, 2):le_uint()
	if n * 8 > tvb:len() - at then return malformed(tree, "words leave the message") end
	numbers(tree, "Missing", tvb, at, n, 8, f_missing)
	return at + n * 8
end

local function tail_events(tree, tvb, at, fixed)
	local n, size = tvb(at - fixed + 20, 2):le_uint(), size_of(structs.kv_event)
	for i = 1, n do
		if at + size > tvb:len() then return malformed(tree, "event leaves the message") end
		local kind, blocks = tvb(at, 1):le_uint(), tvb(at + 4, 4):le_uint()
		if blocks * 8 > tvb:len() - at - size then return malformed(tree, "blocks leave the message") end
		local sub = tree:add(kvr, tvb(at, size + blocks * 8),
			string.format("Event %s, %d blocks", EVENTS[kind] or "?", blocks))
		at = add_struct(sub, tvb, at, structs.kv_event)
		numbers(sub, "Blocks", tvb, at, blocks, 8, f_hash)
		at = at + blocks * 8
	end
	return at
end

-- kind -> {fixed part, tail function}
local BODY = {
	[1] = {structs.connect, hints_at(0)},
	[2] = {structs.connected, tail_connected},
	[16] = {request, tail_request},
	[17] = {structs.accepted, hints_at(54, 2)},
	[18] = {structs.rejected, bytes_tail(f_text, {off = 4, size = 2})},
	[21] = {{{skip, 8}}},
	[22] = {structs.missing, tail_missing},
	[24] = {request, tail_request},
	[25] = {structs.dispatch_ack},
	[26] = {structs.response, tail_response},
	[27] = {structs.response_ack},
	[28] = {structs.progress},
	[29] = {structs.progress_ack},
	[30] = {structs.abort},
	[32] = {structs.hello, hints_at(24)},
	[33] = {structs.welcome},
	[34] = {structs.heartbeat, entries(structs.rank_load, "Rank")},
	[35] = {structs.heartbeat_ack},
	[38] = {structs.alive, entries(structs.live_request, "Request")},
	[48] = {structs.kv_events, tail_events},
	[49] = {structs.kv_ack},
	[64] = {structs.session, bytes_tail(f_session_id, {off = 4, size = 2})},
	[65] = {structs.session_status},
	[66] = {structs.session, bytes_tail(f_session_id, {off = 4, size = 2})},
	[67] = {structs.session_status},
	[68] = {structs.session, bytes_tail(f_session_id, {off = 4, size = 2})},
	[69] = {structs.session_status},
	[80] = {request, tail_request},
	[81] = {structs.loads, entries(structs.rank_potential, "Rank")},
}

local REJECTED_SHORT = 8

local function dissect_body(tree, body, kind, whole)
	local layout = BODY[kind]
	if layout == nil then
		if body:len() > 0 then malformed(tree, "this kind has no body") end
		return
	end
	local fixed = size_of(layout[1])
	if kind == 18 and body:len() == REJECTED_SHORT then -- its question was short, too
		return add_struct(tree, body, 0, {table.unpack(layout[1], 1, 5)})
	end
	if body:len() < fixed then return malformed(tree, "body is shorter than its fixed part") end
	local at = add_struct(tree, body, 0, layout[1])
	if layout[2] then at = layout[2](tree, body, at, fixed, whole) end
	if at and at < body:len() then
		if whole then return malformed(tree, "bytes behind the last part") end
		tree:add(f_fragment, body(at))
	end
end

local function info_text(name, tvb, body_len, msg_len, off)
	local text = string.format("%s id=%s", name, tostring(tvb(16, 8):le_uint64()))
	if body_len ~= msg_len then
		text = text .. string.format(" [%d..%d of %d]", off, off + body_len, msg_len)
	end
	return text
end

function kvr.dissector(tvb, pinfo, root)
	if tvb:len() < HDR or tvb(0, 2):le_uint() ~= 0x564b then return 0 end
	local kind, version = tvb(3, 1):uint(), tvb(2, 1):uint()
	local frag_len, msg_len, off = tvb(6, 2):le_uint(), tvb(32, 4):le_uint(), tvb(36, 4):le_uint()
	local name = KINDS[kind] or string.format("kind %d", kind)
	local tree = root:add(kvr, tvb(), "kvroute " .. name)

	pinfo.cols.protocol = "kvroute"
	pinfo.cols.info = info_text(name, tvb, frag_len, msg_len, off)
	add_struct(tree, tvb, 0, header)
	if version ~= 1 or KINDS[kind] == nil then
		tree:add_proto_expert_info(e_kind)
		return tvb:len()
	end
	if HDR + frag_len ~= tvb:len() then
		malformed(tree, "payload is not 48 + frag_len")
		return tvb:len()
	end
	if off > 0 then
		if frag_len > 0 then tree:add(f_fragment, tvb(HDR)) end
	elseif frag_len > 0 then
		dissect_body(tree:add(kvr, tvb(HDR), name .. " body"), tvb(HDR):tvb(), kind,
			frag_len == msg_len)
	elseif BODY[kind] and kind ~= 21 then -- a PROBE may be empty
		malformed(tree, "no body")
	end
	return tvb:len()
end

local function looks_like(tvb, pinfo, root)
	if tvb:len() < HDR or tvb(0, 2):le_uint() ~= 0x564b or tvb(2, 1):uint() ~= 1 then return false end
	if KINDS[tvb(3, 1):uint()] == nil or HDR + tvb(6, 2):le_uint() ~= tvb:len() then return false end
	kvr.dissector(tvb, pinfo, root)
	return true
end

local udp = DissectorTable.get("udp.port")
udp:add(kvr.prefs.port, kvr)
kvr:register_heuristic("udp", looks_like)

function kvr.prefs_changed()
	udp:remove_all(kvr)
	udp:add(kvr.prefs.port, kvr)
end
