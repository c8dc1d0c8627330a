/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WORKER_H
#define KVR_WORKER_H

/**
 * @file
 * The registry of workers: their states and the time of their last heartbeat.
 *
 *   joining --> serving <--> suspect        serving, suspect --> draining --> drained
 *   any state --> gone (GOODBYE, silence, or replacement by a new epoch)
 *   draining, drained --> serving (resume)
 *
 * The control lcore owns the registry and is its only reader and writer. Packet lcores use a
 * *view*: an immutable copy, published by one pointer store and freed after a QSBR grace period (by
 * the caller). A lookup in a view takes one or two cache lines: an open-addressed array of worker
 * numbers, at most half full, then the entry of the worker.
 *
 * Packet lcores write only the *beat* of a worker: words in which the lcore that receives a
 * heartbeat stores its time and content. A beat exists as long as its worker or a view that
 * contains it.
 *
 * The registry keeps the last epoch of workers that have gone (a tombstone), so that a late frame
 * does not revive an ended incarnation. The number of tombstones is bounded; the oldest are
 * overwritten.
 *
 * Pure: links without EAL. Time is passed in, as nanoseconds of any monotonic clock.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvr_path.h"
#include "kvr_wire.h"

#define KVR_WORKER_MAX_RANKS 256u /* dp_size of one worker */
#define KVR_RANK_NONE	     UINT32_MAX

#define KVR_WORKER_TEXT 256u
#define KVR_WORKER_ADDR 104u

/** How a prefill worker transfers its blocks (lib/sched/RULES.md, sections 9.2 to 9.4). */
struct kvr_worker_transfer {
	char host[KVR_WORKER_TEXT]; /* bootstrap address; "": none, synchronous path */
	uint16_t port;
	uint8_t enforcement;	     /* 0 none, 1 preferred, 2 required */
	double weight;		     /* weight if preferred */
	char taint[KVR_WORKER_TEXT]; /* taint of the decode workers that can be reached; "": unknown
				      */
};

/** Addresses of a worker for other programs. "": not reported. */
struct kvr_worker_addr {
	char engine[KVR_WORKER_ADDR]; /* "host:port" of the engine's HTTP server */
	char body[KVR_WORKER_ADDR];   /* of its agent, for bodies that are not sent in frames */
};

/** The content of a heartbeat about one rank. */
struct kvr_beat_load {
	_Atomic uint64_t kv_used_blocks; /* UINT64_MAX: not reported */
	_Atomic uint64_t next_event_id;
	_Atomic uint32_t fresh; /* not read by control yet */
	/* For telemetry only. */
	_Atomic uint32_t active_requests, events_unread;
	_Atomic uint16_t event_block_size;
	_Atomic uint8_t event_form, canaries_missed;
};

/**
 * The last heartbeat of a worker. Two lcores may write at the same time after the worker has moved:
 * each word is complete by itself.
 */
struct kvr_beat {
	_Atomic uint64_t received_ns; /* when it was received, by the clock of that lcore; 0: never.
					 Lcores: w */
	_Atomic uint32_t state; /* enum kvr_wire_worker_state for the reply to the next heartbeat.
				   Control: w */
	_Atomic uint32_t bookings; /* for the same reply. Control: w */
	_Atomic uint32_t
		drain_request; /* last drain request: number << 16 | KVR_BEAT_F_*. Lcores: w */
	_Atomic uint64_t
		hop; /* kvr_beat_hop() of a heartbeat with another next hop than the view's; 0: none
			since control took the last one. Lcores: w, control: rw */
	uint32_t refs; /* references: the worker and every view that contains it. Control */
	uint32_t n;
	struct kvr_beat_load load[]; /* of rank dp_start + i */
};

/** A worker as described by its HELLO, and its state in the router. Control: rw. */
struct kvr_worker {
	uint64_t id;
	uint32_t epoch;
	uint32_t pool;
	enum kvr_wire_worker_state state;
	uint32_t dp_start;
	uint32_t dp_size;
	uint32_t max_num_batched_tokens; /* 0: unknown */
	uint64_t total_kv_blocks;	 /* 0: unknown */
	uint8_t role;			 /* enum kvr_role */
	uint8_t flags;			 /* KVR_HELLO_F_* */
	bool moved;		     /* `path` or its next hop has changed in this incarnation */
	bool warm;		     /* a snapshot had all of its blocks */
	bool drained_by_agent;	     /* draining on request of its agent */
	uint32_t drain_request_done; /* beat->drain_request that was acted on last */
	uint64_t hello_digest; /* digest of the HELLO, which is constant within an incarnation */
	uint64_t boot;	       /* of the process that sent the HELLO; 0: not reported */
	struct kvr_path path;
	struct kvr_beat *beat; /* from kvr_worker_create_beat() */
	uint64_t read_ns;      /* beat->received_ns when control read it last */
	uint64_t last_seen_ns; /* time of the last heartbeat, on the clock of kvr_live_clock */
	uint64_t since_ns;     /* start of the current state */
	uint64_t drain_ns;     /* DRAINING: remaining requests are aborted at this time; 0: never */
	uint32_t bookings;     /* as last reported by the scheduler */
	uint32_t welcome_beat_ms; /* heartbeat interval in its WELCOME; 0: none was sent */
	struct kvr_worker_transfer transfer; /* prefill workers */
	struct kvr_worker_addr addr;
	uint32_t rank[KVR_WORKER_MAX_RANKS]; /* dense index of rank dp_start + i in its pool */
};

/** Entry of a view; immutable. */
struct kvr_view_worker {
	uint64_t id;
	uint32_t epoch;
	uint16_t pool;
	uint16_t state; /* enum kvr_wire_worker_state */
	uint32_t dp_start;
	uint32_t dp_size;
	uint32_t first_rank; /* index in kvr_view::rank of the dense rank of dp_start */
	struct kvr_path path;
	const struct kvr_worker_transfer *transfer; /* in the view; prefill workers, else NULL */
	const struct kvr_worker_addr *addr;	    /* in the view */
	struct kvr_beat *beat;
};

/** Immutable copy of the registry for packet lcores. */
struct kvr_view {
	uint32_t n;
	uint32_t mask;	 /* mask of the index */
	uint32_t moved;	 /* workers whose path differs from the one they joined with */
	uint64_t number; /* number of this view in its registry, starting at 1 */
	uint64_t seed;
	uint32_t *index; /* worker number + 1; 0: empty */
	uint32_t *rank;
	struct kvr_view_worker *worker;
	struct kvr_worker_transfer *transfer; /* of the prefill workers, in their order */
	struct kvr_worker_addr *addr;	      /* of all workers, in their order */
};

struct kvr_registry;

/**
 * Create a registry of at most @p max_workers live workers. @return the registry, or NULL with
 * errno EINVAL or ENOMEM.
 */
struct kvr_registry *kvr_registry_create(uint32_t max_workers, uint64_t seed);
void kvr_registry_destroy(struct kvr_registry *registry);

/** Worker by id, or NULL. */
struct kvr_worker *kvr_registry_find(struct kvr_registry *registry, uint64_t id);

/**
 * Add a worker in state joining.
 * @return the worker, or NULL with errno EEXIST (id known), ENOSPC (registry full), ENOMEM.
 */
struct kvr_worker *kvr_registry_add(struct kvr_registry *registry, uint64_t id, uint64_t now_ns);

/** Remove a worker and free it; only its last epoch is kept. The next add may reuse its memory. */
void kvr_registry_del(struct kvr_registry *registry, struct kvr_worker *worker);

/** The same in two steps: remove the worker from the registry, then free its memory. */
void kvr_registry_remove(struct kvr_registry *registry, struct kvr_worker *worker);
void kvr_worker_free(struct kvr_worker *worker);

/** Last epoch of a worker that has gone, if a tombstone is left; otherwise 0. */
uint32_t kvr_registry_last_epoch(const struct kvr_registry *registry, uint64_t id);

/** Create the beat of @p worker for its ranks. @return 0 or -ENOMEM. */
int kvr_worker_create_beat(struct kvr_worker *worker);

/** kvr_beat::hop of a heartbeat from @p from: its MAC and a hash of the path; never 0. */
uint64_t kvr_beat_hop(const struct kvr_path *from);

/**
 * Adopt the next hop of the heartbeats of @p worker if it differs from that of its path and the
 * heartbeats came by this path. The sender has been verified as the worker by id, epoch and
 * address, as far as an address can be trusted: a stricter check than ARP makes, but weaker than
 * the one for a move to another address. Clears the mark. @return true if the next hop changed.
 */
bool kvr_worker_adopt_hop(struct kvr_worker *worker);

/** Live workers, in order of joining; @p i below kvr_registry_count(). */
uint32_t kvr_registry_count(const struct kvr_registry *registry);
struct kvr_worker *kvr_registry_at(struct kvr_registry *registry, uint32_t i);

/** Return true if the state machine allows @p from -> @p to. */
bool kvr_worker_may_change(enum kvr_wire_worker_state from, enum kvr_wire_worker_state to);

/**
 * Change the state. @return 0, -EALREADY (already in this state), -EPERM (not allowed; nothing
 * changed).
 */
int kvr_worker_set_state(struct kvr_worker *worker, enum kvr_wire_worker_state to, uint64_t now_ns);

/** Name of a state: joining, serving, suspect, draining, drained, gone. */
const char *kvr_worker_state_name(enum kvr_wire_worker_state s);

/**
 * Return true if a change of state may need the attention of an operator: the worker became
 * unresponsive, or it left without being drained or with bookings. @p silent: no heartbeat for too
 * long.
 */
bool kvr_worker_is_loss(const struct kvr_worker *worker, enum kvr_wire_worker_state from,
			enum kvr_wire_worker_state to, bool silent);

/** Build a view of all workers. @return the view, or NULL with errno ENOMEM. */
struct kvr_view *kvr_view_build(struct kvr_registry *registry);
void kvr_view_free(struct kvr_view *view);

/** Worker by id, or NULL. Any lcore. */
const struct kvr_view_worker *kvr_view_find(const struct kvr_view *view, uint64_t id);

/** Dense rank index of (worker, dp_rank), or KVR_RANK_NONE. Any lcore. */
uint32_t kvr_view_rank(const struct kvr_view *view, const struct kvr_view_worker *worker,
		       uint32_t dp_rank);

/* ---- the clock that measures silence ---- */

/**
 * A clock that stops while its owner cannot receive. The silence of a worker counts only while the
 * router reads arriving frames. A stop of the process, of the virtual machine or of one lcore is
 * credited to every worker, and no worker is judged before the backlog has been read.
 */
struct kvr_live_clock {
	uint64_t now_ns;  /* time of this clock */
	uint64_t real_ns; /* real time when this clock last advanced */
	uint64_t most_ns; /* maximum of one step */
};

/**
 * Advance the clock to @p real_ns, by at most one step. It does not advance unless @p read: all
 * frames that had arrived at its last advance have been read. @return its time.
 */
static inline uint64_t kvr_live_clock_advance(struct kvr_live_clock *clock, uint64_t real_ns,
					      bool read)
{
	const uint64_t passed = real_ns - clock->real_ns;

	if (!read)
		return clock->now_ns;
	clock->real_ns = real_ns;
	clock->now_ns += passed < clock->most_ns ? passed : clock->most_ns;
	return clock->now_ns;
}

#endif
