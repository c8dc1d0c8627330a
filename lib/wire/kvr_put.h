/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PUT_H
#define KVR_PUT_H

/**
 * @file
 * Encoders: one complete frame of each single-frame kind into the caller's buffer. Every
 * kvr_put_*() returns the UDP payload length, or -EMSGSIZE if it does not fit @p cap. Reserved
 * fields are copied from the caller's struct: start from a zeroed one. Requests are sent with
 * kvr_request_build() and kvr_frag_*(), as they may need many frames. Pure; any thread.
 */

#include "kvr_message.h"

/**
 * General form: header, @p fixed, @p tail, zero padding to 8. Lengths may be 0. The contents
 * are not checked.
 */
int kvr_put_message(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
		    struct kvr_slice fixed, struct kvr_slice tail);

/** Kinds with an empty body: CANCEL, CANCELLED, PROBE, ABORT_ACK, GOODBYE, GOODBYE_ACK. */
static inline int kvr_put_empty(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids)
{
	return kvr_put_message(buf, cap, kind, ids, (struct kvr_slice){NULL, 0},
			       (struct kvr_slice){NULL, 0});
}

/* Kinds whose body is one struct. */
#define KVR_PUT_FIXED(name, type, KIND)                                                            \
	static inline int kvr_put_##name(void *buf, size_t cap, const struct kvr_wire_ids *ids,    \
					 const struct type *body)                                  \
	{                                                                                          \
		return kvr_put_message(buf, cap, KIND, ids,                                        \
				       (struct kvr_slice){body, sizeof(*body)},                    \
				       (struct kvr_slice){NULL, 0});                               \
	}
KVR_PUT_FIXED(accepted, kvr_wire_accepted, KVR_ACCEPTED)
KVR_PUT_FIXED(dispatch_ack, kvr_wire_dispatch_ack, KVR_DISPATCH_ACK)
KVR_PUT_FIXED(response_ack, kvr_wire_response_ack, KVR_RESPONSE_ACK)
KVR_PUT_FIXED(progress, kvr_wire_progress, KVR_PROGRESS)
KVR_PUT_FIXED(progress_ack, kvr_wire_progress_ack, KVR_PROGRESS_ACK)
KVR_PUT_FIXED(abort, kvr_wire_abort, KVR_ABORT)
KVR_PUT_FIXED(welcome, kvr_wire_welcome, KVR_WELCOME)
KVR_PUT_FIXED(heartbeat_ack, kvr_wire_heartbeat_ack, KVR_HEARTBEAT_ACK)
KVR_PUT_FIXED(kv_ack, kvr_wire_kv_ack, KVR_KV_ACK)
#undef KVR_PUT_FIXED

/** SESSION_OPENED, SESSION_CLOSED or SESSION_RELEASED. */
int kvr_put_session_status(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
			   uint16_t code);

/** SESSION_OPEN, SESSION_CLOSE or SESSION_RELEASE; body->id_len is taken from @p id. */
int kvr_put_session(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
		    struct kvr_wire_session body, struct kvr_str id);

/**
 * REJECTED to @p code for a message of @p kind. @p fault may be NULL; its text, seen and allowed
 * are carried. `retryable` comes from the code.
 */
int kvr_put_rejected(void *buf, size_t cap, const struct kvr_wire_ids *ids, unsigned int code,
		     uint8_t kind, const struct kvr_fault *fault);

/** RESPONSE; body->data_len is taken from @p data. -EMSGSIZE also above one frame. */
int kvr_put_response(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		     struct kvr_wire_response body, struct kvr_slice data);

/**
 * Append @p len bytes of hints, a multiple of 8, to those of the last item (RESPONSE with FIN, one
 * frame) at @p h, which has room for them.
 * @return bytes of the frame.
 */
uint32_t kvr_response_append(struct kvr_wire_hdr *h, const void *hints, uint32_t len);

/** HELLO; body->hints_len is taken from @p hints. */
int kvr_put_hello(void *buf, size_t cap, const struct kvr_wire_ids *ids, struct kvr_wire_hello body,
		  const struct kvr_hint_buf *hints);

/** CONNECT. @p hints may be NULL: all pools. */
int kvr_put_connect(void *buf, size_t cap, const struct kvr_wire_ids *ids, uint16_t max_frame,
		    const struct kvr_hint_buf *hints);

/** HEARTBEAT of @p n ranks. @p flags: KVR_BEAT_F_*, valid if @p wish has changed. */
int kvr_put_heartbeat(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		      const struct kvr_wire_rank_load rank[], uint32_t n, uint16_t flags,
		      uint16_t wish);

/** ALIVE of @p n requests, 1 to KVR_WIRE_ALIVE_MOST. */
int kvr_put_alive(void *buf, size_t cap, const struct kvr_wire_ids *ids, const uint64_t handle[],
		  uint32_t n);

/**
 * CONNECTED: as many of the @p n pools as fit @p cap; body->n_pools and total_pools are set
 * here, entry name_len from @p name.
 */
int kvr_put_connected(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		      struct kvr_wire_connected body, const struct kvr_wire_pool pool[],
		      const struct kvr_str name[], uint32_t n);

/** A KV_EVENTS frame being filled. Fields are private but n_events and len. */
struct kvr_kv_put {
	uint8_t *p;
	uint32_t cap;
	uint32_t len; /* frame bytes so far, header included */
	uint16_t n_events;
};

/**
 * Begin a KV_EVENTS frame in @p buf of @p cap bytes (at most KVR_WIRE_MAX_FRAME are used).
 * @return 0 or -EMSGSIZE.
 */
int kvr_kv_put_begin(struct kvr_kv_put *k, void *buf, size_t cap, const struct kvr_wire_ids *ids,
		     const struct kvr_wire_kv_events *head);

/** Blocks that still fit into the frame as one more event; 0 when not even one. */
uint32_t kvr_kv_put_room(const struct kvr_kv_put *k);

/**
 * Add one event with @p n sequence hashes; n 0 only for CLEARED. @p parent NULL = none.
 * @return 0, -EMSGSIZE (does not fit, frame unchanged: send it and begin another).
 */
int kvr_kv_put_event(struct kvr_kv_put *k, uint8_t type, uint8_t tier, const uint64_t *parent,
		     const uint64_t hash[], uint32_t n);

/**
 * Add @p n consecutive events in the form of kvr_kv_put_event(), @p bytes in total.
 * @return 0, -EMSGSIZE (they do not fit, frame unchanged).
 */
int kvr_kv_put_events(struct kvr_kv_put *k, const void *events, uint32_t bytes, uint16_t n);

/** Finish: fills in the lengths. @return the UDP payload length. */
int kvr_kv_put_end(struct kvr_kv_put *k);

#endif
