/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_H
#define ROUTER_H

/**
 * @file
 * The router as a whole; its parts have headers of their own: state/lcore.h (an lcore and its
 * stages), state/pool.h (a pool), state/message.h (a request and its message), state/ring_msg.h
 * (what travels on the rings between stages).
 *
 *   ingress (n lcores)     rx -> check -> reassemble -> hash -> score -> note ring of the pool;
 *                          HEARTBEAT is answered here and leaves its marks in the worker's beat
 *                          RESPONSE, RESPONSE_ACK: switched here, by handle; state changes
 *                          become notes
 *   event (1 per pool)     KV events -> prefix table; KV_ACK
 *   scheduler (1 per pool) notes -> decide, book, dispatch, free; owns the request slots
 *   egress                 frames of lcores without a queue of their own -> tx
 *   joins                  fragments of one sender that came to several ingress lcores
 *   control (main thread)  HELLO, GOODBYE, CONNECT, liveness, views, telemetry
 *
 * An lcore that owns a queue sends through it at once; the egress ring carries only the frames of
 * lcores without one (a scheduler or event lcore apart, and control).
 *
 * Control is preempted where packet lcores are not: whoever is stopped between the two steps of a
 * ring operation makes every other writer of that ring wait. So it writes to rings of its own only
 * (calls and an egress ring for each lcore, one producer), sends mbufs of a pool that only it takes
 * from, and gets frames as copies in buffers that only it gives back.
 *
 * Ownership of frames: whoever holds an mbuf either sends it (out_send(), which always takes it)
 * or frees it. A note that carries a job or an mbuf (state/ring_msg.h) hands it over with the note;
 * when the ring is full the sender keeps it and answers REJECTED.
 *
 * Writers: struct lcore by its own thread; struct pool by parts; the view by control, published
 * with a release store that pairs with the acquire load at the top of each loop, and freed after
 * every polling lcore has passed a quiescent state.
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

/** What one source may do on one port; written at start. */
struct source_rules {
	struct kvr_source_rate rate[KVR_SOURCE_BUCKETS];
	bool cookie; /* addresses are not believed without */
};

struct router {
	struct kvr_router_conf conf;
	struct kvr_router_conf *loaded; /* as the file says it, before sizes are derived */
	struct sizes sizes;		/* derived at start; constant afterwards */
	uint32_t n_ports, n_pools, n_lcores;
	char pool_names[256]; /* numbers and names, for who names another */
	uint32_t epoch;	      /* of this process, in every frame it makes */
	bool verbose;	      /* what EAL and drivers say is shown */
	uint32_t max_frame;
	uint64_t tsc_hz;
	uint64_t ns_per_tsc; /* 32.32 fixed point; 0: the clock stands still, in tests */
	uint64_t ns_offset;  /* what it shows then */
	uint64_t seed;
	uint64_t client_seed; /* of what sessions remember of their clients; as long as they */
	/* What control does while it waits for packet lcores; NULL: it sleeps. Who runs them on its
	 * own thread runs them here. Start. */
	void (*wait)(struct router *rt);
	/* How control sleeps for @ns at the end; NULL: nanosleep(). Start. */
	void (*pause)(struct router *rt, uint64_t ns);
	const struct kvr_snap_os *files; /* of snapshots; NULL: real ones. Start. */
	struct kvr_port *port[KVR_ROUTER_MAX_PORTS];
	/* Those of now are rules[rules_now]; control writes the others, publishes them, and does
	 * not touch the former ones until every lcore has ended its turn. */
	struct source_rules rules[2][KVR_ROUTER_MAX_PORTS];
	_Atomic uint32_t rules_now;
	struct kvr_cookie_key cookie_key;
	struct pool pool[KVR_ROUTER_MAX_POOLS];
	struct lcore *lcore[KVR_ROUTER_MAX_LCORES];
	struct lcore control; /* context of the control thread: sends through `via` */
	/* See buf_get(): requests that wait hold small ones, the longest take a large one. */
	struct rte_mempool *small_bufs;
	struct rte_mempool *hash_bufs;
	struct rte_mempool *hint_bufs;
	struct rte_mempool *frame_lists;
	struct rte_ring *control_ring; /* struct ctl_buf *, from the ingress lcores */
	uint32_t ctl_frame;	       /* bytes of the longest frame in one of them */
	struct rte_mempool *ctl_bufs;  /* ingress takes, control gives back */
	/* Control takes, whoever has sent gives back. Control itself never does: it may be
	 * preempted between the two steps of that, and lcores that give back would wait for it. */
	struct rte_mempool *ctl_mbufs;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_stats *in_stats;
	struct kvr_stats *reject_stats;
	_Atomic(struct kvr_view *) view;
	_Atomic uint64_t
		live_ns;     /* clock of silence, of the last tick; control: w, schedulers: r */
	_Atomic int running; /* packet lcores poll */
	_Atomic int quit;    /* signals to end: 1 stop in good order, more: at once */
	_Atomic int signal;  /* the newest of them */
	_Atomic int reload;  /* SIGHUP */
	_Atomic int stop;    /* packet lcores end; only when nobody calls them any more */
	/* control thread, telemetry threads; under the lock of lib/ctl */
	struct kvr_registry *registry;
	struct control *ctl;	   /* control/thread.h */
	struct snapshot *snapshot; /* control/snapshot.h; NULL: none are made */
	uint64_t last_tick_ns;
	bool stopping;					     /* nobody new is let in */
	enum kvr_port_link_state link[KVR_ROUTER_MAX_PORTS]; /* control thread: said in the log */
	uint64_t start_ns;
};

/** The name of the signal that ends the router, for the log. */
static inline const char *router_signal(const struct router *rt)
{
	const int sig = atomic_load_explicit(&rt->signal, memory_order_relaxed);

	return sig == SIGTERM ? "SIGTERM" : sig == SIGINT ? "SIGINT" : "a signal";
}

/** A TSC value as nanoseconds: one multiplication; wraps with the TSC, in centuries. */
static inline uint64_t tsc_ns(const struct router *rt, uint64_t tsc)
{
	return rt->ns_offset + (uint64_t)((unsigned __int128)tsc * rt->ns_per_tsc >> 32);
}

static inline uint64_t now_ns(const struct router *rt)
{
	return tsc_ns(rt, rte_rdtsc());
}

/** Time from @p then to @p now; 0 when @p then is ahead: clocks of lcores are read at their turns.
 */
static inline uint64_t since_ns(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

#define SMALL_BUF 8192u

/** Memory of @p len bytes: a small buffer, or one of the pool of large ones. NULL: none left. */
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

/** Room for @p n hashes, with one reference. NULL: none left. */
static inline struct prompt_hashes *hashes_get(struct router *rt, uint32_t n)
{
	struct prompt_hashes *h = buf_get(rt, rt->hash_bufs, sizeof(*h) + n * sizeof(h->sh[0]));

	if (h != NULL)
		atomic_store_explicit(&h->refs, 1, memory_order_relaxed);
	return h;
}

/** Another reference, by who has one. */
static inline struct prompt_hashes *hashes_share(struct prompt_hashes *h)
{
	atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
	return h;
}

/** Let go. Accepts NULL. */
static inline void hashes_put(struct prompt_hashes *h)
{
	if (h != NULL && atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) == 1)
		buf_put(h);
}

/** What sources may do on a port, in this turn. */
static inline const struct source_rules *rules_of_port(const struct router *rt, uint32_t port)
{
	/* Pairs with the release store in rules_update(). */
	return &rt->rules[atomic_load_explicit(&rt->rules_now, memory_order_acquire)][port];
}

/** The pool of a handle, of a number on the wire, or of a name of @p len bytes without NUL; NULL:
 * there is none. Any thread; pools last until the stop. */
struct pool *pool_of_handle(struct router *rt, uint64_t handle);
struct pool *pool_by_id(struct router *rt, uint32_t id);
struct pool *pool_by_name(struct router *rt, const char *name, size_t len);

/** Whether @p p has that name. */
bool pool_named(const struct pool *p, const char *name, size_t len);

static inline void in_count(struct lcore *lc, enum in_counter c)
{
	kvr_stats_inc(lc->in, c);
}

static inline void pool_count(struct pool *p, enum pool_counter c, uint64_t n)
{
	kvr_stats_add(p->count, c, n);
}

#endif
