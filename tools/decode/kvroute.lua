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

-- Generated from lib/wire/protocol.h by tools/protocol: do not edit.
local VALUES = {
	codes = {[0] = "Ok", [1] = "UnknownVersion", [2] = "UnknownKind", [3] = "BadLength", [4] = "BadFragment", [5] = "TooLarge", [6] = "ReassemblyFull", [7] = "BadHint", [8] = "BadFlags", [9] = "NotAllowed", [10] = "CookieRequired", [11] = "RateLimited", [12] = "SourceLimit", [32] = "UnknownPool", [33] = "EmptyPrompt", [34] = "PromptTooLong", [35] = "InvalidOverride", [36] = "UnknownPolicyClass", [37] = "InvalidRequest", [38] = "UnknownRequest", [39] = "Ended", [40] = "InvalidWeight", [48] = "NoEndpoints", [49] = "AllEligibleWorkersOverloaded", [50] = "PinnedWorkerNotAllowed", [51] = "PinnedWorkerOverloaded", [52] = "DpRankRequired", [53] = "WorkerIdRequired", [54] = "QueueRejected", [55] = "NotActivated", [56] = "DuplicateRequest", [64] = "Busy", [65] = "NoMemory", [66] = "DispatchFailed", [67] = "WorkerLost", [68] = "Expired", [69] = "Shutdown", [70] = "PrefillFailed", [80] = "SessionOpenFailed", [81] = "SessionLimit", [82] = "UnknownSession", [83] = "InvalidSession", [84] = "SessionWorkerGone", [96] = "UnknownWorker", [97] = "StaleEpoch", [98] = "WorkerConfig", [99] = "WorkerLimit", [100] = "WorkerAlive"},
	overrides = {[1] = "overlap_score_weight", [2] = "router_temperature", [3] = "assume_kv_reuse", [4] = "track_prefill_tokens", [5] = "shared_cache_multiplier", [6] = "overlap_score_credit", [7] = "prefill_load_scale"},
	kinds = {[1] = "CONNECT", [2] = "CONNECTED", [16] = "ROUTE", [17] = "ACCEPTED", [18] = "REJECTED", [19] = "CANCEL", [20] = "CANCELLED", [21] = "PROBE", [22] = "MISSING", [24] = "DISPATCH", [25] = "DISPATCH_ACK", [26] = "RESPONSE", [27] = "RESPONSE_ACK", [28] = "PROGRESS", [29] = "PROGRESS_ACK", [30] = "ABORT", [31] = "ABORT_ACK", [32] = "HELLO", [33] = "WELCOME", [34] = "HEARTBEAT", [35] = "HEARTBEAT_ACK", [36] = "GOODBYE", [37] = "GOODBYE_ACK", [38] = "ALIVE", [48] = "KV_EVENTS", [49] = "KV_ACK", [64] = "SESSION_OPEN", [65] = "SESSION_OPENED", [66] = "SESSION_CLOSE", [67] = "SESSION_CLOSED", [68] = "SESSION_RELEASE", [69] = "SESSION_RELEASED", [80] = "POTENTIAL_LOADS", [81] = "LOADS"},
	states = {[0] = "QUERY", [1] = "QUEUED", [2] = "DISPATCHED", [3] = "RUNNING"},
	worker_states = {[1] = "JOINING", [2] = "SERVING", [3] = "SUSPECT", [4] = "DRAINING", [5] = "DRAINED", [6] = "GONE"},
	event_forms = {[0] = "UNKNOWN", [1] = "TOKENS", [2] = "PAIRS"},
	kv_types = {[1] = "STORED", [2] = "REMOVED", [3] = "CLEARED"},
	kv_codes = {[0] = "OK", [1] = "GAP", [2] = "DUMP_WANTED", [3] = "HELLO", [4] = "BUSY"},
	actions = {[0] = "NONE", [1] = "OPEN", [2] = "CLOSE"},
	roles = {[0] = "aggregated", [1] = "prefill", [2] = "decode"},
	ways = {[0] = "aggregated", [1] = "bootstrap", [2] = "sync", [3] = "bypassed"},
	tiers = {[0] = "device", [1] = "host_pinned", [2] = "disk", [3] = "external"},
}

-- By struct: bit, name.
local FLAGS = {
	request = {{0x1, "QUERY"}, {0x2, "RESEND"}, {0x4, "DIRECT"}, {0x8, "EAGLE"}, {0x80, "BOOK"}, {0x100, "AWAY"}, {0x200, "HEALTH"}, {0x400, "TRACK"}, {0x800, "QUIET"}, {0x10, "PREFILL_LEG"}, {0x20, "DECODE_LEG"}, {0x40, "UNPROVEN"}, {0x1000, "TRIAL"}},
	accepted = {{0x1, "KEPT"}},
	response = {{0x1, "FIN"}, {0x2, "ERROR"}, {0x4, "CANCELLED"}, {0x8, "TOKENS"}, {0x10, "FAILED"}, {0x20, "REFUSED"}},
	response_ack = {{0x1, "FIN"}},
	progress = {{0x1, "FIRST"}, {0x2, "FIN"}, {0x4, "ERROR"}, {0x8, "CANCELLED"}, {0x10, "FAILED"}, {0x20, "REFUSED"}},
	pool = {{0x1, "EAGLE"}, {0x2, "SERVES"}},
	hello = {{0x1, "CPU"}},
	welcome = {{0x1, "WARM"}},
	heartbeat = {{0x1, "DRAIN"}},
	kv_events = {{0x1, "DUMP_BEGIN"}, {0x2, "DUMP"}, {0x4, "DUMP_END"}},
	kv_event = {{0x1, "PARENT"}},
}

-- Fields of each struct: name, type, display.
local STRUCTS = {
	hdr = {
		{"magic", "u16", "hex"},
		{"version", "u8", "dec"},
		{"kind", "u8", "kinds"},
		{"flags", "u16", "bits"},
		{"frag_len", "u16", "dec"},
		{"source", "u64", "hex"},
		{"id", "u64", "dec"},
		{"handle", "u64", "hex"},
		{"msg_len", "u32", "dec"},
		{"frag_off", "u32", "dec"},
		{"epoch", "u32", "hex"},
		{"msg_seq", "u32", "dec"},
	},
	request = {
		{"pool", "u16", "dec"},
		{"phase", "u8", "roles"},
		{"reserved0", "u8", "zero"},
		{"flags", "u32", "bits"},
		{"isl", "u32", "dec"},
		{"n_hashes", "u32", "dec"},
		{"n_tokens", "u32", "dec"},
		{"hints_len", "u32", "dec"},
		{"body_len", "u32", "dec"},
		{"max_tokens", "u32", "dec"},
		{"expected_output_tokens", "u32", "dec"},
		{"deadline_ms", "u32", "dec"},
		{"worker", "u64", "hex"},
		{"dp_rank", "u32", "dec"},
		{"overlap_blocks", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
		{"attempt", "u32", "dec"},
		{"client_ip", "ipv6", "dec"},
		{"client_port", "u16", "dec"},
		{"client_frame", "u16", "dec"},
		{"result_len", "u32", "dec"},
	},
	accepted = {
		{"worker", "u64", "hex"},
		{"dp_rank", "u32", "dec"},
		{"overlap_blocks", "u32", "dec"},
		{"required_blocks", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
		{"state", "u16", "states"},
		{"flags", "u16", "bits"},
		{"queue_len", "u32", "dec"},
		{"pending_tokens", "u32", "dec"},
		{"prefill_overlap_blocks", "u32", "dec"},
		{"prefill_worker", "u64", "hex"},
		{"prefill_dp_rank", "u32", "dec"},
		{"path", "u16", "ways"},
		{"hints_len", "u16", "dec"},
	},
	missing = {
		{"kind", "u8", "kinds"},
		{"reserved0", "u8", "zero"},
		{"n_words", "u16", "dec"},
		{"msg_seq", "u32", "dec"},
		{"msg_len", "u32", "dec"},
		{"unit", "u32", "dec"},
		{"first", "u32", "dec"},
		{"reserved1", "u32", "zero"},
	},
	rejected = {
		{"code", "u16", "codes"},
		{"retryable", "u8", "dec"},
		{"kind", "u8", "kinds"},
		{"text_len", "u16", "dec"},
		{"policy_class", "u16", "dec"},
		{"detail", "u64x4", "dec"},
	},
	dispatch_ack = {
		{"code", "u16", "dec"},
		{"reserved0", "u16", "zero"},
		{"reserved1", "u32", "zero"},
	},
	response = {
		{"seq", "u32", "dec"},
		{"flags", "u16", "bits"},
		{"status", "u16", "dec"},
		{"generated_tokens", "u32", "dec"},
		{"data_len", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
		{"hints_len", "u32", "dec"},
		{"reserved1", "u64", "zero"},
	},
	tracker = {
		{"worker", "u64", "hex"},
		{"prefill_worker", "u64", "hex"},
		{"dp_rank", "u32", "dec"},
		{"prefill_dp_rank", "u32", "dec"},
		{"overlap_blocks", "u32", "dec"},
		{"prefill_overlap_blocks", "u32", "dec"},
		{"required_blocks", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
		{"isl", "u32", "dec"},
		{"osl", "u32", "dec"},
		{"queue_us", "u32", "dec"},
		{"ttft_us", "u32", "dec"},
		{"itl_us", "u32", "dec"},
		{"prefill_us", "u32", "dec"},
		{"transfer_us", "u32", "dec"},
		{"reserved", "u32", "zero"},
		{"hit_rate", "f64", "dec"},
	},
	response_ack = {
		{"next_seq", "u32", "dec"},
		{"flags", "u32", "bits"},
	},
	progress = {
		{"seq", "u32", "dec"},
		{"flags", "u16", "bits"},
		{"status", "u16", "dec"},
		{"generated_tokens", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
	},
	progress_ack = {
		{"next_seq", "u32", "dec"},
		{"reserved", "u32", "zero"},
	},
	abort = {
		{"code", "u16", "codes"},
		{"reserved0", "u16", "zero"},
		{"reserved1", "u32", "zero"},
	},
	hello = {
		{"block_size", "u32", "dec"},
		{"dp_start", "u32", "dec"},
		{"dp_size", "u32", "dec"},
		{"max_num_batched_tokens", "u32", "dec"},
		{"total_kv_blocks", "u64", "dec"},
		{"hints_len", "u32", "dec"},
		{"max_frame", "u16", "dec"},
		{"role", "u8", "roles"},
		{"flags", "u8", "bits"},
		{"boot", "u64", "hex"},
		{"reserved", "u64", "zero"},
	},
	welcome = {
		{"pool", "u16", "dec"},
		{"flags", "u16", "bits"},
		{"heartbeat_ms", "u32", "dec"},
		{"dead_ms", "u32", "dec"},
		{"max_frame", "u32", "dec"},
		{"reserved1", "u32", "zero"},
		{"reserved2", "u32", "zero"},
	},
	heartbeat = {
		{"n_ranks", "u32", "dec"},
		{"flags", "u16", "bits"},
		{"wish", "u16", "dec"},
	},
	rank_load = {
		{"dp_rank", "u32", "dec"},
		{"active_requests", "u32", "dec"},
		{"kv_used_blocks", "u64", "dec"},
		{"next_event_id", "u64", "dec"},
		{"events_unread", "u32", "dec"},
		{"event_block_size", "u16", "dec"},
		{"event_form", "u8", "event_forms"},
		{"canaries_missed", "u8", "dec"},
	},
	heartbeat_ack = {
		{"state", "u16", "worker_states"},
		{"reserved0", "u16", "zero"},
		{"bookings", "u32", "dec"},
	},
	alive = {
		{"n", "u32", "dec"},
		{"reserved", "u32", "zero"},
	},
	kv_events = {
		{"first_event_id", "u64", "dec"},
		{"resume_event_id", "u64", "dec"},
		{"dp_rank", "u32", "dec"},
		{"n_events", "u16", "dec"},
		{"flags", "u16", "bits"},
		{"reserved", "u64", "zero"},
	},
	kv_event = {
		{"type", "u8", "kv_types"},
		{"tier", "u8", "tiers"},
		{"flags", "u16", "bits"},
		{"n_blocks", "u32", "dec"},
		{"parent", "u64", "hex"},
	},
	kv_ack = {
		{"next_event_id", "u64", "dec"},
		{"next_dump_pos", "u64", "dec"},
		{"dp_rank", "u32", "dec"},
		{"code", "u16", "kv_codes"},
		{"reserved", "u16", "zero"},
	},
	connect = {
		{"hints_len", "u32", "dec"},
		{"max_frame", "u16", "dec"},
		{"reserved", "u16", "zero"},
	},
	connected = {
		{"n_pools", "u32", "dec"},
		{"max_frame", "u32", "dec"},
		{"max_tokens", "u32", "dec"},
		{"max_hashes", "u32", "dec"},
		{"max_body", "u32", "dec"},
		{"total_pools", "u32", "dec"},
		{"max_message", "u32", "dec"},
		{"max_frames", "u32", "dec"},
		{"cookie", "u64", "hex"},
	},
	pool = {
		{"pool", "u16", "dec"},
		{"role", "u8", "roles"},
		{"flags", "u8", "bits"},
		{"block_size", "u32", "dec"},
		{"ranks", "u32", "dec"},
		{"name_len", "u16", "dec"},
		{"reserved", "u16", "zero"},
	},
	session = {
		{"timeout_s", "u32", "dec"},
		{"id_len", "u16", "dec"},
		{"pool", "u16", "dec"},
	},
	session_status = {
		{"code", "u16", "codes"},
		{"reserved0", "u16", "zero"},
		{"reserved1", "u32", "zero"},
	},
	loads = {
		{"n_ranks", "u32", "dec"},
		{"queue_len", "u32", "dec"},
		{"pending_tokens", "u64", "dec"},
	},
	rank_potential = {
		{"worker", "u64", "hex"},
		{"dp_rank", "u32", "dec"},
		{"active_requests", "u32", "dec"},
		{"prefill_tokens", "u64", "dec"},
		{"decode_blocks", "u64", "dec"},
		{"overlap_blocks", "u32", "dec"},
		{"cached_tokens", "u32", "dec"},
	},
}

-- Struct of the fixed part of each kind.
local FIXED = {
	[1] = "connect", [2] = "connected", [16] = "request", [17] = "accepted", [18] = "rejected", [22] = "missing", [24] = "request", [25] = "dispatch_ack", [26] = "response", [27] = "response_ack", [28] = "progress", [29] = "progress_ack", [30] = "abort", [32] = "hello", [33] = "welcome", [34] = "heartbeat", [35] = "heartbeat_ack", [38] = "alive", [48] = "kv_events", [49] = "kv_ack", [64] = "session", [65] = "session_status", [66] = "session", [67] = "session_status", [68] = "session", [69] = "session_status", [80] = "request", [81] = "loads",
}

-- Name and format of each hint.
local HINTS = {
	[0] = {"PAD", "PAD"},
	[0x0001] = {"LORA", "TEXT"},
	[0x0002] = {"NAMESPACE", "TEXT"},
	[0x8003] = {"BACKEND", "U64"},
	[0x8004] = {"PREFILL_WORKER", "U64"},
	[0x8005] = {"DECODE_WORKER", "U64"},
	[0x8006] = {"DP_RANK", "U32"},
	[0x8007] = {"PREFILL_DP_RANK", "U32"},
	[0x8008] = {"ALLOWED_WORKERS", "U64S"},
	[0x8009] = {"REQUIRED_TAINT", "TEXTS"},
	[0x000a] = {"PREFERRED_TAINT", "PREFERRED"},
	[0x000b] = {"PRIORITY_JUMP", "F64"},
	[0x000c] = {"STRICT_PRIORITY", "U32"},
	[0x000d] = {"PRIORITY", "I32"},
	[0x000e] = {"POLICY_CLASS", "TEXT"},
	[0x800f] = {"OVERRIDE", "OVERRIDE"},
	[0x0010] = {"SESSION", "SESSION"},
	[0x0011] = {"MM", "MM"},
	[0x0012] = {"SHARED_HITS", "RANGES"},
	[0x0015] = {"TRACE", "BYTES"},
	[0x8016] = {"BODY", "BODY"},
	[0x0017] = {"FAILED_AT", "RANKS"},
	[0x0013] = {"BOOTSTRAP", "BOOTSTRAP"},
	[0x0014] = {"PREFILL_RESULT", "BYTES"},
	[0x0025] = {"ENGINE_ADDR", "TEXT"},
	[0x0026] = {"PREFILL_ENGINE_ADDR", "TEXT"},
	[0x0027] = {"BODY_ADDR", "TEXT"},
	[0x0028] = {"PREFILL_BODY_ADDR", "TEXT"},
	[0x0029] = {"TRACKER", "TRACKER"},
	[0x002a] = {"PROMPT_DETAILS", "BYTES"},
	[0x002b] = {"TRACE_LINK", "BYTES"},
	[0x002c] = {"RANK", "RANKS"},
	[0x8020] = {"POOL", "TEXTS"},
	[0x0021] = {"TAINT", "TEXTS"},
	[0x0022] = {"TOPOLOGY", "PAIRS"},
	[0x0023] = {"KV_TRANSFER", "KV_TRANSFER"},
	[0x0024] = {"BOOTSTRAP_ADDR", "BOOTSTRAP_ADDR"},
}
-- End of the generated part.

-- ---- fields ----

local fields = {}

local function field(name, ctor, title, display, values, mask)
	local f = ctor("kvroute." .. name, title or name, display, values, mask)
	fields[name] = f
	return f
end

local CTORS = {u8 = ProtoField.uint8, u16 = ProtoField.uint16, u32 = ProtoField.uint32, u64 = ProtoField.uint64,
	u64x4 = ProtoField.uint64, f64 = ProtoField.double, ipv6 = ProtoField.ipv6}
local WIDTHS = {u8 = 8, u16 = 16, u32 = 32}
local SIZES = {u8 = 1, u16 = 2, u32 = 4, u64 = 8, u64x4 = 8, f64 = 8, ipv6 = 16}
local HEX = {hex = true, bits = true}

local function lists_of(values)
	local out = {}
	for number, name in pairs(values) do out[number] = name end
	return out
end

-- Field `name` of several structs is kvroute.<name> where all agree on its type and display and the header has no
-- such field; otherwise kvroute.<struct>.<name>.
local function shared_names()
	local seen, differ = {}, {}
	for struct, list in pairs(STRUCTS) do
		for _, f in ipairs(list) do
			local key = f[2] .. f[3]
			if struct == "hdr" or (seen[f[1]] and seen[f[1]] ~= key) then differ[f[1]] = true end
			seen[f[1]] = key
		end
	end
	return differ
end

-- Turn the lists of names into lists of {field or false, size, flags}.
local structs = {}
do
	local differ = shared_names()
	for struct, list in pairs(STRUCTS) do
		local prefix, out = struct == "hdr" and "" or struct .. ".", {}
		for _, f in ipairs(list) do
			local name, kind, show = f[1], f[2], f[3]
			local full = (differ[name] or show == "bits") and prefix .. name or name
			local entry = {false, SIZES[kind]}
			if show ~= "zero" then
				local display = (kind == "f64" or kind == "ipv6") and base.NONE or HEX[show] and base.HEX or base.DEC
				entry[1] = fields[full] or field(full, CTORS[kind], name:gsub("_", " "),
					display ~= base.NONE and display or nil, VALUES[show] and lists_of(VALUES[show]) or nil)
			end
			if show == "bits" and FLAGS[struct] then
				entry[3] = {}
				for _, bit in ipairs(FLAGS[struct]) do
					table.insert(entry[3], field(full .. "." .. bit[2]:lower(), ProtoField.bool, bit[2],
						WIDTHS[kind], nil, bit[1]))
				end
			end
			for _ = 1, kind == "u64x4" and 4 or 1 do out[#out + 1] = entry end
		end
		structs[struct] = out
	end
end
structs.live_request = {{fields.handle, 8}}

local KINDS, EVENTS = VALUES.kinds, VALUES.kv_types
local header, request = structs.hdr, structs.request

local f_hash = field("hash", ProtoField.uint64, "hash", base.HEX)
local f_missing = field("missing", ProtoField.uint64, "missing", base.HEX)
local f_token = field("token", ProtoField.uint32, "token", base.DEC)
local f_body = field("body", ProtoField.bytes, "body")
local f_data = field("data", ProtoField.bytes, "data")
local f_result = field("result", ProtoField.bytes, "transfer result")
local f_text = field("text", ProtoField.string, "text")
local f_pool_name = field("pool_name", ProtoField.string, "pool name")
local f_session_id = field("session_id", ProtoField.string, "session")
local f_fragment = field("fragment", ProtoField.bytes, "fragment of a message")
local f_client_ip = fields.client_ip

-- ---- hints: a function per format that displays the value ----

local f_weight = field("hint.weight", ProtoField.double, "weight")
local f_port = field("hint.port", ProtoField.uint16, "port", base.DEC)
local f_room = field("hint.room", ProtoField.uint64, "room", base.DEC)
local f_body_len = field("hint.body_len", ProtoField.uint64, "bytes", base.DEC)
local f_action = field("hint.action", ProtoField.uint8, "action", base.DEC, VALUES.actions)
local f_timeout = field("hint.timeout_s", ProtoField.uint32, "timeout, s", base.DEC)
local f_enforce = field("hint.enforcement", ProtoField.uint8, "enforcement", base.DEC,
	{[0] = "none", [1] = "preferred", [2] = "required"})
local f_override = field("hint.override", ProtoField.uint32, "field", base.DEC, VALUES.overrides)
local f_value = field("hint.value", ProtoField.double, "value")
local f_block = field("hint.block", ProtoField.uint32, "block", base.DEC)
local f_mm = field("hint.mm_hash", ProtoField.uint64, "multimodal hash", base.HEX)
local f_worker = field("hint.worker", ProtoField.uint64, "worker", base.HEX)
local f_rank = field("hint.rank", ProtoField.uint32, "rank", base.DEC)
local f_start = field("hint.start", ProtoField.uint32, "start", base.DEC)
local f_end = field("hint.end", ProtoField.uint32, "end", base.DEC)
local f_opaque = field("hint.opaque", ProtoField.bytes, "bytes")

local add_struct

-- Each takes the name of a hint, and returns a function of (tree, value).
local function number(ctor, size, display)
	return function(name)
		local f = field("hint." .. name, ctor, name, display)
		return function(tree, v) if v:len() == size then tree:add_le(f, v) end end
	end
end
local function numbers_of(f, size)
	return function()
		return function(tree, v)
			for at = 0, v:len() - size, size do tree:add_le(f, v(at, size)) end
		end
	end
end
-- A fixed part of `size` bytes, then a string.
local function string_after(size, show, title)
	return function(name)
		local f = field("hint." .. (title or name), ProtoField.string, title or name)
		return function(tree, v)
			if v:len() < size then return end
			if show then show(tree, v) end
			if v:len() > size then tree:add(f, v(size)) end
		end
	end
end
local function plain(size, show)
	return function()
		return function(tree, v) if v:len() >= size then show(tree, v) end end
	end
end

local FORMATS = {
	PAD = plain(0, function() end),
	U64 = number(ProtoField.uint64, 8, base.HEX), U32 = number(ProtoField.uint32, 4, base.DEC),
	I32 = number(ProtoField.int32, 4, base.DEC), F64 = number(ProtoField.double, 8),
	TEXT = string_after(0), TEXTS = string_after(0), PAIRS = string_after(0),
	BYTES = plain(1, function(tree, v) tree:add(f_opaque, v) end),
	U64S = numbers_of(f_worker, 8),
	RANKS = plain(16, function(tree, v)
		for at = 0, v:len() - 16, 16 do
			tree:add_le(f_worker, v(at, 8))
			tree:add_le(f_rank, v(at + 8, 4))
		end
	end),
	PREFERRED = string_after(8, function(tree, v) tree:add_le(f_weight, v(0, 8)) end),
	OVERRIDE = plain(16, function(tree, v)
		tree:add_le(f_override, v(0, 4))
		tree:add_le(f_value, v(8, 8))
	end),
	SESSION = string_after(8, function(tree, v)
		tree:add(f_action, v(0, 1))
		tree:add_le(f_timeout, v(4, 4))
	end),
	MM = plain(8, function(tree, v)
		tree:add_le(f_block, v(0, 4))
		for at = 8, v:len() - 8, 8 do tree:add_le(f_mm, v(at, 8)) end
	end),
	RANGES = plain(8, function(tree, v)
		tree:add_le(f_start, v(0, 4))
		tree:add_le(f_end, v(4, 4))
	end),
	BODY = plain(24, function(tree, v)
		tree:add_le(f_body_len, v(0, 8))
		tree:add(f_opaque, v(8, 16))
	end),
	BOOTSTRAP = string_after(16, function(tree, v)
		tree:add_le(f_room, v(0, 8))
		tree:add_le(f_port, v(8, 2))
	end, "bootstrap_host"),
	BOOTSTRAP_ADDR = string_after(8, function(tree, v) tree:add_le(f_port, v(0, 2)) end),
	KV_TRANSFER = string_after(16, function(tree, v)
		tree:add(f_enforce, v(0, 1))
		tree:add_le(f_weight, v(8, 8))
	end, "domain"),
	TRACKER = plain(80, function(tree, v) add_struct(tree, v, 0, structs.tracker) end),
}

local hint_names, show_hint = {}, {}
for number_, hint in pairs(HINTS) do
	hint_names[number_] = hint[1]
	show_hint[number_] = FORMATS[hint[2]](hint[1]:lower())
end
local f_hint_type = field("hint.type", ProtoField.uint16, "type", base.HEX, hint_names)
local f_hint_len = field("hint.len", ProtoField.uint16, "length", base.DEC)

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
function add_struct(tree, tvb, at, list)
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
		if n > 0 and show_hint[kind] then
			show_hint[kind](sub, tvb(at + 4, n))
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

-- Variable parts: kind -> function.
local session_id = bytes_tail(f_session_id, {off = 4, size = 2})
local TAILS = {
	[1] = hints_at(0), [2] = tail_connected, [16] = tail_request, [17] = hints_at(54, 2),
	[18] = bytes_tail(f_text, {off = 4, size = 2}), [22] = tail_missing, [24] = tail_request, [26] = tail_response,
	[32] = hints_at(24), [34] = entries(structs.rank_load, "Rank"), [38] = entries(structs.live_request, "Request"),
	[48] = tail_events, [64] = session_id, [66] = session_id, [68] = session_id, [80] = tail_request,
	[81] = entries(structs.rank_potential, "Rank"),
}

-- kind -> fixed part. PROBE may have 8 zero bytes.
local BODY = {[21] = {{false, 8}}}
for kind, struct in pairs(FIXED) do BODY[kind] = structs[struct] end

local REJECTED_SHORT = 8

local function dissect_body(tree, body, kind, whole)
	local layout = BODY[kind]
	if layout == nil then
		if body:len() > 0 then malformed(tree, "this kind has no body") end
		return
	end
	local fixed = size_of(layout)
	if kind == 18 and body:len() == REJECTED_SHORT then -- its question was short, too
		return add_struct(tree, body, 0, {table.unpack(layout, 1, 5)})
	end
	if body:len() < fixed then return malformed(tree, "body is shorter than its fixed part") end
	local at = add_struct(tree, body, 0, layout)
	if TAILS[kind] then at = TAILS[kind](tree, body, at, fixed, whole) end
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
