/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_H
#define KVR_WIRE_H

/**
 * @file
 * Limits and times of the protocol. protocol.h has its kinds, fields, flags, hints and codes;
 * PROTOCOL.md has the rules and examples.
 *
 * A *message* (kind + body) travels in one or more *frames*; a frame is one UDP datagram: a fixed
 * 48-byte header and a slice of the message body.
 *
 * Identity of a request is (source, id), chosen by the client and carried unchanged by every
 * message about it in either direction. `handle` is the router's own name of a booked request:
 * it comes with DISPATCH and ACCEPTED and is echoed in all later messages about the request, so
 * that any frame of a relayed stream is switched by one array access. Messages about workers carry
 * the worker id in `source` and a sender-chosen number in `id`.
 *
 * A ROUTE and the DISPATCH made of it have the same size and layout: the router rewrites the
 * headers and the router-owned fields in place and forwards the frames without a copy.
 */

#include <stdint.h>

#include "kvr_types.h"
#include "protocol.h"

#define KVR_WIRE_MAGIC	 0x564bu /* bytes 'K','V' */
#define KVR_WIRE_VERSION 1
#define KVR_WIRE_PORT	 7650 /* default UDP port of the router */

/** "Not given" of 32-bit fields. */
#define KVR_NONE32 UINT32_MAX

/** Flags of a frame: none yet. */
#define KVR_WIRE_F_KNOWN 0x0000u

/* ---- sizes of frames ---- */

/** Smallest and largest UDP payload of a frame, header included. */
#define KVR_WIRE_MIN_FRAME 48u
#define KVR_WIRE_MAX_FRAME 8952u /* 9,000 byte IP packets less IPv6 40 and UDP 8 */
#define KVR_WIRE_DEF_FRAME 1432u /* 1,500 byte IPv6 packets less a VLAN tag's worth of slack */

/* ---- sizes of messages, bytes ---- */

#define KVR_WIRE_MAX_TOKENS 1048576u
#define KVR_WIRE_MAX_HASHES 65536u
#define KVR_WIRE_MAX_HINTS  65536u
#define KVR_WIRE_MAX_BODY   1048576u
/** Variable parts of a ROUTE: hashes, tokens, hints and body. */
#define KVR_WIRE_MAX_PARTS                                                                         \
	(KVR_WIRE_MAX_HASHES * 8u + KVR_WIRE_MAX_TOKENS * 4u + KVR_WIRE_MAX_HINTS +                \
	 KVR_WIRE_MAX_BODY)
/** Transfer result that a prefill leg ends with, and that the DISPATCH of a decode leg carries. */
#define KVR_WIRE_MAX_RESULT 1048576u
/** Largest message body. */
#define KVR_WIRE_MAX_MESSAGE  (sizeof(struct kvr_wire_request) + KVR_WIRE_MAX_PARTS)
#define KVR_WIRE_MAX_DISPATCH (KVR_WIRE_MAX_MESSAGE + KVR_WIRE_MAX_RESULT)
/** Data of an item of an answer, and hints of the agent in the last item. */
#define KVR_WIRE_MAX_ITEM  65536u
#define KVR_WIRE_SAID_MOST 592u
/** Largest body of a RESPONSE to a client, and of any RESPONSE. */
#define KVR_WIRE_ITEM_MOST                                                                         \
	(sizeof(struct kvr_wire_response) + KVR_WIRE_MAX_ITEM + KVR_WIRE_SAID_MOST)
#define KVR_WIRE_MAX_RESPONSE                                                                      \
	(sizeof(struct kvr_wire_response) + KVR_WIRE_MAX_RESULT + KVR_WIRE_SAID_MOST)
/** Hints of ACCEPTED. */
#define KVR_WIRE_MAX_ADDRESSES 208u
/** A ROUTE with BOOK or AWAY has at least as many bytes as its ACCEPTED may have. */
#define KVR_WIRE_ASKING_LEAST (sizeof(struct kvr_wire_accepted) + KVR_WIRE_MAX_ADDRESSES)
/** REJECTED to an address that may be forged. */
#define KVR_WIRE_REJECTED_LEAST 8u
/** Largest body that is given to the agent itself: 64 MiB, and the head of an HTTP message. */
#define KVR_WIRE_MAX_AWAY (UINT64_C(67108864) + 16384u)
/** One-time token of such a body. */
#define KVR_WIRE_TOKEN 16u
/** Hint TRACKER with its head; the client_frame of agents is smaller by this amount. */
#define KVR_WIRE_TRACKER_ROOM 88u

/* ---- counts ---- */

/** Handles of an ALIVE. */
#define KVR_WIRE_ALIVE_MOST 64u
/** Frames of items that an agent sends to an unproven address before the client answers. */
#define KVR_WIRE_UNPROVEN_ITEMS 3u
/** DISPATCH_ACK, REJECTED DispatchFailed: this agent accepts no bodies. */
#define KVR_WIRE_NO_BODIES 2u

/** Flags of legs. */
#define KVR_REQ_F_LEGS (KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_DECODE_LEG)

/* ---- times ---- */

/*
 * How long each party remembers a request. A client that receives nothing asks at least every 2 s
 * and gives up after CLIENT_SILENCE_S. An agent keeps unacknowledged items, and repeats them at
 * least every second, until the last question of the client has been answered. A router relays as
 * long as an agent may repeat.
 */
#define KVR_WIRE_CLIENT_SILENCE_S 15u
#define KVR_WIRE_ITEMS_KEPT_S	  (KVR_WIRE_CLIENT_SILENCE_S + 2u)
#define KVR_WIRE_LINGER_S	  (KVR_WIRE_ITEMS_KEPT_S + 1u)

/** Each active request is in an ALIVE at least this often. */
#define KVR_WIRE_ALIVE_S 30u

#define KVR_WIRE_SESSION_DEF_S	 300u	   /* idle time of a session without timeout */
#define KVR_WIRE_SESSION_MAX_S	 31536000u /* longest idle time: 365 days */
#define KVR_WIRE_SESSION_GRACE_S 30u	   /* the worker keeps a session this much longer */

/* ---- bounds of hints that more than one file needs ---- */

#define KVR_HINT_MAX_NAME      ((uint32_t)KVR_MOST_LORA) /* also of namespace, taint, class and host */
#define KVR_HINT_MAX_POOL      ((uint32_t)KVR_MOST_POOL)
#define KVR_HINT_MAX_SESSION   ((uint32_t)KVR_MOST_SESSION)
#define KVR_HINT_MAX_TRACE     ((uint32_t)KVR_MOST_TRACE)
#define KVR_HINT_MAX_DETAILS   ((uint32_t)KVR_MOST_PROMPT_DETAILS)
#define KVR_HINT_MAX_ADDR      ((uint32_t)KVR_MOST_ENGINE_ADDR)
#define KVR_HINT_MAX_MM	       ((uint32_t)KVR_MOST_MM)	      /* hashes of one block */
#define KVR_HINT_MAX_FAILED_AT ((uint32_t)KVR_MOST_FAILED_AT) /* ranks */
#define KVR_HINTS_MAX_TAINTS   ((uint32_t)KVR_ENTRIES_TAINT)  /* also of required and preferred */
#define KVR_HINTS_MAX_TOPOLOGY ((uint32_t)KVR_ENTRIES_TOPOLOGY)
#define KVR_HINTS_MAX_POOLS    ((uint32_t)KVR_ENTRIES_POOL)

#endif
