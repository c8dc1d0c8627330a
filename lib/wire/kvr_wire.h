/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_H
#define KVR_WIRE_H

/**
 * @file
 * The kvroute protocol, version 1: layout of every frame and message. PROTOCOL.md says the same
 * in prose with examples; the two must agree to the byte.
 *
 * A *message* (kind + body) travels in one or more *frames*; a frame is one UDP datagram: a fixed
 * 48-byte header and a slice of the message body. Everything is little-endian, structs have no
 * hidden padding, arrays start at multiples of 8 from the start of the body. Structs here are
 * read in place from packet memory, which is not aligned: use them only through pointers to
 * these types (they are packed), never through pointers to their members' natural types.
 *
 * Identity of a request is (source, id), chosen by the client and carried unchanged by every
 * message about it in either direction. `handle` is the router's own name of a booked request:
 * it comes with DISPATCH and ACCEPTED and is echoed by everything sent about it later, so that
 * any frame of a relayed stream is switched by one array access. Messages about workers carry
 * the worker id in `source` and a sender-chosen number in `id`.
 *
 * A ROUTE and the DISPATCH made of it have the same size and layout: the router rewrites the
 * headers and the router-owned fields in place and forwards the frames without a copy.
 *
 * Here stand numbers, limits and the header of a frame; the bodies are in kvr_wire_request.h (all
 * about a request, and what else clients ask), kvr_wire_worker.h (what agents say about workers)
 * and kvr_wire_hints.h. Including this file includes them.
 */

#include <stdint.h>

#include <rte_common.h>

#include "kvr_types.h"
#include "kvr_wire_hints.h"
#include "kvr_wire_request.h"
#include "kvr_wire_worker.h"

#define KVR_WIRE_MAGIC	 0x564bu /* bytes 'K','V' */
#define KVR_WIRE_VERSION 1
#define KVR_WIRE_PORT	 7650 /* default UDP port of the router */

#define KVR_WIRE_MAX_TOKENS 1048576u
#define KVR_WIRE_MAX_HASHES 65536u
#define KVR_WIRE_MAX_HINTS  65536u
#define KVR_WIRE_MAX_BODY   1048576u
/** Largest message body: fixed part, hashes, tokens, hints and body, each padded to 8. */
#define KVR_WIRE_MAX_MESSAGE                                                                       \
	(sizeof(struct kvr_wire_request) + KVR_WIRE_MAX_HASHES * 8u + KVR_WIRE_MAX_TOKENS * 4u +   \
	 KVR_WIRE_MAX_HINTS + KVR_WIRE_MAX_BODY)
/** The same of a DISPATCH, which may carry a transfer result besides. */
#define KVR_WIRE_MAX_DISPATCH (KVR_WIRE_MAX_MESSAGE + KVR_WIRE_MAX_RESULT)
/** Data of an item of an answer, and of the transfer result that a prefill leg ends with. */
#define KVR_WIRE_MAX_ITEM   65536u
#define KVR_WIRE_MAX_RESULT 1048576u
/** Largest body of a RESPONSE to a client, and of any. */
#define KVR_WIRE_ITEM_MOST                                                                         \
	(sizeof(struct kvr_wire_response) + KVR_WIRE_MAX_ITEM + KVR_WIRE_SAID_MOST)
#define KVR_WIRE_MAX_RESPONSE                                                                      \
	(sizeof(struct kvr_wire_response) + KVR_WIRE_MAX_RESULT + KVR_WIRE_SAID_MOST)
/** Smallest and largest UDP payload of a frame, header included. */
#define KVR_WIRE_MIN_FRAME 48u
#define KVR_WIRE_MAX_FRAME 8952u /* 9,000 byte IP packets less IPv6 40 and UDP 8 */
#define KVR_WIRE_DEF_FRAME 1432u /* 1,500 byte IPv6 packets less a VLAN tag's worth of slack */

/** Message kinds. Numbers are for ever. */
enum kvr_wire_kind {
	KVR_CONNECT = 1,	 /* client -> router: pools and limits, please */
	KVR_CONNECTED = 2,	 /* router -> client */
	KVR_ROUTE = 16,		 /* client -> router: struct kvr_wire_request */
	KVR_ACCEPTED = 17,	 /* router -> client: struct kvr_wire_accepted */
	KVR_REJECTED = 18,	 /* router -> anyone: struct kvr_wire_rejected */
	KVR_CANCEL = 19,	 /* client -> router: empty */
	KVR_CANCELLED = 20,	 /* router -> client: empty; sent for unknown ids too */
	KVR_PROBE = 21,		 /* client -> router: 8 zero bytes; answered ACCEPTED or REJECTED */
	KVR_MISSING = 22,	 /* receiver of a message in fragments -> its sender */
	KVR_DISPATCH = 24,	 /* router -> agent: struct kvr_wire_request */
	KVR_DISPATCH_ACK = 25,	 /* agent -> router: struct kvr_wire_dispatch_ack */
	KVR_RESPONSE = 26,	 /* agent -> client (relayed or direct): struct kvr_wire_response */
	KVR_RESPONSE_ACK = 27,	 /* client -> agent (relayed or direct) */
	KVR_PROGRESS = 28,	 /* agent -> router, direct path only: struct kvr_wire_progress */
	KVR_PROGRESS_ACK = 29,	 /* router -> agent: struct kvr_wire_progress_ack */
	KVR_ABORT = 30,		 /* router -> agent: stop this request: struct kvr_wire_abort */
	KVR_ABORT_ACK = 31,	 /* agent -> router: empty */
	KVR_HELLO = 32,		 /* agent -> router: struct kvr_wire_hello */
	KVR_WELCOME = 33,	 /* router -> agent: struct kvr_wire_welcome */
	KVR_HEARTBEAT = 34,	 /* agent -> router: struct kvr_wire_heartbeat */
	KVR_HEARTBEAT_ACK = 35,	 /* router -> agent: struct kvr_wire_heartbeat_ack */
	KVR_GOODBYE = 36,	 /* agent -> router: empty */
	KVR_GOODBYE_ACK = 37,	 /* router -> agent: empty */
	KVR_ALIVE = 38,		 /* agent -> router: struct kvr_wire_alive and its handles */
	KVR_KV_EVENTS = 48,	 /* agent -> router: struct kvr_wire_kv_events */
	KVR_KV_ACK = 49,	 /* router -> agent: struct kvr_wire_kv_ack */
	KVR_SESSION_OPEN = 64,	 /* router -> agent: struct kvr_wire_session */
	KVR_SESSION_OPENED = 65, /* agent -> router: struct kvr_wire_session_status */
	KVR_SESSION_CLOSE = 66,	 /* router -> agent: struct kvr_wire_session */
	KVR_SESSION_CLOSED = 67, /* agent -> router: struct kvr_wire_session_status */
	KVR_SESSION_RELEASE = 68,  /* client -> router: struct kvr_wire_session */
	KVR_SESSION_RELEASED = 69, /* router -> client: struct kvr_wire_session_status */
	KVR_POTENTIAL_LOADS = 80,  /* client -> router: struct kvr_wire_request */
	KVR_LOADS = 81,		   /* router -> client: struct kvr_wire_loads and its entries */
	KVR_WIRE_KIND_MAX = 82,
};

/** Header of every frame: 48 bytes. */
struct kvr_wire_hdr {
	uint16_t magic;	   /* KVR_WIRE_MAGIC */
	uint8_t version;   /* KVR_WIRE_VERSION */
	uint8_t kind;	   /* enum kvr_wire_kind */
	uint16_t flags;	   /* KVR_WIRE_F_*; unknown bits must be 0 */
	uint16_t frag_len; /* body bytes in this frame: UDP payload = 48 + frag_len [+ trailer] */
	uint64_t source;   /* client (random 64 bits per client instance) or worker id */
	uint64_t id;	   /* request id of that client, or a number the sender chose */
	uint64_t handle;   /* router's name of the request, 0 = none */
	uint32_t msg_len;  /* body bytes of the whole message */
	uint32_t frag_off; /* first body byte carried here; a multiple of 8 */
	uint32_t epoch;	   /* epoch of the sending process (changes at every start, never 0) */
	uint32_t msg_seq;  /* rises with every message from this source that is not a repeat of
			    * the same bytes; together with (source, kind, id, handle) it names the
			    * message that fragments belong to */
} __rte_packed;

#define KVR_WIRE_F_AUTH	 0x0001u /* (later) a 32-byte authentication trailer follows */
#define KVR_WIRE_F_KNOWN 0x0000u

#define KVR_NONE32 UINT32_MAX /* "not given" of 32-bit fields */

#endif
