/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WORKER_H
#define KVR_WORKER_H

/**
 * @file
 * The registry of workers: who is there, in which state, heard when.
 *
 *   joining --> serving <--> suspect        serving, suspect --> draining --> drained
 *   any state --> gone (said GOODBYE, silent too long, replaced by a new epoch)
 *   draining, drained --> serving (resume)
 *
 * The control lcore owns the registry and is its only reader and writer. What packet lcores may
 * know of it is a *view*: an immutable copy, built aside, published by one pointer store and freed
 * after a QSBR grace period (the caller's part). Lookups in a view cost one or two cache lines:
 * an open-addressed array of worker numbers at most half full, then the worker's entry.
 *
 * The one thing that packet lcores write is a worker's *beat*: words in which the lcore that sees a
 * heartbeat leaves when it was and what it said. A beat lives as long as its worker or a view that
 * has it.
 *
 * Of workers that have gone the registry keeps the last epoch (a tombstone), so that a late frame
 * does not bring back a life that is over. Tombstones are bounded, the oldest are forgotten.
 *
 * Pure: links without EAL; time is handed in as nanoseconds of any monotonic clock.
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

/** How blocks leave a prefill worker (behaviour specification, sections 9.2 to 9.4). */
struct kvr_worker_transfer {
	char host[KVR_WORKER_TEXT]; /* bootstrap address; "" = none: synchronous path */
	uint16_t port;
	uint8_t enforcement;	     /* 0 none, 1 preferred, 2 required */
	double weight;		     /* when preferred */
	char taint[KVR_WORKER_TEXT]; /* of decode workers that can be reached; "" = not known */
};

/** Where others find what belongs to a worker. "" = it has not said. */
struct kvr_worker_addr {
	char engine[KVR_WORKER_ADDR]; /* "host:port" of the engine's HTTP */
	char body[KVR_WORKER_ADDR];   /* of its agent, for bodies that do not come in frames */
};

/** What a heartbeat has said of one rank. */
struct kvr_beat_load {
	_Atomic uint64_t kv_used_blocks; /* UINT64_MAX: not reported */
	_Atomic uint64_t next_event_id;
	_Atomic uint32_t fresh; /* not taken yet */
	/* For telemetry alone. */
	_Atomic uint32_t active_requests, events_unread;
	_Atomic uint16_t event_block_size;
	_Atomic uint8_t event_form, canaries_missed;
};

/**
 * Where the heartbeats of a worker leave their marks. Two lcores may write at one time, when the
 * worker has just moved: each word is whole by itself.
 */
struct kvr_beat {
	_Atomic uint64_t received_ns; /* clock of the lcore that heard it; 0 never. Lcores: w */
	_Atomic uint32_t state; /* answered to the next one; enum kvr_wire_worker_state. Control */
	_Atomic uint32_t bookings; /* the same */
	_Atomic uint32_t
		drain_request; /* of the last one: number << 16 | KVR_BEAT_F_*. Lcores: w */
	_Atomic uint64_t hop; /* of one by another next hop than the view's: kvr_beat_hop(); 0: none
			       * since control took the last one. Lcores: w, control: rw */
	uint32_t refs;	      /* the worker, and every view that has it. Control */
	uint32_t n;
	struct kvr_beat_load load[]; /* of rank dp_start + i */
};

/** What a worker says of itself when it joins, and what the router knows of it. Control: rw. */
struct kvr_worker {
	uint64_t id;
	uint32_t epoch;
	uint32_t pool;
	enum kvr_wire_worker_state state;
	uint32_t dp_start;
	uint32_t dp_size;
	uint32_t max_num_batched_tokens; /* 0 unknown */
	uint64_t total_kv_blocks;	 /* 0 unknown */
	uint8_t role;			 /* enum kvr_role */
	uint8_t flags;			 /* KVR_HELLO_F_* */
	bool moved;			 /* `path` has changed in this life, or its next hop */
	bool warm;			 /* a snapshot had its blocks, all of them */
	bool drained_by_agent;		 /* it drains, and its agent has asked for that */
	uint32_t drain_request_done;	 /* beat->wish when it was last acted on */
	uint64_t hello_digest; /* digest of the HELLO: a life does not change what it is */
	uint64_t boot;	       /* of the process that said it; 0: not told */
	struct kvr_path path;
	struct kvr_beat *beat;	  /* from kvr_worker_create_beat() */
	uint64_t read_ns;	  /* beat->heard_ns when it was last looked at */
	uint64_t last_seen_ns;	  /* a heartbeat was found then, on the clock of kvr_live_clock */
	uint64_t since_ns;	  /* of this state */
	uint64_t drain_ns;	  /* DRAINING: what is left then is cut off; 0: never */
	uint32_t bookings;	  /* as last told by the scheduler */
	uint32_t welcome_beat_ms; /* how often it reports, as its WELCOME said; 0: none was sent */
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
	uint32_t first_rank; /* index into kvr_view::rank of dp_start's dense rank index */
	struct kvr_path path;
	const struct kvr_worker_transfer *transfer; /* in the view; prefill workers, else NULL */
	const struct kvr_worker_addr *addr;	    /* in the view */
	struct kvr_beat *beat;
};

/** Immutable copy of the registry for packet lcores. */
struct kvr_view {
	uint32_t n;
	uint32_t mask;	 /* of the index */
	uint32_t moved;	 /* workers whose path is not the one they joined with */
	uint64_t number; /* of the views of its registry, from 1 on */
	uint64_t seed;
	uint32_t *index; /* worker number + 1, 0 = empty */
	uint32_t *rank;
	struct kvr_view_worker *worker;
	struct kvr_worker_transfer *transfer; /* of the prefill workers, in their order */
	struct kvr_worker_addr *addr;	      /* of all, in their order */
};

struct kvr_registry;

/** Workers alive at most @p max_workers; @return NULL with errno EINVAL or ENOMEM. */
struct kvr_registry *kvr_registry_create(uint32_t max_workers, uint64_t seed);
void kvr_registry_destroy(struct kvr_registry *r);

/** Worker by id, or NULL. */
struct kvr_worker *kvr_registry_find(struct kvr_registry *r, uint64_t id);

/**
 * Add a worker in state joining.
 * @return worker, or NULL with errno EEXIST (id known), ENOSPC (registry full), ENOMEM.
 */
struct kvr_worker *kvr_registry_add(struct kvr_registry *r, uint64_t id, uint64_t now_ns);

/** Forget a worker but for its epoch. Its memory may be reused by the next add. */
void kvr_registry_del(struct kvr_registry *r, struct kvr_worker *w);

/** The same in two steps: it is not found any more; then its memory is given back. */
void kvr_registry_remove(struct kvr_registry *r, struct kvr_worker *w);
void kvr_worker_free(struct kvr_worker *w);

/** Last epoch of a worker that has gone, as far as that is remembered; else 0. */
uint32_t kvr_registry_last_epoch(const struct kvr_registry *r, uint64_t id);

/** Give @p w its beat, for the ranks it has. @return 0 or -ENOMEM. */
int kvr_worker_create_beat(struct kvr_worker *w);

/** kvr_beat::hop of a heartbeat from @p from: its MAC, and of which path; never 0. */
uint64_t kvr_beat_hop(const struct kvr_path *from);

/**
 * Take over the next hop by which heartbeats of @p w come, if that is another one than its path
 * has, and they came by this path. Who says so has been found to be the worker by its id, its life
 * and its address, as far as an address can be believed: more than ARP asks, and less than a move
 * to another address does. The mark is taken. @return whether it has changed.
 */
bool kvr_worker_adopt_hop(struct kvr_worker *w);

/** Workers alive, in order of joining; @p i below kvr_registry_count(). */
uint32_t kvr_registry_count(const struct kvr_registry *r);
struct kvr_worker *kvr_registry_at(struct kvr_registry *r, uint32_t i);

/** Whether the state machine allows @p from -> @p to. */
bool kvr_worker_may_change(enum kvr_wire_worker_state from, enum kvr_wire_worker_state to);

/** Change the state. @return 0, -EALREADY (is in it), -EPERM (not allowed; nothing changed). */
int kvr_worker_set_state(struct kvr_worker *w, enum kvr_wire_worker_state to, uint64_t now_ns);

/** Name of a state: joining, serving, suspect, draining, drained, gone. */
const char *kvr_worker_state_name(enum kvr_wire_worker_state s);

/** Whether a change of its state is one that somebody may have to look at: it is silent, or goes
 * otherwise than with nothing booked after it was drained. @p silent: not heard for too long. */
bool kvr_worker_is_loss(const struct kvr_worker *w, enum kvr_wire_worker_state from,
			enum kvr_wire_worker_state to, bool silent);

/** Build a view of all workers. @return view, or NULL with errno ENOMEM. */
struct kvr_view *kvr_view_build(struct kvr_registry *r);
void kvr_view_free(struct kvr_view *v);

/** Worker by id, or NULL. Any lcore. */
const struct kvr_view_worker *kvr_view_find(const struct kvr_view *v, uint64_t id);

/** Dense rank index of (worker, dp_rank), or KVR_RANK_NONE. Any lcore. */
uint32_t kvr_view_rank(const struct kvr_view *v, const struct kvr_view_worker *w, uint32_t dp_rank);

/* ---- the clock that silence is measured with ---- */

/**
 * A clock that stands still while its owner could not listen. Silence of a worker counts only while
 * the router reads what arrives: a stop of the process, of the virtual machine or of one lcore is
 * credited to every worker, and nobody is judged before what has piled up has been read.
 */
struct kvr_live_clock {
	uint64_t now_ns;  /* of this clock */
	uint64_t real_ns; /* of the other one when this one last moved */
	uint64_t most_ns; /* one step is never longer */
};

/** Let the clock go on to @p real_ns, by at most one step; not at all unless @p read: all that had
 * arrived when it last moved has been read. @return its time. */
static inline uint64_t kvr_live_clock_advance(struct kvr_live_clock *l, uint64_t real_ns, bool read)
{
	const uint64_t passed = real_ns - l->real_ns;

	if (!read)
		return l->now_ns;
	l->real_ns = real_ns;
	l->now_ns += passed < l->most_ns ? passed : l->most_ns;
	return l->now_ns;
}

#endif
