/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LCORE_H
#define ROUTER_LCORE_H

/**
 * @file
 * A packet lcore: its queues, rings and stages, and what each of its stages keeps between turns.
 * Everything is written by the lcore's own thread, but for what start sets up and `calls`, whose
 * producer is control. Work in a turn is bounded: 50 us.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>
#include <rte_ring.h>

#include "kvr_hash.h"
#include "kvr_message.h"
#include "kvr_port.h"
#include "kvr_quota.h"
#include "kvr_reasm.h"
#include "kvr_source.h"
#include "kvr_worker.h"
#include "state/conf.h"
#include "state/counters.h"
#include "state/idle.h"

struct frame_list;
struct job;
struct lcore;
struct pool;
struct router;

#define BURST 32u
/* Bursts that are more than a device ring holds: with them all that waited in it has been read. */
#define RING_BURSTS 1024u
/* Most jobs one turn of an ingress lcore can make: a burst from every port, and fragments that
 * other lcores have received, any of which may be the last of its message. */
#define JOINS_TURN (4u * BURST)
#define JOBS_MAX   (BURST * KVR_ROUTER_MAX_PORTS + JOINS_TURN)

/* A longer gap between ticks, which come every 10 ms, is the router's own stall. */
#define QUIET_STEP UINT64_C(100000000)

enum stage { STAGE_INGRESS, STAGE_SCORE, STAGE_EVENT, STAGE_SCHED, STAGE_EGRESS, STAGES };

/** Work of one stage on one lcore. Lcore: rw, telemetry: ro (relaxed words). */
struct stage_work {
	STAGE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

/** Turns of one lcore; the same. */
struct lcore_work {
	LCORE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

extern const char *const router_stage_names[STAGES];

/** A function for a packet lcore to run, see call_start(). It does a little and returns false when
 * there is more, for the lcore's next turn. */
struct call {
	bool (*fn)(struct lcore *lc, void *arg);
	void *arg;
	_Atomic int busy;
};

/** What a worker has said of a rank, on its way to the pool's lcores. */
struct rank_load {
	uint64_t worker;
	uint32_t epoch;
	uint32_t rank; /* dense index */
	uint32_t dp_rank;
	uint32_t pad;
	uint64_t kv_used_blocks; /* UINT64_MAX: not said */
	uint64_t next_event_id;
};

/**
 * What sources have in the event ring of a pool, of the frames that one ingress lcore has put
 * there. They leave the ring in their order, and pool::event.done says how many have. That ingress
 * lcore; event/quota_dp.c.
 */
struct event_share {
	struct kvr_quota *share;
	uint32_t *ref; /* of the frames in the ring, from `tail` on; a power of two of them */
	uint32_t mask;
	uint32_t most;
	uint32_t head, tail; /* frames ever put there, and given back */
};

/** The message in fragments that an ingress lcore reads, and those that wait for that: read_dp.c.
 */
struct reading {
	struct frame_list *first, *last; /* the first is being read when `open` */
	uint32_t frames;		 /* of all */
	bool open;
	bool tokens;   /* that are hashed */
	uint32_t unit; /* body bytes of each frame but the last */
	uint32_t len;
	uint32_t at; /* body bytes read so far */
	struct job *j;
	struct kvr_message q;
	struct kvr_tlv_iter mm; /* of `stream` */
	struct kvr_hash_stream stream;
	struct kvr_digest digest;
};

/** How much a device has for an ingress lcore; what arrives at one port is not the others' load. */
struct port_load {
	uint64_t seen_ns;    /* last receive burst */
	uint64_t full_ns;    /* time of late in which they were full, foreign frames included */
	uint64_t step_ns;    /* overloaded: when it was last asked whether `part` is right */
	uint64_t lowered_ns; /* the same: when it could not grow for the last time */
	uint32_t excused;    /* full receive bursts to come that are not overload yet: weigh() */
	bool stalled;	     /* since the last one that was not full */
	uint32_t part;	     /* what a source may have in an overload: kvr_source_within_quota() */
	uint32_t full_steps; /* looks in a row, a millisecond apart, at a device not emptied */
	uint32_t got, taken; /* in them: frames of the device, and of requests let in */
	bool drained;	     /* since step_ns a burst was not full */
	bool overloaded;     /* requests of sources that have more are shed */
};

struct lcore {
	struct router *rt;
	uint32_t index;
	const struct kvr_view *view;
	uint64_t now_ns;
	uint64_t began; /* this turn, as TSC; 0: it has slept since, or there was none */
	struct kvr_port_queue *queue[KVR_ROUTER_MAX_PORTS]; /* NULL: sends through `via` */
	struct lcore *via;	     /* ingress lcore that sends for this one */
	struct rte_ring *egress;     /* struct egress_note, from packet lcores; ingress lcores */
	struct rte_ring *egress_ctl; /* the same, from control; lcore 0 */
	struct rte_ring *out;	     /* where its frames go without a queue of its own */
	struct rte_ring *joins;	   /* fragments that other ingress lcores received; NULL: none do */
	struct rte_ring *calls;	   /* struct call *, from control */
	struct call *call;	   /* it goes on in the next turn, or NULL */
	struct rte_mempool *mbufs; /* for answers */
	struct kvr_reasm *reasm;
	uint32_t moved[KVR_ROUTER_MAX_POOLS]; /* frames of fragmented messages given to pools */
	struct reading reading;
	struct frame_list *trash; /* messages whose frames are being freed */
	struct frame_list *spare; /* for the next message that becomes whole, or NULL */
	uint32_t free_left;	  /* frames of messages that may still be freed in this turn */
	/* ingress lcores: senders of frames with a good cookie, and all others */
	struct kvr_source_table *proven;
	struct kvr_source_table *sources;
	struct event_share events[KVR_ROUTER_MAX_POOLS];
	kvr_cell_t *in;	    /* enum in_counter */
	kvr_cell_t *reject; /* enum kvr_code */
	uint32_t n_event, n_sched;
	struct pool *event_pool[KVR_ROUTER_MAX_POOLS];
	struct pool *sched_pool[KVR_ROUTER_MAX_POOLS];
	struct port_load load[KVR_ROUTER_MAX_PORTS];
	uint32_t full_polls;	     /* in a row, in which a port gave a full burst */
	uint32_t handed;	     /* frames of this poll that went to another lcore's `joins` */
	_Atomic uint64_t read_up;    /* grows when all is read that had arrived some turns ago */
	struct kvr_live_clock quiet; /* silence of clients, and sessions: moves at sched_tick() */
	uint32_t send_left;	     /* bytes of long messages that may still leave in this turn */
	uint32_t n_jobs;
	struct job *job[JOBS_MAX]; /* scored together */
	uint8_t *hints; /* KVR_WIRE_MAX_HINTS bytes to write them to; lcores that schedule a pair */
	struct stage_work work[STAGES];
	struct lcore_work turns;
	unsigned int qsbr_id;
	unsigned int lcore_id; /* EAL's */
	struct idle idle;
} __rte_cache_aligned;

#endif
