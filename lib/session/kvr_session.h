/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SESSION_H
#define KVR_SESSION_H

/**
 * @file
 * Sticky sessions: session id -> (worker, rank), with a time to live that slides on every use
 * (behaviour specification, section 10).
 *
 * Two owners, each a thread of its own (or one thread that plays both):
 *
 *   scheduler side                                     control side
 *   index[ ] (tag, entry) --> entry[ ]  320 bytes      wheel: link[ ], 8,192 slots of 134 ms
 *     bind resolve unbind      hot 52 | id 256           kvr_session_due(): what seems over
 *     enter leave confirm        |                          |
 *        |                       +---- expires, ttl, active, read by control ---->+
 *        +-- queue of entries to arm ------------------------------------------->-+
 *        <-- struct kvr_session_ref, by whatever way the caller has ------------- +
 *
 * - The scheduler side owns index, entries and free list. No call costs more than one probe of
 *   the index and one entry: ids hash with a secret seed, the index is at most half full.
 * - The control side owns the wheel. An entry is armed when it is bound: its number goes through a
 *   queue inside the table. It is looked at when its time comes; one whose time has slid moves on,
 *   one that seems over is reported, and looked at again a second later until it is gone. So what
 *   is reported may be lost on its way, and a call costs what is due or has slid, at most
 *   KVR_SESSION_CHECKS entries, never what exists.
 * - What is due is only a guess of control; kvr_session_confirm() on the scheduler side decides.
 *   The time never moves to before the next look of control except by a bind, so binds alone arm.
 * - An entry is in the queue at most once (`queued`), so the queue has room for all and is never
 *   full: there is no session that cannot expire.
 *
 * Writers. Entries, index, free list, queue tail: scheduler side. Wheel, queue head: control side.
 * `queued` of an entry is set by the scheduler side and cleared by control.
 *
 * Budget, a million sessions and cold caches: resolve, bind and unbind 150 ns when the lines are
 * fetched ahead for a burst (kvr_session_prefetch()); two misses one after the other without.
 * About 350 bytes a session, in huge pages where there are some, touched at create.
 *
 * Ids are any 1 to 256 bytes. Time is passed in, nanoseconds, never falling. Nothing allocates
 * after create. Pure: no EAL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_SESSION_ID_MAX 256u
#define KVR_SESSION_MAX	   (1u << 30)	       /* sessions of a table */
#define KVR_SESSION_CHECKS 1024u	       /* entries one kvr_session_due() looks at */
#define KVR_SESSION_LATE   (UINT64_C(2) << 27) /* ns, two ticks of the wheel */

struct kvr_session;

struct kvr_session_binding {
	uint64_t worker;
	uint32_t dp_rank;
	uint64_t tag; /**< the caller's own */
};

/** An id with its hash. The id's bytes stay the caller's. */
struct kvr_session_key {
	const void *id;
	uint32_t len;
	uint32_t hash;
};

/** One life of a binding; a zeroed one is nobody's. */
struct kvr_session_ref {
	uint32_t entry;
	uint32_t gen;
};

/** One that expired; the id is valid until the next call that changes the table. */
struct kvr_session_ended {
	const void *id;
	uint32_t len;
	struct kvr_session_binding to;
};

enum kvr_session_found {
	KVR_SESSION_NONE,
	KVR_SESSION_BOUND,   /**< its time starts anew */
	KVR_SESSION_EXPIRED, /**< its time was over: it is removed now; tell the worker */
};

/** Bytes of a table, mapped and touched when it is created. Any thread. */
size_t kvr_session_bytes(uint32_t max_sessions);

/** At most @p max_sessions (1..KVR_SESSION_MAX). @return NULL with errno EINVAL or ENOMEM. */
struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now);

/** Accepts NULL. */
void kvr_session_destroy(struct kvr_session *s);

/**
 * Call @p fn with the entry (of its ref, below max_sessions) of every binding that ends, whatever
 * ends it (bound anew counts, too), on the scheduler side. NULL: nobody. Before the table is used.
 */
void kvr_session_on_drop(struct kvr_session *s, void (*fn)(void *arg, uint32_t entry), void *arg);

/** Hash an id. Any thread. @return false when it is empty or too long; @p key is not usable. */
bool kvr_session_key(const struct kvr_session *s, const void *id, size_t len,
		     struct kvr_session_key *key);

/* ---- scheduler side ---------------------------------------------------------------------- */

/**
 * Fetch what a call about @p key will touch: step 0 some calls ahead, step 1 one or two calls
 * later, reading what step 0 has fetched. Never needed for correctness.
 */
void kvr_session_prefetch(const struct kvr_session *s, const struct kvr_session_key *key, int step);

/**
 * Bind, or bind anew; @p ttl_ns from now. A new binding of the same id is a new life: requests
 * that have entered the old one do not count for it.
 * @param ref filled unless NULL.
 * @return 0; -EINVAL ttl 0; -ENOSPC no room (counted).
 */
int kvr_session_bind(struct kvr_session *s, const struct kvr_session_key *key,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now,
		     struct kvr_session_ref *ref);

/**
 * Keep room for one that will be bound later: kvr_session_bind() right after
 * kvr_session_unreserve() does not fail for want of room.
 * @return false when there is none (counted).
 */
bool kvr_session_reserve(struct kvr_session *s);
void kvr_session_unreserve(struct kvr_session *s);

/** Where the session is bound; @p to is filled unless NONE, @p ref (may be NULL) when BOUND. */
enum kvr_session_found kvr_session_resolve(struct kvr_session *s, const struct kvr_session_key *key,
					   uint64_t now, struct kvr_session_binding *to,
					   struct kvr_session_ref *ref);

/** Forget a binding. @return false when there was none. @p to may be NULL. */
bool kvr_session_unbind(struct kvr_session *s, const struct kvr_session_key *key,
			struct kvr_session_binding *to);

/** The same by its life; false when that is over already. */
bool kvr_session_unbind_ref(struct kvr_session *s, struct kvr_session_ref ref);

/**
 * A request begins to use the binding, which does not expire before as many have left; its idle
 * time starts anew when the last one leaves. Both do nothing when that life is over.
 */
void kvr_session_enter(struct kvr_session *s, struct kvr_session_ref ref);
void kvr_session_leave(struct kvr_session *s, struct kvr_session_ref ref, uint64_t now);

/**
 * kvr_session_due() has reported @p ref: remove it when it is still there, really over and not in
 * use. @return true: removed, @p e says what it was.
 */
bool kvr_session_confirm(struct kvr_session *s, struct kvr_session_ref ref, uint64_t now,
			 struct kvr_session_ended *e);

/** Time left of a binding at @p now, without using it; 0 = none or over. */
uint64_t kvr_session_left(const struct kvr_session *s, const struct kvr_session_key *key,
			  uint64_t now);

/** What an entry holds, for a walk. */
struct kvr_session_held {
	const char *id; /**< valid until the next call that changes the table */
	uint32_t len;
	struct kvr_session_binding to;
	uint64_t ttl_ns, left_ns; /**< left: its whole time while requests use it */
};

/** Entries that were ever used; a walk looks at those below. */
uint32_t kvr_session_entries(const struct kvr_session *s);

/** Entry @p n of those. @return false: it is free, or over at @p now. */
bool kvr_session_entry(const struct kvr_session *s, uint32_t n, uint64_t now,
		       struct kvr_session_held *out);

/**
 * Bind as it was bound in another life of the table, with @p left_ns of its time to live. An id
 * that is bound now keeps its binding.
 * @return 0; -EEXIST; -EINVAL ttl or left 0; -ENOSPC.
 */
int kvr_session_restore(struct kvr_session *s, const struct kvr_session_key *key,
			const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t left_ns,
			uint64_t now);

/* ---- control side ------------------------------------------------------------------------ */

/**
 * Take over what was bound and turn the wheel: up to @p n sessions whose time seems over. Called
 * until kvr_session_behind() is false, it has told of all that were over KVR_SESSION_LATE ago.
 * @return how many.
 */
uint32_t kvr_session_due(struct kvr_session *s, uint64_t now, struct kvr_session_ref due[],
			 uint32_t n);

/** Whether the last call left work undone that is due at @p now. */
bool kvr_session_behind(const struct kvr_session *s, uint64_t now);

/* ---- any thread -------------------------------------------------------------------------- */

/** Room that is neither bound nor kept for an open. Scheduler side: exact; others: about. */
uint32_t kvr_session_room(const struct kvr_session *s);

/** Bindings held now; how many were refused for want of room, ever. */
uint32_t kvr_session_count(const struct kvr_session *s);
uint64_t kvr_session_rejected(const struct kvr_session *s);

#endif
