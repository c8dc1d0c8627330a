/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PROTOCOL_H
#define KVR_PROTOCOL_H

/**
 * @file
 * The kvroute protocol, version 1, as lists. Each list is an X-macro: its rows are the only place
 * where a kind of message, a field, a flag, a hint or a code is written down. C code expands the
 * lists to enumerations, structs, tables, parsers and setters. tools/protocol expands them to the
 * tables of PROTOCOL.md and of the dissector (tools/decode/kvroute.lua). PROTOCOL.md has the rules.
 *
 * To add
 *   a code    a row in KVR_CODES.
 *   a hint    a row in the list of its messages, KVR_*_HINTS. Parser, struct kvr_hints, the setter
 * of lib/client, and the members of gateway and scenarios follow, if the format exists. A new
 *             format also needs a member type (kvr_hints.h), a parser (hints.c) and a display
 *             (kvroute.lua).
 *   a field   a row in KVR_FIELDS_* in place of a reserved field, and its size where the sum
 * changes. a flag    a row in KVR_FLAGS_*. a kind    a row in KVR_KINDS, and its body, if no
 * present one fits: KVR_FIELDS_*, the struct, and a row in KVR_STRUCTS. A body with a variable part
 * needs a check in body.c and a display in kvroute.lua. Then run `tools/protocol`, describe the
 * rules in PROTOCOL.md, and extend the independent decoder of the tests (tests/smoke/kvrproto.py)
 * and the samples (tests/protocol/samples.c).
 *
 * Numbers never change and are never used again. Everything is little-endian; arrays start at
 * multiples of 8 from the start of the body. Structs are read in place from packet memory, which is
 * not aligned: access them through pointers to these packed types, never through pointers to their
 * members.
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVR_PACKED __attribute__((packed))

/* clang-format off */

/* ---- codes ---------------------------------------------------------------------------------- */

/* X(NAME, number, "Name", retryable, "text"): reason of a rejection. The text is the default one of
 * REJECTED. Retryable: the same request, sent as a new one, may succeed later. */
#define KVR_CODES(X) \
	/* the frame */ \
	X(VERSION, 1, "UnknownVersion", false, "unknown version of the protocol") \
	X(KIND, 2, "UnknownKind", false, "unknown kind, or not for this receiver") \
	X(LENGTH, 3, "BadLength", false, "lengths disagree") \
	X(FRAGMENT, 4, "BadFragment", false, "fragment overlaps, exceeds the message, or changes its length") \
	X(TOO_LARGE, 5, "TooLarge", false, "message, tokens, hashes, hints or body above the limit") \
	X(REASSEMBLY_FULL, 6, "ReassemblyFull", true, "no room to reassemble messages of this sender") \
	X(HINT, 7, "BadHint", false, "malformed hint, or unknown critical hint") \
	X(FLAGS, 8, "BadFlags", false, "unknown flag bits, or reserved bytes set") \
	X(NOT_ALLOWED, 9, "NotAllowed", false, "this address or role may not send this") \
	/* the sender */ \
	X(COOKIE, 10, "CookieRequired", true, "the cookie is missing, too old or of another address") \
	X(RATE_LIMITED, 11, "RateLimited", true, "more requests a second than a source may send") \
	X(SOURCE_LIMIT, 12, "SourceLimit", true, "the source has reached a quota") \
	/* the request */ \
	X(UNKNOWN_POOL, 32, "UnknownPool", false, "no such pool") \
	X(EMPTY_PROMPT, 33, "EmptyPrompt", false, "the prompt has no tokens") \
	X(PROMPT_TOO_LONG, 34, "PromptTooLong", false, "the prompt has more blocks than the pool accepts") \
	X(INVALID_OVERRIDE, 35, "InvalidOverride", false, "override with an unknown field or an illegal value") \
	X(UNKNOWN_POLICY_CLASS, 36, "UnknownPolicyClass", false, "no such policy class") \
	X(INVALID_REQUEST, 37, "InvalidRequest", false, "contradictory fields") \
	X(UNKNOWN_REQUEST, 38, "UnknownRequest", false, "the router does not know this request") \
	X(ENDED, 39, "Ended", false, "the request has ended") \
	X(INVALID_WEIGHT, 40, "InvalidWeight", false, "hint with a number that is not finite") \
	/* the choice */ \
	X(NO_ENDPOINTS, 48, "NoEndpoints", false, "no worker may execute the request") \
	X(ALL_OVERLOADED, 49, "AllEligibleWorkersOverloaded", true, "all eligible workers are overloaded") \
	X(PINNED_NOT_ALLOWED, 50, "PinnedWorkerNotAllowed", false, "the pinned worker is not among the allowed ones") \
	X(PINNED_OVERLOADED, 51, "PinnedWorkerOverloaded", true, "the pinned worker is overloaded") \
	X(DP_RANK_REQUIRED, 52, "DpRankRequired", false, "the pinned worker is unknown or has several ranks: name one") \
	X(WORKER_ID_REQUIRED, 53, "WorkerIdRequired", false, "mode direct: the request must name its worker") \
	X(QUEUE_REJECTED, 54, "QueueRejected", true, "the queue is at a limit") \
	X(NOT_ACTIVATED, 55, "NotActivated", true, "the prefill pool is not active") \
	X(DUPLICATE_REQUEST, 56, "DuplicateRequest", false, "another request with this id is live") \
	/* the router */ \
	X(BUSY, 64, "Busy", true, "an internal queue of the router is full") \
	X(NO_MEMORY, 65, "NoMemory", true, "a memory pool of the router is exhausted") \
	X(DISPATCH_FAILED, 66, "DispatchFailed", true, "the worker rejected the request") \
	X(WORKER_LOST, 67, "WorkerLost", true, "the worker was lost with the request") \
	X(EXPIRED, 68, "Expired", false, "a time limit of the request has passed") \
	X(SHUTDOWN, 69, "Shutdown", true, "the router is stopping") \
	X(PREFILL_FAILED, 70, "PrefillFailed", true, "the prefill leg failed") \
	/* sessions */ \
	X(SESSION_OPEN_FAILED, 80, "SessionOpenFailed", false, "the worker did not open the session") \
	X(SESSION_LIMIT, 81, "SessionLimit", true, "no room for another session") \
	X(UNKNOWN_SESSION, 82, "UnknownSession", false, "no such session") \
	X(INVALID_SESSION, 83, "InvalidSession", false, "illegal id, action or timeout of a session") \
	X(SESSION_WORKER_GONE, 84, "SessionWorkerGone", false, "the worker of the session has left or restarted") \
	/* workers */ \
	X(UNKNOWN_WORKER, 96, "UnknownWorker", false, "the router does not know this worker: send HELLO") \
	X(STALE_EPOCH, 97, "StaleEpoch", false, "this incarnation of the worker has ended") \
	X(WORKER_CONFIG, 98, "WorkerConfig", false, "a field of the worker does not fit the pool") \
	X(WORKER_LIMIT, 99, "WorkerLimit", false, "no room for more workers or ranks") \
	X(WORKER_ALIVE, 100, "WorkerAlive", true, "another address speaks for this worker")

#define KVR_CODE(name, number, text, retryable, description) KVR_E_##name = number,
enum kvr_code { KVR_OK = 0, KVR_CODES(KVR_CODE) KVR_E_MAX };

/* Name ("BadLength"; "?" for an unknown number), text (never NULL or empty), and true if the same
 * request may succeed later (false for an unknown number). Any thread. */
const char *kvr_code_name(unsigned int code);
const char *kvr_code_text(unsigned int code);
bool kvr_code_retryable(unsigned int code);

/* ---- values of fields ----------------------------------------------------------------------- */

/* X(NAME, number, "meaning"). Roles, ways and tiers are in kvr_types.h. */
#define KVR_STATES(X) \
	X(QUERY, 0, "answer to a query; nothing is booked") \
	X(QUEUED, 1, "the request waits; worker, rank and counts are 0; another ACCEPTED follows") \
	X(DISPATCHED, 2, "sent to the worker, which has not acknowledged it yet") \
	X(RUNNING, 3, "acknowledged by the worker, or the worker has begun to answer")
#define KVR_WORKER_STATES(X) \
	X(JOINING, 1, "registered, not chosen yet") \
	X(SERVING, 2, "receives requests") \
	X(SUSPECT, 3, "heartbeats missed; not chosen") \
	X(DRAINING, 4, "receives no new requests, finishes its present ones") \
	X(DRAINED, 5, "no request left: safe to stop the engine") \
	X(GONE, 6, "removed; send HELLO to register again")
#define KVR_EVENT_FORMS(X) \
	X(UNKNOWN, 0, "not known yet") \
	X(TOKENS, 1, "tokens") \
	X(PAIRS, 2, "pairs of tokens, as an engine with EAGLE sends")
#define KVR_KV_TYPES(X) \
	X(STORED, 1, "blocks are now cached in `tier`; the first follows `parent`, or begins a prompt") \
	X(REMOVED, 2, "blocks have left `tier`, in any order") \
	X(CLEARED, 3, "the rank no longer holds any block, in any tier; `n_blocks` is 0")
#define KVR_KV_CODES(X) \
	X(OK, 0, "all below `next_event_id` is applied: discard these events") \
	X(GAP, 1, "send again from `next_event_id` at once, or a dump if these events are gone") \
	X(DUMP_WANTED, 2, "send a dump") \
	X(HELLO, 3, "send HELLO first: the worker, its epoch or the rank is unknown") \
	X(BUSY, 4, "wait 20 ms, then send unacknowledged frames again, of a dump or live")
#define KVR_ACTIONS(X) \
	X(NONE, 0, "use the session") \
	X(OPEN, 1, "open it at the chosen worker") \
	X(CLOSE, 2, "use it, and end it with the request")
#define KVR_QUOTAS(X) \
	X(REQUESTS, 1, "live requests") \
	X(WAITING, 2, "waiting requests") \
	X(SESSIONS, 3, "sessions")

/* X(NAME, number, "json_member", range): fields of OVERRIDE, all finite. POSITIVE: 0 or more.
 * SHARE: 0 to 1. SWITCH: 0 or 1. */
#define KVR_OVERRIDES(X) \
	X(OVERLAP_SCORE_WEIGHT, 1, "overlap_score_weight", POSITIVE) \
	X(ROUTER_TEMPERATURE, 2, "router_temperature", POSITIVE) \
	X(ASSUME_KV_REUSE, 3, "assume_kv_reuse", SWITCH) \
	X(TRACK_PREFILL_TOKENS, 4, "track_prefill_tokens", SWITCH) \
	X(SHARED_CACHE_MULTIPLIER, 5, "shared_cache_multiplier", SHARE) \
	X(OVERLAP_SCORE_CREDIT, 6, "overlap_score_credit", POSITIVE) \
	X(PREFILL_LOAD_SCALE, 7, "prefill_load_scale", POSITIVE)

#define KVR_STATE(name, number, meaning) KVR_STATE_##name = number,
#define KVR_WORKER_STATE(name, number, meaning) KVR_WORKER_##name = number,
#define KVR_EVENT_FORM(name, number, meaning) KVR_FORM_##name = number,
#define KVR_KV_VALUE(name, number, meaning) KVR_KV_##name = number,
#define KVR_ACTION(name, number, meaning) KVR_ACTION_##name = number,
#define KVR_QUOTA(name, number, meaning) KVR_QUOTA_##name = number,
#define KVR_OVERRIDE_FIELD(name, number, text, range) KVR_OVERRIDE_##name = number,
enum kvr_wire_state { KVR_STATES(KVR_STATE) };
enum kvr_wire_worker_state { KVR_WORKER_STATES(KVR_WORKER_STATE) };
enum kvr_wire_event_form { KVR_EVENT_FORMS(KVR_EVENT_FORM) };
enum kvr_wire_kv_type { KVR_KV_TYPES(KVR_KV_VALUE) };
enum kvr_wire_kv_code { KVR_KV_CODES(KVR_KV_VALUE) };
enum kvr_wire_session_action { KVR_ACTIONS(KVR_ACTION) };
enum kvr_wire_source_limit { KVR_QUOTAS(KVR_QUOTA) };
enum kvr_wire_override { KVR_OVERRIDES(KVR_OVERRIDE_FIELD) KVR_OVERRIDES_END };

/* ---- flags ---------------------------------------------------------------------------------- */

/* B(PREFIX, NAME, bit, "meaning"): bits of the field `flags` of a struct. All other bits are 0. */
/* A request: flags that its client sets, and those that the router adds. */
#define KVR_FLAGS_ROUTE(B) \
	B(REQ, QUERY, 0x0001, "choose and answer; book nothing, send nothing to a worker") \
	B(REQ, RESEND, 0x0002, "this ROUTE has been sent before") \
	B(REQ, DIRECT, 0x0004, "the agent sends items directly to the client, not through the router (section 7.2)") \
	B(REQ, EAGLE, 0x0008, "tokens are hashed in windows of `block_size` + 1 (section 13)") \
	B(REQ, BOOK, 0x0080, "choose and book, without a DISPATCH: the client executes the request (section 6.7)") \
	B(REQ, AWAY, 0x0100, "the body is not in the frames: the client sends it to the agent directly (section 19)") \
	B(REQ, HEALTH, 0x0200, "a probe of an engine's health, without booking, session, index entry or request metric (section 6.8)") \
	B(REQ, TRACK, 0x0400, "the last item reports timing and placement of the request (section 6.4)") \
	B(REQ, QUIET, 0x0800, "ACCEPTED may wait for the worker (section 6.2). Without effect with QUERY, DIRECT, BOOK or AWAY")
#define KVR_FLAGS_DISPATCH(B) \
	B(REQ, PREFILL_LEG, 0x0010, "DISPATCH: prefill leg of a disaggregated request (section 7.5); never with DIRECT") \
	B(REQ, DECODE_LEG, 0x0020, "DISPATCH: its decode leg; never with PREFILL_LEG") \
	B(REQ, UNPROVEN, 0x0040, "DISPATCH: the client's address may be forged (section 7.2)") \
	B(REQ, TRIAL, 0x1000, "DISPATCH: requests timed out at this rank; this one tests whether it works again (section 18)")
#define KVR_FLAGS_REQUEST(B) KVR_FLAGS_ROUTE(B) KVR_FLAGS_DISPATCH(B)
#define KVR_FLAGS_ACCEPTED(B) \
	B(ACC, KEPT, 0x0001, "the router has the whole message and retransmits the DISPATCH itself")
#define KVR_FLAGS_RESPONSE(B) \
	B(RESP, FIN, 0x0001, "last item") \
	B(RESP, ERROR, 0x0002, "only with FIN: the engine failed; `status` and the words give the reason") \
	B(RESP, CANCELLED, 0x0004, "only with FIN: ended by CANCEL or ABORT; the words name the origin") \
	B(RESP, TOKENS, 0x0008, "the data is u32 token ids") \
	B(RESP, FAILED, 0x0010, "only with FIN: the failure counts against the rank; never with CANCELLED") \
	B(RESP, REFUSED, 0x0020, "only with FIN: the engine has no room for the request, which is no failure; never with FAILED")
#define KVR_FLAGS_RESPONSE_ACK(B) \
	B(RACK, FIN, 0x00000001, "the item with FIN and all before it have been received")
#define KVR_FLAGS_PROGRESS(B) \
	B(PROG, FIRST, 0x0001, "the first token has been generated (prefill is done); stays set in later reports") \
	B(PROG, FIN, 0x0002, "the request has ended") \
	B(PROG, ERROR, 0x0004, "only with FIN") \
	B(PROG, CANCELLED, 0x0008, "only with FIN") \
	B(PROG, FAILED, 0x0010, "only with FIN, as in RESPONSE") \
	B(PROG, REFUSED, 0x0020, "only with FIN, as in RESPONSE; never with FAILED")
#define KVR_FLAGS_POOL(B) \
	B(POOL, EAGLE, 0x01, "engines identify blocks by windows of `block_size` + 1 tokens (section 13, 4)") \
	B(POOL, SERVES, 0x02, "a worker of the pool accepts requests now; never set for a prefill pool")
#define KVR_FLAGS_HELLO(B) \
	B(HELLO, CPU, 0x01, "engine on a CPU, for device-aware routing")
#define KVR_FLAGS_WELCOME(B) \
	B(WELCOME, WARM, 0x0001, "the router holds blocks of this incarnation; events continue where KV_ACK says")
#define KVR_FLAGS_HEARTBEAT(B) \
	B(BEAT, DRAIN, 0x0001, "the engine wants no new requests: the router drains the worker")
#define KVR_FLAGS_KV_EVENTS(B) \
	B(KV, DUMP_BEGIN, 0x0001, "with DUMP, position 0: the rank is emptied first") \
	B(KV, DUMP, 0x0002, "part of a dump; first_event_id is a position in it") \
	B(KV, DUMP_END, 0x0004, "with DUMP, its last frame: resume_event_id is valid")
#define KVR_FLAGS_KV_EVENT(B) \
	B(KV_EV, PARENT, 0x0001, "only with STORED: `parent` is valid")

#define KVR_FLAG(prefix, name, bit, meaning) KVR_##prefix##_F_##name = bit,
#define KVR_FLAG_OR(prefix, name, bit, meaning) | bit
enum kvr_wire_flags {
	KVR_FLAGS_REQUEST(KVR_FLAG) KVR_FLAGS_ACCEPTED(KVR_FLAG) KVR_FLAGS_RESPONSE(KVR_FLAG)
	KVR_FLAGS_RESPONSE_ACK(KVR_FLAG) KVR_FLAGS_PROGRESS(KVR_FLAG) KVR_FLAGS_POOL(KVR_FLAG)
	KVR_FLAGS_HELLO(KVR_FLAG) KVR_FLAGS_WELCOME(KVR_FLAG) KVR_FLAGS_HEARTBEAT(KVR_FLAG)
	KVR_FLAGS_KV_EVENTS(KVR_FLAG) KVR_FLAGS_KV_EVENT(KVR_FLAG)
	KVR_REQ_F_CLIENT = 0 KVR_FLAGS_ROUTE(KVR_FLAG_OR),
};

/* ---- fields --------------------------------------------------------------------------------- */

/*
 * F(offset, type, name, show, "meaning"): fields of a struct, in order. show: `dec`, `hex`, `zero`
 * (reserved: 0), `bits` (KVR_FLAGS_*), or the list of values: kinds, codes, roles, ways, tiers, states,
 * worker_states, event_forms, kv_types, kv_codes.
 */
#define KVR_FIELD(offset, type, name, show, meaning) KVR_FIELD_##type(name)
#define KVR_FIELD_u8(name) uint8_t name;
#define KVR_FIELD_u16(name) uint16_t name;
#define KVR_FIELD_u32(name) uint32_t name;
#define KVR_FIELD_u64(name) uint64_t name;
#define KVR_FIELD_f64(name) uint64_t name; /* bits of an IEEE 754 double */
#define KVR_FIELD_u64x4(name) uint64_t name[4];
#define KVR_FIELD_ipv6(name) uint8_t name[16]; /* IPv4 is mapped: ::ffff:a.b.c.d */

/* Header of every frame. */
#define KVR_FIELDS_HDR(F) \
	F(0, u16, magic, hex, "0x564b: bytes 4b 56") \
	F(2, u8, version, dec, "1") \
	F(3, u8, kind, kinds, "section 5") \
	F(4, u16, flags, bits, "none defined: 0") \
	F(6, u16, frag_len, dec, "body bytes in this frame") \
	F(8, u64, source, hex, "client or worker, see below") \
	F(16, u64, id, dec, "request, or a number chosen by the sender") \
	F(24, u64, handle, hex, "the router's identifier of the request; 0 = none") \
	F(32, u32, msg_len, dec, "body bytes of the whole message") \
	F(36, u32, frag_off, dec, "first body byte in this frame; 0 when the frame carries the whole message") \
	F(40, u32, epoch, hex, "identifies the incarnation of the sending process, never 0") \
	F(44, u32, msg_seq, dec, "number of the message")
struct kvr_wire_hdr { KVR_FIELDS_HDR(KVR_FIELD) } KVR_PACKED;

/* ROUTE, DISPATCH, POTENTIAL_LOADS. Then hashes, tokens, hints, body, and in the DISPATCH of a decode
 * leg the result of its prefill leg, each padded to 8. "R": the router sets it, clients send 0. */
#define KVR_FIELDS_REQUEST(F) \
	F(0, u16, pool, dec, "number of the pool") \
	F(2, u8, phase, roles, "decides which pins apply (section 8); 0 unless the client sends the two phases as separate requests") \
	F(3, u8, reserved0, zero, "0") \
	F(4, u32, flags, bits, "below") \
	F(8, u32, isl, dec, "tokens of the prompt") \
	F(12, u32, n_hashes, dec, "") \
	F(16, u32, n_tokens, dec, "") \
	F(20, u32, hints_len, dec, "bytes of hints, a multiple of 8") \
	F(24, u32, body_len, dec, "opaque bytes for the engine, without padding") \
	F(28, u32, max_tokens, dec, "maximum tokens to generate; 0xffffffff: no limit here") \
	F(32, u32, expected_output_tokens, dec, "0xffffffff: unknown") \
	F(36, u32, deadline_ms, dec, "maximum time in the queue; 0: no limit") \
	F(40, u64, worker, hex, "ROUTE, POTENTIAL_LOADS: the client's cookie (section 15), 0 without one. DISPATCH: chosen worker") \
	F(48, u32, dp_rank, dec, "R: chosen rank") \
	F(52, u32, overlap_blocks, dec, "R: as in ACCEPTED") \
	F(56, u32, cached_tokens, dec, "R: as in ACCEPTED") \
	F(60, u32, attempt, dec, "R: number of earlier dispatches") \
	F(64, ipv6, client_ip, dec, "R: client's address") \
	F(80, u16, client_port, dec, "R: client's UDP port, little-endian like all numbers") \
	F(82, u16, client_frame, dec, "largest UDP payload the client accepts; 0 = 1432. R: the same or less, never 0") \
	F(84, u32, result_len, dec, "R: bytes of the transfer result, without padding (section 7.5); 0 without DECODE_LEG")
struct kvr_wire_request { KVR_FIELDS_REQUEST(KVR_FIELD) } KVR_PACKED;

/* Then hints with addresses, if the ROUTE has BOOK or AWAY. */
#define KVR_FIELDS_ACCEPTED(F) \
	F(0, u64, worker, hex, "chosen worker") \
	F(8, u32, dp_rank, dec, "chosen rank") \
	F(12, u32, overlap_blocks, dec, "leading blocks cached at `worker`; blocks in slower tiers are weighted as configured; rounded") \
	F(16, u32, required_blocks, dec, "blocks the request needs") \
	F(20, u32, cached_tokens, dec, "overlap before rounding, times `block_size`: prefill saved, not the number of tokens cached in any tier") \
	F(24, u16, state, states, "below") \
	F(26, u16, flags, bits, "below") \
	F(28, u32, queue_len, dec, "requests waiting in the pool") \
	F(32, u32, pending_tokens, dec, "prompt tokens of these requests, saturated") \
	F(36, u32, prefill_overlap_blocks, dec, "like `overlap_blocks`, at `prefill_worker`; 0 without one") \
	F(40, u64, prefill_worker, hex, "worker of the prefill leg; 0 without one") \
	F(48, u32, prefill_dp_rank, dec, "its rank; 0xffffffff without one") \
	F(52, u16, path, ways, "below") \
	F(54, u16, hints_len, dec, "bytes of hints that follow")
struct kvr_wire_accepted { KVR_FIELDS_ACCEPTED(KVR_FIELD) } KVR_PACKED;

/* Then n_words u64: bit b of word w is set if fragment first + 64 * w + b is missing. */
#define KVR_FIELDS_MISSING(F) \
	F(0, u8, kind, kinds, "of the message: 16, 24, 26 or 80") \
	F(1, u8, reserved0, zero, "0") \
	F(2, u16, n_words, dec, "words that follow, 1 or more") \
	F(4, u32, msg_seq, dec, "of the message") \
	F(8, u32, msg_len, dec, "of the message") \
	F(12, u32, unit, dec, "body bytes of every fragment but the last") \
	F(16, u32, first, dec, "number of the fragment of bit 0, a multiple of 64") \
	F(20, u32, reserved1, zero, "0")
struct kvr_wire_missing { KVR_FIELDS_MISSING(KVR_FIELD) } KVR_PACKED;

/* Then the text. The text, or all from `detail` on, may be missing: see PROTOCOL.md, section 12. */
#define KVR_FIELDS_REJECTED(F) \
	F(0, u16, code, codes, "below") \
	F(2, u8, retryable, dec, "0 or 1") \
	F(3, u8, kind, kinds, "kind of the rejected message") \
	F(4, u16, text_len, dec, "human-readable reason, UTF-8, 0..255") \
	F(6, u16, policy_class, dec, "QueueRejected: index of the class; else 0") \
	F(8, u64x4, detail, dec, "see below")
struct kvr_wire_rejected { KVR_FIELDS_REJECTED(KVR_FIELD) } KVR_PACKED;

/* A refused dispatch ends the request. */
#define KVR_FIELDS_DISPATCH_ACK(F) \
	F(0, u16, code, dec, "0 accepted, else rejected") \
	F(2, u16, reserved0, zero, "0") \
	F(4, u32, reserved1, zero, "0")
struct kvr_wire_dispatch_ack { KVR_FIELDS_DISPATCH_ACK(KVR_FIELD) } KVR_PACKED;

/* One item of the answer. Then data, padded to 8, and with FIN hints. */
#define KVR_FIELDS_RESPONSE(F) \
	F(0, u32, seq, dec, "number of the item") \
	F(4, u16, flags, bits, "below") \
	F(6, u16, status, dec, "engine-defined, 0 = fine") \
	F(8, u32, generated_tokens, dec, "generated so far, this item included") \
	F(12, u32, data_len, dec, "bytes of data") \
	F(16, u32, cached_tokens, dec, "prompt tokens actually found cached; 0xffffffff unknown") \
	F(20, u32, hints_len, dec, "bytes of hints after the data, a multiple of 8; 0 without FIN") \
	F(24, u64, reserved1, zero, "0")
struct kvr_wire_response { KVR_FIELDS_RESPONSE(KVR_FIELD) } KVR_PACKED;

/* Value of the hint TRACKER, written by the router into the last item. Times in microseconds. */
#define KVR_FIELDS_TRACKER(F) \
	F(0, u64, worker, hex, "worker of the answer") \
	F(8, u64, prefill_worker, hex, "of the prefill leg; 0 without one") \
	F(16, u32, dp_rank, dec, "") \
	F(20, u32, prefill_dp_rank, dec, "0xffffffff without one") \
	F(24, u32, overlap_blocks, dec, "as in ACCEPTED") \
	F(28, u32, prefill_overlap_blocks, dec, "likewise") \
	F(32, u32, required_blocks, dec, "likewise") \
	F(36, u32, cached_tokens, dec, "likewise: predicted. The item has the actual number") \
	F(40, u32, isl, dec, "tokens of the prompt that the engine sees") \
	F(44, u32, osl, dec, "tokens generated") \
	F(48, u32, queue_us, dec, "from the arrival of the ROUTE to the DISPATCH of the successful attempt") \
	F(52, u32, ttft_us, dec, "from the arrival to the first token") \
	F(56, u32, itl_us, dec, "mean time between tokens, if there are at least two") \
	F(60, u32, prefill_us, dec, "from the DISPATCH of the prefill leg to its end") \
	F(64, u32, transfer_us, dec, "from that end to the first token") \
	F(68, u32, reserved, zero, "0") \
	F(72, f64, hit_rate, dec, "overlap divided by `required_blocks`; with legs that of the prefill worker")
struct kvr_wire_tracker { KVR_FIELDS_TRACKER(KVR_FIELD) } KVR_PACKED;

/* Cumulative. */
#define KVR_FIELDS_RESPONSE_ACK(F) \
	F(0, u32, next_seq, dec, "all items below have been received") \
	F(4, u32, flags, bits, "below")
struct kvr_wire_response_ack { KVR_FIELDS_RESPONSE_ACK(KVR_FIELD) } KVR_PACKED;

/* Cumulative. With FIN, and of a booking, it is repeated until acknowledged. */
#define KVR_FIELDS_PROGRESS(F) \
	F(0, u32, seq, dec, "number of the report") \
	F(4, u16, flags, bits, "below") \
	F(6, u16, status, dec, "engine-defined") \
	F(8, u32, generated_tokens, dec, "generated so far") \
	F(12, u32, cached_tokens, dec, "as in RESPONSE")
struct kvr_wire_progress { KVR_FIELDS_PROGRESS(KVR_FIELD) } KVR_PACKED;

#define KVR_FIELDS_PROGRESS_ACK(F) \
	F(0, u32, next_seq, dec, "reports below have been received") \
	F(4, u32, reserved, zero, "0")
struct kvr_wire_progress_ack { KVR_FIELDS_PROGRESS_ACK(KVR_FIELD) } KVR_PACKED;

/* Repeated until ABORT_ACK or the FIN of the request. */
#define KVR_FIELDS_ABORT(F) \
	F(0, u16, code, codes, "reason: a code of section 12, 0 when the client cancelled") \
	F(2, u16, reserved0, zero, "0") \
	F(4, u32, reserved1, zero, "0")
struct kvr_wire_abort { KVR_FIELDS_ABORT(KVR_FIELD) } KVR_PACKED;

/* Then hints. */
#define KVR_FIELDS_HELLO(F) \
	F(0, u32, block_size, dec, "tokens a block; must equal the pool's") \
	F(4, u32, dp_start, dec, "first data-parallel rank") \
	F(8, u32, dp_size, dec, "number of ranks, 1 or more") \
	F(12, u32, max_num_batched_tokens, dec, "0 unknown") \
	F(16, u64, total_kv_blocks, dec, "per rank; 0 unknown") \
	F(24, u32, hints_len, dec, "bytes of hints") \
	F(28, u16, max_frame, dec, "largest UDP payload the agent takes") \
	F(30, u8, role, roles, "") \
	F(31, u8, flags, bits, "") \
	F(32, u64, boot, hex, "a random number of the agent's process, constant while it runs; 0: not reported") \
	F(40, u64, reserved, zero, "0")
struct kvr_wire_hello { KVR_FIELDS_HELLO(KVR_FIELD) } KVR_PACKED;

/* `epoch` of the header is the router's. */
#define KVR_FIELDS_WELCOME(F) \
	F(0, u16, pool, dec, "number of the pool") \
	F(2, u16, flags, bits, "0x0001 WARM") \
	F(4, u32, heartbeat_ms, dec, "interval of HEARTBEAT; not 0") \
	F(8, u32, dead_ms, dec, "the worker is lost after this silence") \
	F(12, u32, max_frame, dec, "largest UDP payload the router accepts") \
	F(16, u32, reserved1, zero, "0") \
	F(20, u32, reserved2, zero, "0")
struct kvr_wire_welcome { KVR_FIELDS_WELCOME(KVR_FIELD) } KVR_PACKED;

/* Then n_ranks entries. */
#define KVR_FIELDS_HEARTBEAT(F) \
	F(0, u32, n_ranks, dec, "entries that follow; may be 0") \
	F(4, u16, flags, bits, "below") \
	F(6, u16, wish, dec, "number of the drain request in `flags`; 0: none")
struct kvr_wire_heartbeat { KVR_FIELDS_HEARTBEAT(KVR_FIELD) } KVR_PACKED;

/* Entry of HEARTBEAT. */
#define KVR_FIELDS_RANK_LOAD(F) \
	F(0, u32, dp_rank, dec, "") \
	F(4, u32, active_requests, dec, "as seen by the engine") \
	F(8, u64, kv_used_blocks, dec, "2^64 - 1: not reported") \
	F(16, u64, next_event_id, dec, "number of the rank's next KV event") \
	F(24, u32, events_unread, dec, "events of the engine that the agent could not read; 2^32 - 1: this number or more") \
	F(28, u16, event_block_size, dec, "tokens a block in the engine's events; 0: not known yet") \
	F(30, u8, event_form, event_forms, "form of a block's tokens in these events") \
	F(31, u8, canaries_missed, dec, "consecutive canary prompts whose events did not match (section 13); 255: this number or more")
struct kvr_wire_rank_load { KVR_FIELDS_RANK_LOAD(KVR_FIELD) } KVR_PACKED;

#define KVR_FIELDS_HEARTBEAT_ACK(F) \
	F(0, u16, state, worker_states, "below") \
	F(2, u16, reserved0, zero, "0") \
	F(4, u32, bookings, dec, "requests booked on this worker now")
struct kvr_wire_heartbeat_ack { KVR_FIELDS_HEARTBEAT_ACK(KVR_FIELD) } KVR_PACKED;

/* Then n handles of requests that run at this worker. */
#define KVR_FIELDS_ALIVE(F) \
	F(0, u32, n, dec, "handles that follow: 1 to 64") \
	F(4, u32, reserved, zero, "0")
struct kvr_wire_alive { KVR_FIELDS_ALIVE(KVR_FIELD) } KVR_PACKED;

/* Then n_events events. The events of a rank are numbered from 0 without gaps in each incarnation. */
#define KVR_FIELDS_KV_EVENTS(F) \
	F(0, u64, first_event_id, dec, "number of the first event, or position in a dump") \
	F(8, u64, resume_event_id, dec, "DUMP_END: next live event; else 0") \
	F(16, u32, dp_rank, dec, "") \
	F(20, u16, n_events, dec, "") \
	F(22, u16, flags, bits, "0, or those of a dump") \
	F(24, u64, reserved, zero, "0")
struct kvr_wire_kv_events { KVR_FIELDS_KV_EVENTS(KVR_FIELD) } KVR_PACKED;

/* Then n_blocks sequence hashes. */
#define KVR_FIELDS_KV_EVENT(F) \
	F(0, u8, type, kv_types, "below") \
	F(1, u8, tier, tiers, "below") \
	F(2, u16, flags, bits, "0x0001 PARENT; only with STORED") \
	F(4, u32, n_blocks, dec, "1 or more; 0 when CLEARED") \
	F(8, u64, parent, hex, "SH before the first block; 0 without PARENT")
struct kvr_wire_kv_event { KVR_FIELDS_KV_EVENT(KVR_FIELD) } KVR_PACKED;

/* Cumulative per rank. */
#define KVR_FIELDS_KV_ACK(F) \
	F(0, u64, next_event_id, dec, "all below are applied") \
	F(8, u64, next_dump_pos, dec, "first missing position of the dump; 0 outside dumps") \
	F(16, u32, dp_rank, dec, "") \
	F(20, u16, code, kv_codes, "below") \
	F(22, u16, reserved, zero, "0")
struct kvr_wire_kv_ack { KVR_FIELDS_KV_ACK(KVR_FIELD) } KVR_PACKED;

/* Then hints: POOL filters. */
#define KVR_FIELDS_CONNECT(F) \
	F(0, u32, hints_len, dec, "bytes of hints") \
	F(4, u16, max_frame, dec, "largest UDP payload the client takes, 560..8952") \
	F(6, u16, reserved, zero, "0")
struct kvr_wire_connect { KVR_FIELDS_CONNECT(KVR_FIELD) } KVR_PACKED;

/* Then n_pools entries, then their names, each padded to 8. */
#define KVR_FIELDS_CONNECTED(F) \
	F(0, u32, n_pools, dec, "entries that follow") \
	F(4, u32, max_frame, dec, "largest UDP payload the router accepts") \
	F(8, u32, max_tokens, dec, "limits of a request") \
	F(12, u32, max_hashes, dec, "") \
	F(16, u32, max_body, dec, "") \
	F(20, u32, total_pools, dec, "pools that match; above `n_pools` when the frame was too small") \
	F(24, u32, max_message, dec, "largest body of a ROUTE or POTENTIAL_LOADS, in frames of the router's `max_frame`") \
	F(28, u32, max_frames, dec, "maximum frames of one such message") \
	F(32, u64, cookie, hex, "for ROUTE and POTENTIAL_LOADS (section 15); 0: not required")
struct kvr_wire_connected { KVR_FIELDS_CONNECTED(KVR_FIELD) } KVR_PACKED;

/* Entry of CONNECTED. */
#define KVR_FIELDS_POOL(F) \
	F(0, u16, pool, dec, "number for ROUTE") \
	F(2, u8, role, roles, "0 aggregated, 1 prefill, 2 decode") \
	F(3, u8, flags, bits, "below") \
	F(4, u32, block_size, dec, "tokens a block, not 0") \
	F(8, u32, ranks, dec, "ranks known now") \
	F(12, u16, name_len, dec, "1..63") \
	F(14, u16, reserved, zero, "0")
struct kvr_wire_pool { KVR_FIELDS_POOL(KVR_FIELD) } KVR_PACKED;

/* SESSION_OPEN, _CLOSE, _RELEASE. Then the id, padded to 8. */
#define KVR_FIELDS_SESSION(F) \
	F(0, u32, timeout_s, dec, "OPEN: 1..31,536,030; CLOSE and RELEASE: 0") \
	F(4, u16, id_len, dec, "1..256") \
	F(6, u16, pool, dec, "number of the pool")
struct kvr_wire_session { KVR_FIELDS_SESSION(KVR_FIELD) } KVR_PACKED;

/* SESSION_OPENED, _CLOSED, _RELEASED. */
#define KVR_FIELDS_SESSION_STATUS(F) \
	F(0, u16, code, codes, "0 done; RELEASED: a code of section 12; OPENED, CLOSED: the engine's own number") \
	F(2, u16, reserved0, zero, "0") \
	F(4, u32, reserved1, zero, "0")
struct kvr_wire_session_status { KVR_FIELDS_SESSION_STATUS(KVR_FIELD) } KVR_PACKED;

/* Answer to POTENTIAL_LOADS. Then n_ranks entries. */
#define KVR_FIELDS_LOADS(F) \
	F(0, u32, n_ranks, dec, "entries that follow") \
	F(4, u32, queue_len, dec, "requests waiting in the pool") \
	F(8, u64, pending_tokens, dec, "their prompt tokens")
struct kvr_wire_loads { KVR_FIELDS_LOADS(KVR_FIELD) } KVR_PACKED;

/* Entry of LOADS: the rank if the request went there. */
#define KVR_FIELDS_RANK_POTENTIAL(F) \
	F(0, u64, worker, hex, "") \
	F(8, u32, dp_rank, dec, "") \
	F(12, u32, active_requests, dec, "now") \
	F(16, u64, prefill_tokens, dec, "prompt tokens to compute there, this request included") \
	F(24, u64, decode_blocks, dec, "blocks in use there, this request included") \
	F(32, u32, overlap_blocks, dec, "as in ACCEPTED, if the request went there") \
	F(36, u32, cached_tokens, dec, "likewise")
struct kvr_wire_rank_potential { KVR_FIELDS_RANK_POTENTIAL(KVR_FIELD) } KVR_PACKED;

/* S(name, NAME, size): all structs above. */
#define KVR_STRUCTS(S) \
	S(hdr, HDR, 48) \
	S(request, REQUEST, 88) \
	S(accepted, ACCEPTED, 56) \
	S(missing, MISSING, 24) \
	S(rejected, REJECTED, 40) \
	S(dispatch_ack, DISPATCH_ACK, 8) \
	S(response, RESPONSE, 32) \
	S(tracker, TRACKER, 80) \
	S(response_ack, RESPONSE_ACK, 8) \
	S(progress, PROGRESS, 16) \
	S(progress_ack, PROGRESS_ACK, 8) \
	S(abort, ABORT, 8) \
	S(hello, HELLO, 48) \
	S(welcome, WELCOME, 24) \
	S(heartbeat, HEARTBEAT, 8) \
	S(rank_load, RANK_LOAD, 32) \
	S(heartbeat_ack, HEARTBEAT_ACK, 8) \
	S(alive, ALIVE, 8) \
	S(kv_events, KV_EVENTS, 32) \
	S(kv_event, KV_EVENT, 16) \
	S(kv_ack, KV_ACK, 24) \
	S(connect, CONNECT, 8) \
	S(connected, CONNECTED, 40) \
	S(pool, POOL, 16) \
	S(session, SESSION, 8) \
	S(session_status, SESSION_STATUS, 8) \
	S(loads, LOADS, 16) \
	S(rank_potential, RANK_POTENTIAL, 40)

/* ---- kinds of messages ---------------------------------------------------------------------- */

/* X(NAME, number, from, to, struct of the fixed part or `none`, bytes that follow: least, most,
 * frames, rejected): C client, A agent, R router. MANY: the message may be cut into fragments.
 * YES: an invalid frame of this kind is answered with REJECTED. */
#define KVR_KINDS(X) \
	X(CONNECT, 1, C, R, connect, 0, REST, ONE, YES) \
	X(CONNECTED, 2, R, C, connected, 0, REST, ONE, NO) \
	X(ROUTE, 16, C, R, request, 0, KVR_WIRE_MAX_PARTS, MANY, YES) \
	X(ACCEPTED, 17, R, C, accepted, 0, KVR_WIRE_MAX_ADDRESSES, ONE, NO) \
	X(REJECTED, 18, R, C | A, rejected, -32, 256, ONE, NO) \
	X(CANCEL, 19, C, R, none, 0, 0, ONE, YES) \
	X(CANCELLED, 20, R, C, none, 0, 0, ONE, NO) \
	X(PROBE, 21, C, R, none, 0, 8, ONE, YES) \
	X(MISSING, 22, C | A | R, C | A | R, missing, 8, REST, ONE, NO) \
	X(DISPATCH, 24, R, A, request, 0, KVR_WIRE_MAX_PARTS + KVR_WIRE_MAX_RESULT, MANY, NO) \
	X(DISPATCH_ACK, 25, A, R, dispatch_ack, 0, 0, ONE, NO) \
	X(RESPONSE, 26, A | R, C | R, response, 0, KVR_WIRE_MAX_RESULT + KVR_WIRE_SAID_MOST, MANY, YES) \
	X(RESPONSE_ACK, 27, C | R, A | R, response_ack, 0, 0, ONE, NO) \
	X(PROGRESS, 28, C | A, R, progress, 0, 0, ONE, YES) \
	X(PROGRESS_ACK, 29, R, C | A, progress_ack, 0, 0, ONE, NO) \
	X(ABORT, 30, R, A, abort, 0, 0, ONE, NO) \
	X(ABORT_ACK, 31, A, R, none, 0, 0, ONE, NO) \
	X(HELLO, 32, A, R, hello, 0, REST, ONE, YES) \
	X(WELCOME, 33, R, A, welcome, 0, 0, ONE, NO) \
	X(HEARTBEAT, 34, A, R, heartbeat, 0, REST, ONE, YES) \
	X(HEARTBEAT_ACK, 35, R, A, heartbeat_ack, 0, 0, ONE, NO) \
	X(GOODBYE, 36, A, R, none, 0, 0, ONE, YES) \
	X(GOODBYE_ACK, 37, R, A, none, 0, 0, ONE, NO) \
	X(ALIVE, 38, A, R, alive, 8, 8 * KVR_WIRE_ALIVE_MOST, ONE, NO) \
	X(KV_EVENTS, 48, A, R, kv_events, 0, REST, ONE, YES) \
	X(KV_ACK, 49, R, A, kv_ack, 0, 0, ONE, NO) \
	X(SESSION_OPEN, 64, R, A, session, 8, KVR_HINT_MAX_SESSION, ONE, NO) \
	X(SESSION_OPENED, 65, A, R, session_status, 0, 0, ONE, NO) \
	X(SESSION_CLOSE, 66, R, A, session, 8, KVR_HINT_MAX_SESSION, ONE, NO) \
	X(SESSION_CLOSED, 67, A, R, session_status, 0, 0, ONE, NO) \
	X(SESSION_RELEASE, 68, C, R, session, 8, KVR_HINT_MAX_SESSION, ONE, YES) \
	X(SESSION_RELEASED, 69, R, C, session_status, 0, 0, ONE, NO) \
	X(POTENTIAL_LOADS, 80, C, R, request, 0, KVR_WIRE_MAX_PARTS, MANY, YES) \
	X(LOADS, 81, R, C, loads, 0, KVR_WIRE_MAX_MESSAGE - sizeof(struct kvr_wire_loads), MANY, NO)

#define KVR_KIND(name, number, ...) KVR_##name = number,
enum kvr_wire_kind { KVR_KINDS(KVR_KIND) KVR_WIRE_KIND_MAX };

/* ---- hints ---------------------------------------------------------------------------------- */

/*
 * X(NAME, type, messages, FORMAT, least, most, entries, member, "http-header", "json_member", "meaning")
 *
 * A hint is {u16 type, u16 len, len bytes, zero padding to 8}. Receivers reject an unknown type with
 * the bit 0x8000 (critical), and skip any other unknown type. `entries` above 1: the hint may occur
 * `entries` times. `least` and `most` bound the bytes of a string or opaque value, and the entries of a list.
 * The value is stored in struct kvr_hints as `member` (`n_member` counts entries). HTTP clients give
 * it as header "X-KVRoute-<http-header>" or as member of nvext; scenarios as member of `routing`.
 * "" : not available there, or read by code of its own.
 *
 * Formats: U64, U32, I32, F64 (finite), TEXT (UTF-8), BYTES (opaque), TEXTS (one string per hint),
 * U64S and RANKS (lists in one hint). The other formats are used once and named like their hint.
 */

/* ROUTE, POTENTIAL_LOADS and DISPATCH: what a client asks for. */
#define KVR_REQUEST_HINTS(X) \
	X(LORA, 0x0001, REQUEST, TEXT, 0, 255, 1, lora, "lora", "lora_name", "adapter; empty = absent") \
	X(NAMESPACE, 0x0002, REQUEST, TEXT, 0, 255, 1, cache_namespace, "cache-namespace", "cache_namespace", "namespace of the cache; empty = absent") \
	X(BACKEND, 0x8003, REQUEST, U64, 0, 0, 1, backend_worker, "backend-instance-id", "backend_instance_id", "worker to use, any phase") \
	X(PREFILL_WORKER, 0x8004, REQUEST, U64, 0, 0, 1, prefill_worker, "prefill-worker", "prefill_worker_id", "worker to use in the prefill phase; in a decode leg: the worker that computed the prompt") \
	X(DECODE_WORKER, 0x8005, REQUEST, U64, 0, 0, 1, decode_worker, "decode-worker", "decode_worker_id", "worker to use in the decode phase") \
	X(DP_RANK, 0x8006, REQUEST, U32, 0, 0, 1, dp_rank, "dp-rank", "dp_rank", "rank of the pinned worker; ignored when none is pinned") \
	X(PREFILL_DP_RANK, 0x8007, REQUEST, U32, 0, 0, 1, prefill_dp_rank, "prefill-dp-rank", "prefill_dp_rank", "rank of the pinned prefill worker") \
	X(ALLOWED_WORKERS, 0x8008, REQUEST, U64S, 0, 8191, 1, allowed, "allowed-workers", "allowed_worker_ids", "only these workers may be chosen; an empty list allows none") \
	X(REQUIRED_TAINT, 0x8009, REQUEST, TEXTS, 1, 255, 16, required, "required-taints", "required_taints", "the worker must have this taint") \
	X(PREFERRED_TAINT, 0x000a, REQUEST, PREFERRED, 1, 255, 16, preferred, "preferred-taints", "preferred_taints", "f64 weight, string: prefer workers with this taint; a negative weight repels") \
	X(PRIORITY_JUMP, 0x000b, REQUEST, F64, 0, 0, 1, priority_jump, "priority-jump", "priority_jump", "seconds by which the request counts as older") \
	X(STRICT_PRIORITY, 0x000c, REQUEST, U32, 0, 0, 1, strict_priority, "strict-priority", "strict_priority", "level; a higher one is served first") \
	X(PRIORITY, 0x000d, REQUEST, I32, 0, 0, 1, priority, "priority", "priority", "for the engine") \
	X(POLICY_CLASS, 0x000e, REQUEST, TEXT, 1, 255, 1, policy, "policy-class", "policy_class", "a class of the pool; an unknown name selects the pool's first class") \
	X(OVERRIDE, 0x800f, REQUEST, OVERRIDE, 0, 0, 7, overrides, "", "", "u32 field, u32 0, f64 value; each field once") \
	X(SESSION, 0x0010, REQUEST, SESSION, 1, 256, 1, session, "", "", "u8 action, u8[3] 0, u32 timeout in s (1..31,536,000; 0xffffffff: not given, 300), string: session id. Illegal values are InvalidSession") \
	X(MM, 0x0011, REQUEST, MM, 0, 64, 65536, mm, "", "", "u32 block, u32 n, u64[n]: multimodal hashes of that block; blocks ascending") \
	X(SHARED_HITS, 0x0012, REQUEST, RANGES, 0, 0, 32, shared, "", "", "u32 start, u32 end: blocks [start, end) are in a shared cache; ascending, disjoint, not empty") \
	X(TRACE, 0x0015, REQUEST, BYTES, 0, 64, 1, trace, "", "", "trace context, passed on") \
	X(BODY, 0x8016, REQUEST, BODY, 0, 0, 1, body, "", "", "with AWAY: u64 bytes of the body, 1 to 67,125,248, u8[16] token, random, unique to this request (section 19)") \
	X(FAILED_AT, 0x0017, REQUEST, RANKS, 1, 4, 1, failed_at, "", "", "ranks where this request failed (0xffffffff: all ranks of the worker)")

/* DISPATCH: what the router adds. A ROUTE with one of these is rejected (BadHint). */
#define KVR_DISPATCH_HINTS(X) \
	X(BOOTSTRAP, 0x0013, DISPATCH, BOOTSTRAP, 1, 255, 1, bootstrap, "", "", "u64 room, u16 port, u8[6] 0, string: host") \
	X(PREFILL_RESULT, 0x0014, DISPATCH, BYTES, 0, 65535, 1, prefill_result, "", "", "the transfer result of section 7.5")

/* ACCEPTED: addresses of the workers. */
#define KVR_ACCEPTED_HINTS(X) \
	X(ENGINE_ADDR, 0x0025, ADDRESS, TEXT, 1, 100, 1, engine_addr, "", "", "\"host:port\": the engine's HTTP address, for clients that contact engines directly (section 6.7)") \
	X(PREFILL_ENGINE_ADDR, 0x0026, ACCEPTED, TEXT, 1, 100, 1, prefill_engine_addr, "", "", "the same of `prefill_worker`") \
	X(BODY_ADDR, 0x0027, ADDRESS, TEXT, 1, 100, 1, body_addr, "", "", "\"address:port\", numeric: where the agent accepts bodies (section 19)") \
	X(PREFILL_BODY_ADDR, 0x0028, ACCEPTED, TEXT, 1, 100, 1, prefill_body_addr, "", "", "the same of `prefill_worker`")

/* RESPONSE, the last item. The second and third: DISPATCH of a decode leg, too. */
#define KVR_ITEM_HINTS(X) \
	X(TRACKER, 0x0029, ITEM, TRACKER, 0, 0, 1, tracker, "", "", "section 6.4") \
	X(PROMPT_DETAILS, 0x002a, ITEM, BYTES, 0, 512, 1, prompt_details, "", "", "details of the prompt, from the engine") \
	X(TRACE_LINK, 0x002b, ITEM, BYTES, 0, 64, 1, trace_link, "", "", "link to the engine's trace") \
	X(RANK, 0x002c, ITEM, RANKS, 1, 1, 1, failed_rank, "", "", "with FAILED or REFUSED: the rank that failed")

/* HELLO. POOL: CONNECT, too. */
#define KVR_WORKER_HINTS(X) \
	X(POOL, 0x8020, POOL, TEXTS, 1, 63, 16, pools, "", "", "pool name; exactly one in HELLO") \
	X(TAINT, 0x0021, HELLO, TEXTS, 1, 255, 16, taints, "", "", "a property of the worker") \
	X(TOPOLOGY, 0x0022, HELLO, PAIRS, 3, 255, 8, topology, "", "", "\"key=value\", neither part empty") \
	X(KV_TRANSFER, 0x0023, HELLO, KV_TRANSFER, 1, 255, 1, kv_transfer, "", "", "u8 enforcement (0 none, 1 preferred, 2 required), u8[7] 0, f64 weight, string: domain") \
	X(BOOTSTRAP_ADDR, 0x0024, HELLO, BOOTSTRAP_ADDR, 1, 255, 1, bootstrap_addr, "", "", "u16 port, u8[6] 0, string: host")

#define KVR_HINTS(X) KVR_REQUEST_HINTS(X) KVR_DISPATCH_HINTS(X) KVR_ACCEPTED_HINTS(X) KVR_ITEM_HINTS(X) KVR_WORKER_HINTS(X)

#define KVR_HINT_CRITICAL 0x8000u
#define KVR_HINT(name, type, ...) KVR_HINT_##name = type,
enum kvr_wire_hint { KVR_HINT_PAD = 0, KVR_HINTS(KVR_HINT) };

/* Bounds as constants: KVR_MOST_<NAME> and KVR_ENTRIES_<NAME>. */
#define KVR_HINT_MOST(name, type, in, format, least, most, entries, ...) KVR_MOST_##name = most,
#define KVR_HINT_ENTRIES(name, type, in, format, least, most, entries, ...) KVR_ENTRIES_##name = entries,
enum kvr_hint_most { KVR_HINTS(KVR_HINT_MOST) };
enum kvr_hint_entries { KVR_HINTS(KVR_HINT_ENTRIES) };

/* Entry of FAILED_AT, and value of RANK. */
struct kvr_wire_rank {
	uint64_t worker;
	uint32_t dp_rank; /* UINT32_MAX: all ranks of the worker */
	uint32_t reserved;
} KVR_PACKED;

/* Head of a hint. */
struct kvr_wire_tlv {
	uint16_t type;
	uint16_t len;
} KVR_PACKED;

/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
