/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FLIGHT_H
#define KVR_FLIGHT_H

/**
 * @file
 * Requests in flight of one pool: who asked, who serves, what has been said so far.
 *
 * Every accepted request owns a slot from the decision until its stream is over on the wire, and
 * one more for a prefill leg; what lies behind a slot is its owner's (lib/request has the rules of
 * that life). The slot's number and generation make the *handle*, which agents and clients echo, so
 * that a relayed frame finds its slot with one array access and no hash. The pair (source, id)
 * chosen by the client finds the slot of a repeated ROUTE, a PROBE or a CANCEL through one
 * search in an index that only the scheduler lcore knows.
 *
 *   lookup by (source, id) -> index ----> slot number -+
 *   handle = generation:32 | pool:8 | slot:24 ---------+-> slot[ ]  320 bytes each
 *
 * Writers. The pool's scheduler lcore allocates, fills, changes and releases slots; ingress lcores
 * read `relay` to switch frames. Reuse is detected the way a sequence lock does it: the generation
 * changes at alloc and at release, a reader copies `relay` and then looks at the generation again.
 * The next hop to the client may change while the slot is published: with the frame size it is one
 * word, stored and loaded as a whole.
 * `seen` and `passed` alone are written by the ingress lcore that relays the stream (that of the
 * agent's frames; acknowledgements may come to another one, which reads), and name the generation
 * they are about: a lcore that was slow writes about an earlier request of the slot, not about this
 * one.
 *
 * An ended request stays for KVR_FLIGHT_LINGER_NS or until the client has acknowledged the end,
 * so that repeated last items still reach it; when slots are needed the one that has ended first
 * goes first (kvr_flight_oldest()). After that its name goes into a filter of recently ended
 * requests (2^k fingerprints with what the client was told, direct mapped) which tells a late
 * duplicate of ROUTE from a new request; old names are overwritten by new ones.
 *
 * Cost: handle to slot 1 line; lookup, alloc and release one line of the index each, the same one;
 * has_ended and release one line of the filter.
 */

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>

#include "kvr_path.h"
#include "kvr_stats.h"
#include "kvr_wire.h"

#define KVR_FLIGHT_MAX_SLOTS (1u << 24)
#define KVR_FLIGHT_MAX_POOLS 256u
#define KVR_FLIGHT_LINGER_NS (KVR_WIRE_LINGER_S * UINT64_C(1000000000))

enum kvr_flight_state {
	KVR_FLIGHT_FREE,
	KVR_FLIGHT_LIVE,
	KVR_FLIGHT_ENDED, /* frames are still relayed */
};

/** What becomes of the items of a slot's stream. */
enum kvr_flight_relay_mode {
	KVR_FLIGHT_PASS, /**< they pass to the client */
	KVR_FLIGHT_HOLD, /**< whether the request goes on elsewhere is being decided: they are
			  * neither passed nor acknowledged, so that their agent says them again */
	KVR_FLIGHT_DROP, /**< it goes on elsewhere: they are the router's to acknowledge */
};

/** What an ingress lcore needs to switch a frame. Copied out under the generation. */
struct kvr_relay {
	struct kvr_path client;
	struct kvr_path agent;
	uint64_t source;
	uint64_t id;
	uint64_t worker;
	uint32_t epoch;	 /* the worker's life that it was sent to */
	uint32_t isl;	 /* tokens that the engine sees: blocks of output are counted from there */
	uint8_t direct;	 /* 1: items do not pass here */
	uint8_t booked;	 /* 1: the client runs it, and no agent speaks of it */
	uint8_t leg;	 /* enum kvr_leg_id: items of a prefill leg are the router's */
	uint8_t tracked; /* 1: the last item goes through the scheduler, which adds to it */
};

/** What the client of a request that has ended without its answer is told, again and again. */
struct kvr_flight_end {
	uint16_t code; /* enum kvr_code; 0: it has ended by its last item */
	uint8_t retry; /* the caller's: whether it may be tried again */
	uint8_t policy_class;
	uint8_t pad[4];
	uint64_t detail[4];
};

struct kvr_flight {
	/* scheduler: rw, ingress: ro */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t gen; /* odd = in use */
	uint32_t slot;
	struct kvr_relay relay;
	/* scheduler only */
	uint32_t quota_ref; /* what its source is charged; 0: nothing */
	uint64_t name;	    /* hash of (source, id) */

	/* ingress lcore of the stream: rw (relaxed, publishes nothing), scheduler: ro */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint64_t seen; /* generation:32 | 1 + generated tokens
							     * reported:32 */
	_Atomic uint64_t passed; /* the same writer: generation:32 | 1 + the last item that has gone
				  * to the client:31 | the last of all has:1 */
	/* scheduler: rw (relaxed, publishes nothing), ingress: ro */
	_Atomic uint32_t relay_mode; /* enum kvr_flight_relay_mode */

	/* scheduler only; the first line is all that a request without trouble needs */
	alignas(RTE_CACHE_LINE_SIZE) uint8_t state; /* enum kvr_flight_state */
	bool unnamed : 1;			    /* cannot be found by (source, id) */
	/* the owner's */
	bool rejected : 1;   /* `end` says how it has ended; else by its last item */
	bool bound;	     /* it knows its worker */
	uint8_t abort_tries; /* ABORTs still to send */
	uint16_t abort_code; /* why */
	uint16_t attempt;    /* of DISPATCH */
	void *owner;	     /* NULL: of no request any more */
	uint64_t resend_ns;  /* when DISPATCH is due again; 0 = never */
	uint64_t abort_ns;   /* when the next ABORT is due; 0 = never */
	/* the table's */
	uint64_t end_ns;	      /* ENDED: when lingering is over */
	TAILQ_ENTRY(kvr_flight) link; /* lingering list */
	/* the owner's, each valid when a field above says so */
	TAILQ_ENTRY(kvr_flight) resend_link;
	TAILQ_ENTRY(kvr_flight) abort_link; /* unacknowledged ABORTs */
	struct kvr_flight_end end;
};
_Static_assert(sizeof(struct kvr_flight) == 320, "five cache lines");
_Static_assert(offsetof(struct kvr_flight, resend_link) - offsetof(struct kvr_flight, state) <=
		       RTE_CACHE_LINE_SIZE,
	       "without trouble one line");

TAILQ_HEAD(kvr_flight_list, kvr_flight);

struct kvr_flight_table;

/** Bytes of a table of @p n slots. Any thread, without an EAL. */
size_t kvr_flight_bytes(uint32_t n);

/**
 * Create a table for @p n slots (1..KVR_FLIGHT_MAX_SLOTS) of pool number @p pool (< 256).
 * @p name is for people, @p seed keeps clients from aiming at one place. Needs an EAL.
 * @return table, or NULL with errno EINVAL, ENOMEM.
 */
struct kvr_flight_table *kvr_flight_create(const char *name, uint32_t n, uint32_t pool,
					   uint64_t seed, int socket_id);

/** Free the table; NULL is fine. Nobody may use it any more. */
void kvr_flight_destroy(struct kvr_flight_table *t);

/** Slot of a live or lingering request, or NULL. Scheduler lcore. */
struct kvr_flight *kvr_flight_lookup(struct kvr_flight_table *t, uint64_t source, uint64_t id);

/** Begin to load what kvr_flight_lookup() and kvr_flight_has_ended() will read. Scheduler lcore. */
void kvr_flight_prefetch_name(const struct kvr_flight_table *t, uint64_t source, uint64_t id);

/**
 * Whether (source, id) has ended not long ago. Scheduler lcore. False with certainty is not
 * promised for requests that ended more than about half the table's fingerprints ago.
 * @param end filled when true: its code, retry, and of detail[0] the low 40 bits. May be NULL.
 */
bool kvr_flight_has_ended(const struct kvr_flight_table *t, uint64_t source, uint64_t id,
			  struct kvr_flight_end *end);

/**
 * Take a slot for a new request and make it findable. The pair must not be in use:
 * kvr_flight_lookup() has just said NULL. The relay part is zero but for source and id; the caller
 * fills it and then calls kvr_flight_publish().
 * @return slot, or NULL with errno ENOSPC (no slot).
 */
struct kvr_flight *kvr_flight_alloc(struct kvr_flight_table *t, uint64_t source, uint64_t id);

/**
 * The same for a slot that only its handle finds: a leg of a request that has its name elsewhere.
 */
struct kvr_flight *kvr_flight_alloc_unnamed(struct kvr_flight_table *t, uint64_t source,
					    uint64_t id);

/** From now on only the handle finds the slot; its name may be given to another one. */
void kvr_flight_unname(struct kvr_flight_table *t, struct kvr_flight *r);

/** How to reach the client: relay.client of a slot that is not published yet. Scheduler lcore. */
void kvr_flight_set_client(struct kvr_flight *r, const struct kvr_path *client);

/** Let ingress lcores see the relay part; from now on it must not change but for
 * kvr_flight_set_next_hop(). Scheduler lcore. */
void kvr_flight_publish(struct kvr_flight *r);

/** Frames to the client leave through @p mac from now on; the slot may be published. Those under
 * way may still take the other one. Scheduler lcore. */
void kvr_flight_set_next_hop(struct kvr_flight *r, const uint8_t mac[6]);

/** 1 + the generated tokens reported to the scheduler under @p handle, 0: nothing yet. Any thread.
 */
static inline uint32_t kvr_flight_seen(const struct kvr_flight *r, uint64_t handle)
{
	const uint64_t seen = atomic_load_explicit(&r->seen, memory_order_relaxed);

	return seen >> 32 == handle >> 32 ? (uint32_t)seen : 0;
}

/** @p generated tokens have been reported under @p handle. Ingress lcore of the stream. */
static inline void kvr_flight_set_seen(struct kvr_flight *r, uint64_t handle, uint32_t generated)
{
	atomic_store_explicit(&r->seen, (handle & ~(uint64_t)UINT32_MAX) | (generated + 1),
			      memory_order_relaxed);
}

/** Twice the number of items that have gone to the client under @p handle, 1 more when the last of
 * all (FIN) has; 0: none. Any thread. */
static inline uint32_t kvr_flight_passed(const struct kvr_flight *r, uint64_t handle)
{
	const uint64_t passed = atomic_load_explicit(&r->passed, memory_order_relaxed);

	return passed >> 32 == handle >> 32 ? (uint32_t)passed : 0;
}

/** Item @p seq (the last of all: @p fin) goes to the client under @p handle; before it is sent.
 * Ingress lcore of the stream. */
static inline void kvr_flight_set_passed(struct kvr_flight *r, uint64_t handle, uint32_t seq,
					 bool fin)
{
	const uint32_t before = kvr_flight_passed(r, handle);
	const uint32_t next = seq < INT32_MAX ? seq + 1 : INT32_MAX;
	const uint32_t now = (next > before >> 1 ? next << 1 : before & ~1u) | (before & 1) | fin;

	if (now != before)
		atomic_store_explicit(&r->passed, (handle & ~(uint64_t)UINT32_MAX) | now,
				      memory_order_relaxed);
}

/** Whether all items below @p next (and the last of all: @p fin) have gone to the client under
 * @p handle: it may acknowledge them. Any ingress lcore. */
static inline bool kvr_flight_may_ack(const struct kvr_flight *r, uint64_t handle, uint32_t next,
				      bool fin)
{
	const uint32_t passed = kvr_flight_passed(r, handle);

	return next <= passed >> 1 && (!fin || (passed & 1) != 0);
}

/** Whether an item of the slot's stream has gone to the client. Any thread. */
static inline bool kvr_flight_answered(const struct kvr_flight *r)
{
	const uint64_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed) | 1u;

	return kvr_flight_seen(r, gen << 32) != 0;
}

/**
 * Before a request may go on elsewhere: nothing more passes to its client until
 * kvr_flight_pass_items() or kvr_flight_drop_items(). @return false: something has, and the slot is
 * as before. Scheduler lcore.
 */
static inline bool kvr_flight_hold_items(struct kvr_flight *r)
{
	if (kvr_flight_answered(r))
		return false;
	atomic_store_explicit(&r->relay_mode, KVR_FLIGHT_HOLD, memory_order_relaxed);
	/* H0, pairs with H1 in kvr_flight_may_pass_first(): of two that store and then look, one
	 * sees. */
	atomic_thread_fence(memory_order_seq_cst);
	if (likely(!kvr_flight_answered(r)))
		return true;
	atomic_store_explicit(&r->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
	return false;
}

/** It stays where it is. Scheduler lcore. */
static inline void kvr_flight_pass_items(struct kvr_flight *r)
{
	atomic_store_explicit(&r->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
}

/** The run in this slot is given up, its request is not. Scheduler lcore, after
 * kvr_flight_hold_items(), or it takes effect within a burst. */
static inline void kvr_flight_drop_items(struct kvr_flight *r)
{
	atomic_store_explicit(&r->relay_mode, KVR_FLIGHT_DROP, memory_order_relaxed);
}

/** What becomes of an item of the slot. Any ingress lcore. */
static inline enum kvr_flight_relay_mode kvr_flight_relay_mode(const struct kvr_flight *r)
{
	return (enum kvr_flight_relay_mode)atomic_load_explicit(&r->relay_mode,
								memory_order_relaxed);
}

/** The first item of a stream is about to pass, after kvr_flight_set_seen(). @return false: it may
 * not, as its request is being taken elsewhere at this moment. Ingress lcore of the stream. */
static inline bool kvr_flight_may_pass_first(const struct kvr_flight *r)
{
	atomic_thread_fence(memory_order_seq_cst); /* H1 */
	return kvr_flight_relay_mode(r) == KVR_FLIGHT_PASS;
}

/**
 * Give a published request a new handle (the old one is dead from now on), so that its relay part
 * can be changed and published again: the request moves to another worker. Scheduler lcore.
 */
void kvr_flight_renew_handle(struct kvr_flight *r);

/** The booking is over: state ENDED, lingering from @p now on. Idempotent. Scheduler lcore. */
void kvr_flight_end(struct kvr_flight_table *t, struct kvr_flight *r, uint64_t now_ns);

/** Give the slot back; its name goes to the filter when the request had ended. */
void kvr_flight_release(struct kvr_flight_table *t, struct kvr_flight *r);

/** First lingering request whose time is over at @p now, or NULL. Scheduler lcore. */
struct kvr_flight *kvr_flight_lingered(struct kvr_flight_table *t, uint64_t now_ns);

/** The lingering request that has ended first, or NULL: who must go when slots are needed.
 * Scheduler lcore. */
struct kvr_flight *kvr_flight_oldest(struct kvr_flight_table *t);

/** Handle of a slot in use. */
uint64_t kvr_flight_handle(const struct kvr_flight_table *t, const struct kvr_flight *r);

/** Pool number inside a handle; any 64-bit value is allowed. */
static inline uint32_t kvr_flight_handle_pool(uint64_t handle)
{
	return (uint32_t)(handle >> 24) & 0xffu;
}

/** Slot of a handle, or NULL when it is unknown or of an earlier request. Scheduler lcore. */
struct kvr_flight *kvr_flight_by_handle(struct kvr_flight_table *t, uint64_t handle);

/**
 * Copy what is needed to switch a frame of @p handle. Any ingress lcore.
 * @return the slot (only `seen` and `passed` may be touched), or NULL when the handle is not in
 * use.
 */
struct kvr_flight *kvr_flight_relay(struct kvr_flight_table *t, uint64_t handle,
				    struct kvr_relay *out);

/** Begin to load what kvr_flight_relay() will read; any 64-bit value is allowed. Any ingress lcore.
 */
void kvr_flight_prefetch_relay(const struct kvr_flight_table *t, uint64_t handle);

/** The same for kvr_flight_by_handle() and what the scheduler does next. Scheduler lcore. */
void kvr_flight_prefetch(const struct kvr_flight_table *t, uint64_t handle);

/** What is counted of a table. */
#define KVR_FLIGHT_COUNTER_LIST(X)                                                                 \
	X(KVR_FLIGHT_C_TAKEN, taken, COUNT, "slots", "slots taken by requests and legs")           \
	X(KVR_FLIGHT_C_GIVEN, given, COUNT, "slots", "slots given back")                           \
	X(KVR_FLIGHT_C_USED, used, GAUGE, "slots", "slots in use now")                             \
	X(KVR_FLIGHT_C_LINGERING, lingering, GAUGE, "slots",                                       \
	  "of them slots of requests that have ended")                                             \
	X(KVR_FLIGHT_C_SLOTS, all, GAUGE, "slots", "slots there are")
enum kvr_flight_counter { KVR_FLIGHT_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_FLIGHT_COUNTERS };
struct kvr_flight_stats {
	KVR_FLIGHT_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_flight_stats_def;

/** Copy them into @p out. Any thread; may be a moment old. */
void kvr_flight_stats_get(const struct kvr_flight_table *t, struct kvr_flight_stats *out);

/** Slots in use, and slots lingering among them. Any thread; may be a moment old. */
uint32_t kvr_flight_count(const struct kvr_flight_table *t);
uint32_t kvr_flight_lingering(const struct kvr_flight_table *t);
uint32_t kvr_flight_size(const struct kvr_flight_table *t);

/** Slot by number, for walks by the scheduler lcore; NULL when the number is out of range. */
struct kvr_flight *kvr_flight_slot(struct kvr_flight_table *t, uint32_t slot);

#endif
