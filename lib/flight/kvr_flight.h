/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FLIGHT_H
#define KVR_FLIGHT_H

/**
 * @file
 * Requests in flight of one pool: the client, the worker, and the progress of the answer.
 *
 * Every accepted request has a slot from the decision until its stream has ended on the wire, and
 * another one for a prefill leg. The data behind a slot belong to its owner (lib/request has the
 * rules of a request). Number and generation of the slot form the *handle*. Agents and clients echo
 * it, so a relayed frame finds its slot with one array access and no hash. The pair (source, id)
 * chosen by the client finds the slot of a retransmitted ROUTE, a PROBE or a CANCEL by one search
 * in an index that only the scheduler lcore uses.
 *
 *   lookup by (source, id) -> index ----> slot number -+
 *   handle = generation:32 | pool:8 | slot:24 ---------+-> slot[ ]  320 bytes each
 *
 * Writers. The scheduler lcore of the pool allocates, fills, changes and releases slots. Ingress
 * lcores read `relay` to forward frames. Reuse is detected as by a sequence lock: the generation
 * changes on alloc and on release; a reader copies `relay` and then checks the generation again.
 * The next hop to the client may change while the slot is published: together with the frame size
 * it is one word, stored and loaded as a whole.
 *
 * Only `seen`, `passed` and `active_period` are written by the ingress lcore that relays the stream
 * (the lcore of the agent's frames; acknowledgements may arrive at another lcore, which only
 * reads). The first two contain the generation they refer to, so a late write refers to an earlier
 * request of the slot, not to the current one.
 *
 * An ended request stays for KVR_FLIGHT_LINGER_NS or until the client has acknowledged the end, so
 * that retransmitted last items still reach it. If slots are needed, the request that ended first
 * is released first (kvr_flight_oldest()). Its name then goes into a filter of recently ended
 * requests (2^k fingerprints with the reported outcome, direct mapped), which distinguishes a late
 * duplicate of ROUTE from a new request. New names overwrite old ones.
 *
 * Cost: handle to slot one cache line; lookup, alloc and release one line of the index each, the
 * same one; has_ended and release one line of the filter.
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

/** Relay mode: what the router does with the items of a slot's stream. */
enum kvr_flight_relay_mode {
	KVR_FLIGHT_PASS, /**< forward them to the client */
	KVR_FLIGHT_HOLD, /**< neither forward nor acknowledge them, so that the agent retransmits */
	KVR_FLIGHT_DROP, /**< discard and acknowledge them: the request has moved on */
};

/** Data that an ingress lcore needs to forward a frame. Copied under the generation. */
struct kvr_relay {
	struct kvr_path client;
	struct kvr_path agent;
	uint64_t source;
	uint64_t id;
	uint64_t worker;
	uint32_t epoch;	 /* incarnation of the worker that the request was sent to */
	uint32_t isl;	 /* prompt tokens of the engine: blocks of output are counted from there */
	uint8_t direct;	 /* 1: items do not pass through this router */
	uint8_t booked;	 /* 1: the client runs the request, and no agent reports on it */
	uint8_t leg;	 /* enum kvr_leg_id: items of a prefill leg are for the router */
	uint8_t tracked; /* 1: the last item goes through the scheduler, which extends it */
};

/** Reply to the client of a request that ended without its answer; sent on every retransmission. */
struct kvr_flight_end {
	uint16_t code; /* enum kvr_code; 0: it ended with its last item */
	uint8_t retry; /* for the owner: whether the client may retry */
	uint8_t policy_class;
	uint8_t pad[4];
	uint64_t detail[4];
};

struct kvr_flight {
	/* scheduler: rw, ingress: ro */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t gen; /* odd: in use */
	uint32_t slot;
	struct kvr_relay relay;
	/* scheduler only */
	uint32_t quota_ref; /* reference of the units charged to its source; 0: none */
	uint64_t name;	    /* hash of (source, id) */

	/* ingress lcore of the stream: rw (relaxed, publishes nothing), scheduler: ro */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint64_t
		seen;		 /* generation:32 | 1 + reported generated tokens:32 */
	_Atomic uint64_t passed; /* same writer. generation:32 | 1 + last item sent to the client:31
				    | final item was sent:1 */
	_Atomic uint32_t active_period; /* same writer: period in which the scheduler last received
					 * a message about an item */
	/* scheduler: rw (relaxed, publishes nothing), ingress: ro */
	_Atomic uint32_t relay_mode; /* enum kvr_flight_relay_mode */

	/* scheduler only; the first line is enough for a request without complications */
	alignas(RTE_CACHE_LINE_SIZE) uint8_t state; /* enum kvr_flight_state */
	bool unnamed : 1;			    /* cannot be found by (source, id) */
	/* of the owner */
	bool rejected : 1;   /* `end` is valid; otherwise the request ended with its last item */
	bool bound;	     /* the worker is known */
	uint8_t abort_tries; /* remaining ABORTs to send */
	uint16_t abort_code; /* reason of ABORT */
	uint16_t attempt;    /* attempt number of DISPATCH */
	void *owner;	     /* NULL: no request owns the slot any more */
	uint64_t resend_ns;  /* time of the next DISPATCH; 0: never */
	uint64_t abort_ns;   /* time of the next ABORT; 0: never */
	/* of the table */
	uint64_t end_ns;	      /* ENDED: end of lingering */
	TAILQ_ENTRY(kvr_flight) link; /* lingering list */
	/* of the owner; each valid only as a field above indicates */
	TAILQ_ENTRY(kvr_flight) resend_link;
	TAILQ_ENTRY(kvr_flight) abort_link; /* unacknowledged ABORTs */
	struct kvr_flight_end end;
};
_Static_assert(sizeof(struct kvr_flight) == 320, "five cache lines");
_Static_assert(offsetof(struct kvr_flight, resend_link) - offsetof(struct kvr_flight, state) <=
		       RTE_CACHE_LINE_SIZE,
	       "one line for a request without complications");

TAILQ_HEAD(kvr_flight_list, kvr_flight);

struct kvr_flight_table;

/** Bytes of a table of @p n slots. Any thread; needs no EAL. */
size_t kvr_flight_bytes(uint32_t n);

/**
 * Create a table of @p n slots (1..KVR_FLIGHT_MAX_SLOTS) for pool number @p pool (< 256). @p name
 * labels its memory; @p seed keeps clients from constructing collisions. Needs an EAL.
 * @return the table, or NULL with errno EINVAL, ENOMEM.
 */
struct kvr_flight_table *kvr_flight_create(const char *name, uint32_t n, uint32_t pool,
					   uint64_t seed, int socket_id);

/** Free a table that no thread uses any more. Accepts NULL. */
void kvr_flight_destroy(struct kvr_flight_table *table);

/** Slot of a live or lingering request, or NULL. Scheduler lcore. */
struct kvr_flight *kvr_flight_lookup(struct kvr_flight_table *table, uint64_t source, uint64_t id);

/** Prefetch what kvr_flight_lookup() and kvr_flight_has_ended() read. Scheduler lcore. */
void kvr_flight_prefetch_name(const struct kvr_flight_table *table, uint64_t source, uint64_t id);

/**
 * Return true if (source, id) ended recently. May miss a request that ended more than about half
 * the number of fingerprints ago. Scheduler lcore.
 * @param end filled if true: code, retry, and the low 40 bits of detail[0]. May be NULL.
 */
bool kvr_flight_has_ended(const struct kvr_flight_table *table, uint64_t source, uint64_t id,
			  struct kvr_flight_end *end);

/**
 * Allocate a slot for a new request and add its name to the index. The name must not be in use:
 * kvr_flight_lookup() has just returned NULL. The relay part is zero except source and id; the
 * caller fills it and then calls kvr_flight_publish().
 * @return the slot, or NULL with errno ENOSPC.
 */
struct kvr_flight *kvr_flight_alloc(struct kvr_flight_table *table, uint64_t source, uint64_t id);

/**
 * Allocate a slot that only its handle finds: a leg of a request whose name belongs to another
 * slot. Otherwise as kvr_flight_alloc().
 */
struct kvr_flight *kvr_flight_alloc_unnamed(struct kvr_flight_table *table, uint64_t source,
					    uint64_t id);

/**
 * Remove the slot's name: from now on only the handle finds it, and another slot may use the name.
 */
void kvr_flight_unname(struct kvr_flight_table *table, struct kvr_flight *flight);

/** Set relay.client of a slot that is not published yet. Scheduler lcore. */
void kvr_flight_set_client(struct kvr_flight *flight, const struct kvr_path *client);

/**
 * Make the relay part visible to ingress lcores. From now on it must not change, except by
 * kvr_flight_set_next_hop(). Scheduler lcore.
 */
void kvr_flight_publish(struct kvr_flight *flight);

/**
 * Set the next hop of frames to the client; the slot may be published. Frames in progress may still
 * use the old one. Scheduler lcore.
 */
void kvr_flight_set_next_hop(struct kvr_flight *flight, const uint8_t mac[6]);

/** 1 + generated tokens reported to the scheduler under @p handle; 0: none yet. Any thread. */
static inline uint32_t kvr_flight_seen(const struct kvr_flight *flight, uint64_t handle)
{
	const uint64_t seen = atomic_load_explicit(&flight->seen, memory_order_relaxed);

	return seen >> 32 == handle >> 32 ? (uint32_t)seen : 0;
}

/** Record that @p generated tokens were reported under @p handle. Ingress lcore of the stream. */
static inline void kvr_flight_set_seen(struct kvr_flight *flight, uint64_t handle,
				       uint32_t generated)
{
	atomic_store_explicit(&flight->seen, (handle & ~(uint64_t)UINT32_MAX) | (generated + 1),
			      memory_order_relaxed);
}

/**
 * The period (a number of the caller) in which the scheduler last received a message about an item
 * of the slot. The item may belong to an earlier request. Ingress lcore of the stream.
 */
static inline uint32_t kvr_flight_active_period(const struct kvr_flight *flight)
{
	return atomic_load_explicit(&flight->active_period, memory_order_relaxed);
}

/** Record that the scheduler is sent a message in @p period. Ingress lcore of the stream. */
static inline void kvr_flight_set_active_period(struct kvr_flight *flight, uint32_t period)
{
	atomic_store_explicit(&flight->active_period, period, memory_order_relaxed);
}

/**
 * Twice the number of items sent to the client under @p handle, plus 1 if the final item (FIN) was
 * sent; 0: none. Any thread.
 */
static inline uint32_t kvr_flight_passed(const struct kvr_flight *flight, uint64_t handle)
{
	const uint64_t passed = atomic_load_explicit(&flight->passed, memory_order_relaxed);

	return passed >> 32 == handle >> 32 ? (uint32_t)passed : 0;
}

/**
 * Record, before it is sent, that item @p seq (@p fin: the final one) goes to the client under @p
 * handle. Ingress lcore of the stream.
 */
static inline void kvr_flight_set_passed(struct kvr_flight *flight, uint64_t handle, uint32_t seq,
					 bool fin)
{
	const uint32_t before = kvr_flight_passed(flight, handle);
	const uint32_t next = seq < INT32_MAX ? seq + 1 : INT32_MAX;
	const uint32_t now = (next > before >> 1 ? next << 1 : before & ~1u) | (before & 1) | fin;

	if (now != before)
		atomic_store_explicit(&flight->passed, (handle & ~(uint64_t)UINT32_MAX) | now,
				      memory_order_relaxed);
}

/**
 * Return true if all items below @p next (@p fin: and the final one) were sent to the client under
 * @p handle, so that the client may acknowledge them. Any ingress lcore.
 */
static inline bool kvr_flight_may_ack(const struct kvr_flight *flight, uint64_t handle,
				      uint32_t next, bool fin)
{
	const uint32_t passed = kvr_flight_passed(flight, handle);

	return next <= passed >> 1 && (!fin || (passed & 1) != 0);
}

/** Return true if an item of the slot's stream was sent to the client. Any thread. */
static inline bool kvr_flight_answered(const struct kvr_flight *flight)
{
	const uint64_t gen = atomic_load_explicit(&flight->gen, memory_order_relaxed) | 1u;

	return kvr_flight_seen(flight, gen << 32) != 0;
}

/**
 * Hold the items of a request before it moves to another worker, until kvr_flight_pass_items() or
 * kvr_flight_drop_items(). @return false if an item was already sent; nothing has changed then.
 * Scheduler lcore.
 */
static inline bool kvr_flight_hold_items(struct kvr_flight *flight)
{
	if (kvr_flight_answered(flight))
		return false;
	atomic_store_explicit(&flight->relay_mode, KVR_FLIGHT_HOLD, memory_order_relaxed);
	/*
	 * H0: pairs with H1 in kvr_flight_may_pass_first(). Both sides store and then load, so at
	 * least one sees the store of the other.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	if (likely(!kvr_flight_answered(flight)))
		return true;
	atomic_store_explicit(&flight->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
	return false;
}

/** Forward items again: the request stays at its worker. Scheduler lcore. */
static inline void kvr_flight_pass_items(struct kvr_flight *flight)
{
	atomic_store_explicit(&flight->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
}

/**
 * Drop the items of an attempt that was given up while its request continues. Without a preceding
 * kvr_flight_hold_items() this takes effect within a burst. Scheduler lcore.
 */
static inline void kvr_flight_drop_items(struct kvr_flight *flight)
{
	atomic_store_explicit(&flight->relay_mode, KVR_FLIGHT_DROP, memory_order_relaxed);
}

/** Relay mode of the slot. Any ingress lcore. */
static inline enum kvr_flight_relay_mode kvr_flight_relay_mode(const struct kvr_flight *flight)
{
	return (enum kvr_flight_relay_mode)atomic_load_explicit(&flight->relay_mode,
								memory_order_relaxed);
}

/**
 * Return true if the first item of a stream may be forwarded, after kvr_flight_set_seen(). False:
 * the request is being moved at this moment. Ingress lcore of the stream.
 */
static inline bool kvr_flight_may_pass_first(const struct kvr_flight *flight)
{
	atomic_thread_fence(memory_order_seq_cst); /* H1: see kvr_flight_hold_items() */
	return kvr_flight_relay_mode(flight) == KVR_FLIGHT_PASS;
}

/**
 * Give a published request a new handle (the old one becomes invalid), so that its relay part can
 * be changed and published again: the request moves to another worker. Scheduler lcore.
 */
void kvr_flight_renew_handle(struct kvr_flight *flight);

/** End the booking: state ENDED, lingering from @p now_ns on. Idempotent. Scheduler lcore. */
void kvr_flight_end(struct kvr_flight_table *table, struct kvr_flight *flight, uint64_t now_ns);

/** Free the slot. If the request has ended, its name goes to the filter. Scheduler lcore. */
void kvr_flight_release(struct kvr_flight_table *table, struct kvr_flight *flight);

/** First lingering request whose linger time has passed at @p now_ns, or NULL. Scheduler lcore. */
struct kvr_flight *kvr_flight_lingered(struct kvr_flight_table *table, uint64_t now_ns);

/**
 * The lingering request that ended first, or NULL: the one to release if slots are needed.
 * Scheduler lcore.
 */
struct kvr_flight *kvr_flight_oldest(struct kvr_flight_table *table);

/** Handle of a slot in use. */
uint64_t kvr_flight_handle(const struct kvr_flight_table *table, const struct kvr_flight *flight);

/** Pool number in a handle; any 64-bit value is allowed. */
static inline uint32_t kvr_flight_handle_pool(uint64_t handle)
{
	return (uint32_t)(handle >> 24) & 0xffu;
}

/**
 * Slot of a handle, or NULL if the handle is unknown or belongs to an earlier request. Scheduler
 * lcore.
 */
struct kvr_flight *kvr_flight_by_handle(struct kvr_flight_table *table, uint64_t handle);

/**
 * Copy the data needed to forward a frame of @p handle. Any ingress lcore.
 * @return the slot (the caller may access only `seen`, `passed` and `active_period`), or NULL if
 *   the handle is not in use.
 */
struct kvr_flight *kvr_flight_relay(struct kvr_flight_table *table, uint64_t handle,
				    struct kvr_relay *out);

/** Prefetch what kvr_flight_relay() reads; any 64-bit value is allowed. Any ingress lcore. */
void kvr_flight_prefetch_relay(const struct kvr_flight_table *table, uint64_t handle);

/**
 * Prefetch what kvr_flight_by_handle() and the scheduler read; any 64-bit value is allowed.
 * Scheduler lcore.
 */
void kvr_flight_prefetch(const struct kvr_flight_table *table, uint64_t handle);

/** Counters of a table. */
#define KVR_FLIGHT_COUNTER_LIST(X)                                                                 \
	X(KVR_FLIGHT_C_TAKEN, taken, COUNT, "slots", "slots taken by requests and legs")           \
	X(KVR_FLIGHT_C_GIVEN, given, COUNT, "slots", "slots released")                             \
	X(KVR_FLIGHT_C_USED, used, GAUGE, "slots", "slots in use now")                             \
	X(KVR_FLIGHT_C_LINGERING, lingering, GAUGE, "slots",                                       \
	  "slots in use by requests that have ended")                                              \
	X(KVR_FLIGHT_C_SLOTS, all, GAUGE, "slots", "all slots")
enum kvr_flight_counter { KVR_FLIGHT_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_FLIGHT_COUNTERS };
struct kvr_flight_stats {
	KVR_FLIGHT_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_flight_stats_def;

/** Copy the counters into @p out. Any thread; may be slightly out of date. */
void kvr_flight_stats_get(const struct kvr_flight_table *table, struct kvr_flight_stats *out);

/**
 * Slots in use, lingering slots among them, and all slots. Any thread; may be slightly out of date.
 */
uint32_t kvr_flight_count(const struct kvr_flight_table *table);
uint32_t kvr_flight_lingering(const struct kvr_flight_table *table);
uint32_t kvr_flight_size(const struct kvr_flight_table *table);

/** Slot by number, for walks; NULL if the number is out of range. Scheduler lcore. */
struct kvr_flight *kvr_flight_slot(struct kvr_flight_table *table, uint32_t slot);

#endif
