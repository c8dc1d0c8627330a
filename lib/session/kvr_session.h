/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SESSION_H
#define KVR_SESSION_H

/**
 * @file
 * Sticky sessions: session id -> (worker, rank), with a time to live that slides on every use
 * (behaviour specification, section 10).
 *
 * Data structure: entries in one array sized at create, found through an open-addressing index of
 * (hash tag, entry), at most half full; ids are any bytes up to 256. Expiry is a wheel of 1,024
 * slots of one second: an entry stands in the slot of its time when it was put there, is looked
 * at once when that second comes, and moves on when its time has slid. So a tick costs what is
 * due or has slid, not what exists, and kvr_session_expire() works in bursts.
 *
 * Budget: resolve, bind, unbind 150 ns with a million sessions. One owner thread; time is passed
 * in (nanoseconds, never falling). Nothing allocates after create. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_SESSION_ID_MAX 256u

struct kvr_session;

struct kvr_session_binding {
	uint64_t worker;
	uint32_t dp_rank;
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

/** At most @p max_sessions, about 340 B each. @return NULL with errno EINVAL or ENOMEM. */
struct kvr_session *kvr_session_create(uint32_t max_sessions, uint64_t seed, uint64_t now);

/** Accepts NULL. */
void kvr_session_destroy(struct kvr_session *s);

/**
 * Bind, or bind anew; @p ttl_ns from now.
 * @return 0; -EINVAL id empty or too long, or ttl 0; -ENOSPC table full (counted).
 */
int kvr_session_bind(struct kvr_session *s, const void *id, size_t len,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now);

/** Where the session is bound; @p to is filled unless NONE. */
enum kvr_session_found kvr_session_resolve(struct kvr_session *s, const void *id, size_t len,
					   uint64_t now, struct kvr_session_binding *to);

/** Forget a binding. @return false when there was none. @p to may be NULL. */
bool kvr_session_unbind(struct kvr_session *s, const void *id, size_t len,
			struct kvr_session_binding *to);

/** Time left of a binding at @p now, without using it; 0 = none or over. */
uint64_t kvr_session_left(const struct kvr_session *s, const void *id, size_t len, uint64_t now);

/**
 * Remove up to @p n sessions whose time is over.
 * @return how many; when it equals @p n, use them and call again.
 */
uint32_t kvr_session_expire(struct kvr_session *s, uint64_t now, struct kvr_session_ended out[],
			    uint32_t n);

/** Bindings held now; how many were refused for want of room, ever. */
uint32_t kvr_session_count(const struct kvr_session *s);
uint64_t kvr_session_refused(const struct kvr_session *s);

#endif
