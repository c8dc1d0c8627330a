/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_H
#define ROUTER_H

/**
 * @file
 * The router. Parts have headers of their own: state/lcore.h (an lcore and its stages),
 * state/pool.h (a pool), state/message.h (a request and its message), state/ring_msg.h (elements of
 * rings).
 *
 *   ingress (n lcores)     rx -> check -> reassemble -> hash -> score -> mailbox of the pool;
 *                          HEARTBEAT is answered here and recorded in the worker's beat;
 *                          RESPONSE and RESPONSE_ACK are relayed here by handle, and changes of the
 *                          request become messages to the scheduler
 *   event (1 per pool)     KV events -> prefix table; KV_ACK
 *   scheduler (1 per pool) messages -> decide, book, dispatch, free; owns the request slots
 *   egress                 frames of lcores without a queue -> tx
 *   joins                  fragments of one sender that arrived at several ingress lcores
 *   control (main thread)  HELLO, GOODBYE, CONNECT, liveness, views, telemetry
 *
 * An lcore with a queue sends through it at once. The egress ring carries only frames of lcores
 * without a queue: separate scheduler and event lcores, and control.
 *
 * Unlike packet lcores, the control thread can be preempted. A thread that is preempted between the
 * two steps of a ring operation blocks all other writers of the ring. Therefore control writes only
 * to rings with one producer (calls, and an egress ring per lcore), sends mbufs of a pool from
 * which only control allocates, and receives copies of frames in buffers that only control frees.
 *
 * Ownership of frames: the owner of an mbuf either sends it (out_send() always takes it) or frees
 * it. A message with a job or an mbuf (state/ring_msg.h) transfers ownership. If the ring is full,
 * the sender keeps the data and answers REJECTED.
 *
 * Writers: each struct lcore by its own thread; struct pool by parts; the view by control,
 * published with a release store that pairs with the acquire load at the top of each loop, and
 * freed after every polling lcore has passed a quiescent state.
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_rcu_qsbr.h>
#include <rte_ring.h>

#include "kvr_cookie.h"
#include "kvr_sim.h"
#include "kvr_source.h"
#include "kvr_worker.h"
#include "state/counters.h"
#include "state/lcore.h"
#include "state/message.h"
#include "state/pool.h"
#include "state/ring_msg.h"

/** Limits of each source on one port. Written by rules_update(). */
struct source_rules {
	struct kvr_source_rate rate[KVR_SOURCE_BUCKETS];
	bool cookie; /* requests need a cookie that proves their address */
};

struct router {
	struct kvr_router_conf conf;
	struct kvr_router_conf *loaded; /* the configuration as read, before sizes are derived */
	struct sizes sizes;		/* derived at start; constant afterwards */
	uint32_t n_ports, n_pools, n_lcores;
	char pool_names[256]; /* numbers and names, for rejections with UnknownPool */
	uint32_t epoch;	      /* of this process, in every frame it sends */
	bool verbose;	      /* messages of EAL and drivers are shown */
	uint32_t max_frame;
	uint64_t tsc_hz;
	uint64_t ns_per_tsc; /* 32.32 fixed point; 0: the clock stands still, in tests */
	uint64_t ns_offset;  /* constant part of the clock */
	uint64_t seed;
	uint64_t client_seed; /* of client tags in sessions; lasts as long as the sessions */
	/* Called while control waits for packet lcores. NULL: sleep. A program that runs the lcores
	 * on its own thread runs them here. Set at start. */
	void (*wait)(struct router *rt);
	/* Replaces nanosleep() of control at the stop. NULL: nanosleep(). Set at start. */
	void (*pause)(struct router *rt, uint64_t ns);
	const struct kvr_snap_os *files; /* of snapshots; NULL: the real ones. Start. */
	struct kvr_port *port[KVR_ROUTER_MAX_PORTS];
	/* rules[rules_now] is valid. Control writes the other one, publishes it, and leaves the
	 * former one unchanged until every lcore has ended its turn. */
	struct source_rules rules[2][KVR_ROUTER_MAX_PORTS];
	_Atomic uint32_t rules_now;
	struct kvr_cookie_key cookie_key;
	struct pool pool[KVR_ROUTER_MAX_POOLS];
	struct lcore *lcore[KVR_ROUTER_MAX_LCORES];
	struct lcore control; /* context of the control thread: sends through `via` */
	/* See buf_get(): small buffers for most requests, large ones for long prompts. */
	struct rte_mempool *small_bufs;
	struct rte_mempool *hash_bufs;
	struct rte_mempool *hint_bufs;
	struct rte_mempool *frame_lists;
	struct rte_ring *control_ring; /* struct ctl_buf * from ingress lcores */
	uint32_t ctl_frame;	       /* longest frame in a struct ctl_buf, in bytes */
	struct rte_mempool *ctl_bufs;  /* taken by ingress, returned by control */
	/* Control allocates; the sending lcore frees. Control itself never frees: it could be
	 * preempted inside the operation and block freeing lcores. */
	struct rte_mempool *ctl_mbufs;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_stats *in_stats;
	struct kvr_stats *reject_stats;
	_Atomic(struct kvr_view *) view;
	_Atomic uint64_t live_ns; /* clock of silence at the last tick; written by control, read by
				     schedulers */
	_Atomic int running;	  /* packet lcores poll */
	_Atomic int quit;	  /* signals received: 1 stops in order, more stop at once */
	_Atomic int signal;	  /* the last one */
	_Atomic int reload;	  /* SIGHUP */
	_Atomic int stop; /* packet lcores end; set only when no thread calls them any more */
	/* control thread and telemetry threads, under kvr_telemetry_lock() */
	struct kvr_registry *registry;
	struct control *ctl;	   /* control/thread.h */
	struct snapshot *snapshot; /* control/snapshot.h; NULL: no snapshots */
	uint64_t last_tick_ns;
	bool stopping; /* no new workers and requests */
	enum kvr_port_link_state
		link[KVR_ROUTER_MAX_PORTS]; /* control thread: state that was logged last */
	uint64_t start_ns;
};

/** The name of the signal that stops the router, for the log. */
static inline const char *router_signal(const struct router *rt)
{
	const int sig = atomic_load_explicit(&rt->signal, memory_order_relaxed);

	return sig == SIGTERM ? "SIGTERM" : sig == SIGINT ? "SIGINT" : "a signal";
}

/** Convert a TSC value to nanoseconds with one multiplication. Wraps with the TSC, after centuries.
 */
static inline uint64_t tsc_ns(const struct router *rt, uint64_t tsc)
{
	return rt->ns_offset + (uint64_t)((unsigned __int128)tsc * rt->ns_per_tsc >> 32);
}

static inline uint64_t now_ns(const struct router *rt)
{
	return tsc_ns(rt, rte_rdtsc());
}

/** Time from @p then to @p now; 0 if @p then is later, as lcores read the clock at different times.
 */
static inline uint64_t since_ns(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

#define SMALL_BUF 8192u

/** Allocate @p len bytes: a small buffer, or one of @p large. NULL: none is free. */
static inline void *buf_get(struct router *rt, struct rte_mempool *large, size_t len)
{
	void *b;

	if (KVR_SIM_FAULT(BUFFER))
		return NULL;
	if (len <= SMALL_BUF && rte_mempool_get(rt->small_bufs, &b) == 0)
		return b;
	return rte_mempool_get(large, &b) == 0 ? b : NULL;
}

static inline void buf_put(void *b)
{
	if (b != NULL)
		rte_mempool_put(rte_mempool_from_obj(b), b);
}

/** Allocate memory for @p n hashes, with one reference. NULL: none is free. */
static inline struct prompt_hashes *hashes_get(struct router *rt, uint32_t n)
{
	struct prompt_hashes *hashes =
		buf_get(rt, rt->hash_bufs, sizeof(*hashes) + n * sizeof(hashes->sh[0]));

	if (hashes != NULL)
		atomic_store_explicit(&hashes->refs, 1, memory_order_relaxed);
	return hashes;
}

/** Add a reference; the caller has one. */
static inline struct prompt_hashes *hashes_share(struct prompt_hashes *hashes)
{
	atomic_fetch_add_explicit(&hashes->refs, 1, memory_order_relaxed);
	return hashes;
}

/** Drop a reference. Accepts NULL. */
static inline void hashes_put(struct prompt_hashes *hashes)
{
	if (hashes != NULL &&
	    atomic_fetch_sub_explicit(&hashes->refs, 1, memory_order_acq_rel) == 1)
		buf_put(hashes);
}

/** Limits of sources on a port in this turn. */
static inline const struct source_rules *rules_of_port(const struct router *rt, uint32_t port)
{
	/* Pairs with the release store in rules_update(). */
	return &rt->rules[atomic_load_explicit(&rt->rules_now, memory_order_acquire)][port];
}

/** Find the pool of a handle, of a number on the wire, or of a name of @p len bytes without NUL;
 * NULL: none. Any thread; pools last until the stop. */
struct pool *pool_of_handle(struct router *rt, uint64_t handle);
struct pool *pool_by_id(struct router *rt, uint32_t id);
struct pool *pool_by_name(struct router *rt, const char *name, size_t len);

/** Whether @p pool has that name. */
bool pool_named(const struct pool *pool, const char *name, size_t len);

static inline void in_count(struct lcore *lc, enum in_counter c)
{
	kvr_stats_inc(lc->in, c);
}

static inline void pool_count(struct pool *pool, enum pool_counter c, uint64_t n)
{
	kvr_stats_add(pool->count, c, n);
}

#endif
