/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SESSION_H
#define KVR_SESSION_H

/**
 * @file
 * Sticky sessions: session id -> (worker, rank), with a time to live that restarts on every use
 * (lib/sched/RULES.md, section 10).
 *
 * Two owners, each its own thread (or one thread in both roles):
 *
 *   scheduler side                                     control side
 *   index[ ] (tag, entry) --> entry[ ]  320 bytes      wheel: link[ ], 8,192 slots of 134 ms
 *     bind resolve unbind      hot 52 | id 256           kvr_session_due(): probably expired
 *     enter leave confirm        |                          |
 *        |                       +---- expires, ttl, active, read by control ---->+
 *        +-- queue of entries to arm ------------------------------------------->-+
 *        <-- struct kvr_session_ref, by a channel of the caller ------------------+
 *
 * - The scheduler side owns index, entries and free list. No call costs more than one probe of the
 * index and one entry: ids are hashed with a secret seed, and the index is at most half full.
 *
 * - The control side owns the wheel. A bind arms its entry: the entry's number goes through a queue
 * inside the table. The control side checks the entry when its time comes. An entry that was used
 * meanwhile moves on. An entry that seems expired is reported, and checked again a second later
 * until it is gone, so a report may be lost. A call costs time only for entries that are due or
 * were used, at most KVR_SESSION_CHECKS of them.
 *
 * - The control side only estimates what is due; kvr_session_confirm() on the scheduler side
 * decides. Only a bind can move the time before the next check of the control side, therefore only
 * binds arm.
 *
 * - An entry is in the queue at most once (`queued`), so the queue holds all entries and is never
 * full: every session can expire.
 *
 * Writers. Entries, index, free list, queue tail: scheduler side. Wheel, queue head: control side.
 * `queued` of an entry is set by the scheduler side and cleared by the control side.
 *
 * Budget with a million sessions and cold caches: resolve, bind and unbind take 150 ns if a burst
 * is prefetched (kvr_session_prefetch()), otherwise two consecutive cache misses. About 350 bytes
 * per session, in huge pages if available, touched at creation.
 *
 * Ids are any 1 to 256 bytes. Time is passed in, in nanoseconds, and never decreases. Nothing
 * allocates after creation. Pure: no EAL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_SESSION_ID_MAX 256u
#define KVR_SESSION_MAX	   (1u << 30)	       /* sessions per table */
#define KVR_SESSION_CHECKS 1024u	       /* entries that one kvr_session_due() checks */
#define KVR_SESSION_LATE   (UINT64_C(2) << 27) /* ns, two ticks of the wheel */

struct kvr_session;

struct kvr_session_binding {
	uint64_t worker;
	uint32_t dp_rank;
	uint64_t tag; /**< value of the caller */
};

/** An id with its hash. The caller owns the bytes of the id. */
struct kvr_session_key {
	const void *id;
	uint32_t len;
	uint32_t hash;
};

/** One incarnation of a binding; all zero: none. */
struct kvr_session_ref {
	uint32_t entry;
	uint32_t gen;
};

/** An expired binding; the id is valid until the next call that changes the table. */
struct kvr_session_ended {
	const void *id;
	uint32_t len;
	struct kvr_session_binding to;
};

enum kvr_session_found {
	KVR_SESSION_NONE,
	KVR_SESSION_BOUND,   /**< bound; its time to live restarts */
	KVR_SESSION_EXPIRED, /**< was bound but had expired: it is removed now, notify the worker */
};

/** Bytes of a table, mapped and touched at creation. Any thread. */
size_t kvr_session_bytes(uint32_t max_sessions);

/**
 * Create a table of at most @p max_sessions (1..KVR_SESSION_MAX). @return the table, or NULL with
 * errno EINVAL or ENOMEM.
 */
struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now);

/** Accepts NULL. */
void kvr_session_destroy(struct kvr_session *table);

/**
 * Set a callback for every binding that ends for any reason, including a new bind of the same id.
 * @p fn gets the entry of its ref (below max_sessions) on the scheduler side; NULL: no callback.
 * Call before the table is used.
 */
void kvr_session_on_drop(struct kvr_session *table, void (*fn)(void *arg, uint32_t entry),
			 void *arg);

/**
 * Hash an id. Any thread. @return false if the id is empty or too long; @p key is then unusable.
 */
bool kvr_session_key(const struct kvr_session *table, const void *id, size_t len,
		     struct kvr_session_key *key);

/* ---- scheduler side ---------------------------------------------------------------------- */

/**
 * Prefetch what a call with @p key will access: step 0 some calls ahead, step 1 one or two calls
 * later (it reads what step 0 prefetched). Never necessary for correctness.
 */
void kvr_session_prefetch(const struct kvr_session *table, const struct kvr_session_key *key,
			  int step);

/**
 * Bind a session for @p ttl_ns from now, or bind it again. A new binding of the same id is a new
 * incarnation: requests that entered the old one do not count for it.
 * @param ref filled unless NULL.
 * @return 0; -EINVAL: ttl is 0; -ENOSPC: the table is full (counted).
 */
int kvr_session_bind(struct kvr_session *table, const struct kvr_session_key *key,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now,
		     struct kvr_session_ref *ref);

/**
 * Reserve an entry for a later bind: a kvr_session_bind() directly after kvr_session_unreserve()
 * does not fail with -ENOSPC.
 * @return false if the table is full (counted).
 */
bool kvr_session_reserve(struct kvr_session *table);
void kvr_session_unreserve(struct kvr_session *table);

/**
 * Look up a session. @p to is filled unless the result is KVR_SESSION_NONE, @p ref (may be NULL) if
 * it is KVR_SESSION_BOUND.
 */
enum kvr_session_found kvr_session_resolve(struct kvr_session *s, const struct kvr_session_key *key,
					   uint64_t now, struct kvr_session_binding *to,
					   struct kvr_session_ref *ref);

/** Remove a binding. @return false if there was none. @p to may be NULL. */
bool kvr_session_unbind(struct kvr_session *table, const struct kvr_session_key *key,
			struct kvr_session_binding *to);

/** Remove a binding by its incarnation. @return false if that has already ended. */
bool kvr_session_unbind_ref(struct kvr_session *table, struct kvr_session_ref ref);

/**
 * A request starts or stops using the binding. The binding does not expire while requests use it;
 * its idle time starts when the last one leaves. No effect if the incarnation has ended.
 */
void kvr_session_enter(struct kvr_session *table, struct kvr_session_ref ref);
void kvr_session_leave(struct kvr_session *table, struct kvr_session_ref ref, uint64_t now);

/**
 * Handle a report of kvr_session_due(): remove @p ref if it still exists, has expired and is not in
 * use. @return true if it was removed; @p ended is then filled.
 */
bool kvr_session_confirm(struct kvr_session *table, struct kvr_session_ref ref, uint64_t now,
			 struct kvr_session_ended *ended);

/** Remaining time of a binding at @p now, without using it; 0: none or expired. */
uint64_t kvr_session_left(const struct kvr_session *table, const struct kvr_session_key *key,
			  uint64_t now);

/** Content of an entry, for a walk. */
struct kvr_session_held {
	const char *id; /**< valid until the next call that changes the table */
	uint32_t len;
	struct kvr_session_binding to;
	uint64_t ttl_ns, left_ns; /**< left_ns is the whole ttl while requests use the binding */
};

/** Number of entries that were ever used; a walk visits the entries below. */
uint32_t kvr_session_entries(const struct kvr_session *table);

/** Read entry @p n. @return false if it is free or expired at @p now. */
bool kvr_session_entry(const struct kvr_session *table, uint32_t n, uint64_t now,
		       struct kvr_session_held *out);

/**
 * Restore a binding of another process with @p left_ns of its time to live. An id that is already
 * bound keeps its binding.
 * @return 0; -EEXIST; -EINVAL: ttl or left is 0; -ENOSPC.
 */
int kvr_session_restore(struct kvr_session *table, const struct kvr_session_key *key,
			const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t left_ns,
			uint64_t now);

/* ---- control side ------------------------------------------------------------------------ */

/**
 * Take over new bindings and turn the wheel: fill @p due with up to @p n sessions that seem
 * expired. Call until kvr_session_behind() is false; then all sessions have been reported that
 * expired at least KVR_SESSION_LATE ago.
 * @return the number of sessions in @p due.
 */
uint32_t kvr_session_due(struct kvr_session *table, uint64_t now, struct kvr_session_ref due[],
			 uint32_t n);

/** Return true if the last call left work that is due at @p now. */
bool kvr_session_behind(const struct kvr_session *table, uint64_t now);

/* ---- any thread -------------------------------------------------------------------------- */

/**
 * Entries that are neither bound nor reserved. Exact on the scheduler side, approximate on other
 * threads.
 */
uint32_t kvr_session_room(const struct kvr_session *table);

/** Current bindings; total number of binds and reservations rejected because the table was full. */
uint32_t kvr_session_count(const struct kvr_session *table);
uint64_t kvr_session_rejected(const struct kvr_session *table);

#endif
