/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LCORE_H
#define ROUTER_LCORE_H

/**
 * @file
 * A packet lcore: its queues, rings and stages, and the state of each stage between turns.
 * Writer: the lcore's own thread, except for the fields set at start, and `calls`, which the
 * control thread fills. Budget: 50 us a turn.
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
/* Number of bursts that certainly empties a device ring. */
#define RING_BURSTS 1024u
/* Largest number of jobs in one turn of an ingress lcore: a burst from every port, and forwarded
 * fragments that each complete a message. */
#define JOINS_TURN (4u * BURST)
#define JOBS_MAX   (BURST * KVR_ROUTER_MAX_PORTS + JOINS_TURN)

/* Ticks come every 10 ms. A longer gap than this is a stall of the router itself. */
#define QUIET_STEP UINT64_C(100000000)

enum stage { STAGE_INGRESS, STAGE_SCORE, STAGE_EVENT, STAGE_SCHED, STAGE_EGRESS, STAGES };

/** Work of one stage on one lcore. Written by the lcore; telemetry reads whole words. */
struct stage_work {
	STAGE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

/** Turns of one lcore. Written by the lcore; telemetry reads whole words. */
struct lcore_work {
	LCORE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

extern const char *const router_stage_names[STAGES];

/** A function for a packet lcore to run, see call_start(). It does a little work and returns false
 * if it must continue in the lcore's next turn. */
struct call {
	bool (*fn)(struct lcore *lc, void *arg);
	void *arg;
	_Atomic int busy;
};

/** A worker's report about one rank, on its way to the lcores of the pool. */
struct rank_load {
	uint64_t worker;
	uint32_t epoch;
	uint32_t rank; /* dense index */
	uint32_t dp_rank;
	uint32_t pad;
	uint64_t kv_used_blocks; /* UINT64_MAX: not reported */
	uint64_t next_event_id;
};

/**
 * Frames of one ingress lcore in the event ring of a pool, with the quota of their sources. Frames
 * leave the ring in order; pool::event.done counts them. Writer: the ingress lcore;
 * event/quota_dp.c.
 */
struct event_frames_quota {
	struct kvr_quota *quota;
	uint32_t *ref; /* quota references of the frames in the ring, from `tail` on; a ring of mask
			  + 1 */
	uint32_t mask;
	uint32_t most;
	uint32_t head, tail; /* frames put into the ring, and returned to the quota */
};

/** Queue of complete fragmented messages of an ingress lcore, and the reading state of its first
 * message: read_dp.c. */
struct reading {
	struct frame_list *first, *last; /* `first` is being read if `open` */
	uint32_t frames;		 /* frames of all messages in the queue */
	bool open;
	bool tokens;   /* its tokens are being hashed */
	uint32_t unit; /* body bytes of each frame except the last */
	uint32_t len;
	uint32_t at; /* body bytes read so far */
	struct job *j;
	struct kvr_message q;
	struct kvr_tlv_iter mm; /* TLVs that `stream` reads */
	struct kvr_hash_stream stream;
	struct kvr_digest digest;
};

/** Receive load of one port at an ingress lcore. Ports are measured independently. */
struct port_load {
	uint64_t seen_ns; /* last receive burst */
	uint64_t full_ns; /* accumulated time of full bursts, frames of other protocols included */
	uint64_t step_ns; /* while overloaded: last adjustment of `part` */
	uint64_t lowered_ns; /* while overloaded: last time that `part` could not grow */
	uint32_t excused;    /* further full bursts that do not count as overload: weigh_burst() */
	bool stalled;	     /* all bursts were full since the last short one */
	uint32_t part;	     /* share of a source during overload: kvr_source_within_quota() */
	uint32_t full_steps; /* consecutive steps of 1 ms in which the device was not emptied */
	uint32_t got, taken; /* in these steps: frames received, frames of admitted requests */
	bool drained;	     /* a burst since step_ns was not full */
	bool overloaded;     /* requests of sources above their share are shed */
};

struct lcore {
	struct router *rt;
	uint32_t index;
	const struct kvr_view *view;
	uint64_t now_ns;
	uint64_t began; /* start of this turn, as TSC; 0: first turn, or after a sleep */
	struct kvr_port_queue *queue[KVR_ROUTER_MAX_PORTS]; /* NULL: sends through `out` */
	struct lcore *via;	     /* ingress lcore that sends for this one */
	struct rte_ring *egress;     /* struct egress_msg from packet lcores; ingress lcores only */
	struct rte_ring *egress_ctl; /* struct egress_msg from control; lcore 0 only */
	struct rte_ring *out;	     /* egress ring of `via`, for lcores without a queue */
	struct rte_ring *joins;	     /* forwarded fragments; NULL: one ingress lcore */
	struct rte_ring *calls;	     /* struct call *, from control */
	struct call *call;	     /* call that continues in the next turn, or NULL */
	struct rte_mempool *mbufs;   /* for answers of this lcore */
	struct kvr_reasm *reasm;
	uint32_t moved[KVR_ROUTER_MAX_POOLS]; /* frames of fragmented messages handed to pools */
	struct reading reading;
	struct frame_list *trash; /* lists whose frames are being freed */
	struct frame_list *spare; /* list for the next complete message, or NULL */
	uint32_t free_left;	  /* frames that may still be freed in this turn */
	/* ingress lcores: sources with a valid cookie, and all others */
	struct kvr_source_table *proven;
	struct kvr_source_table *sources;
	struct event_frames_quota events[KVR_ROUTER_MAX_POOLS];
	kvr_cell_t *in;	    /* enum in_counter */
	kvr_cell_t *reject; /* enum kvr_code */
	uint32_t n_event, n_sched;
	struct pool *event_pool[KVR_ROUTER_MAX_POOLS];
	struct pool *sched_pool[KVR_ROUTER_MAX_POOLS];
	struct port_load load[KVR_ROUTER_MAX_PORTS];
	uint32_t full_polls; /* consecutive polls in which a port returned a full burst */
	uint32_t handed; /* frames of this poll forwarded to the `joins` ring of another lcore */
	_Atomic uint64_t read_up; /* grows when all frames that arrived some turns ago are read */
	struct kvr_live_clock quiet; /* of client silence and sessions; sched_tick() */
	uint32_t send_left; /* bytes of long messages that may still be sent in this turn */
	uint32_t n_jobs;
	struct job *job[JOBS_MAX]; /* batch that is scored together */
	uint8_t *hints; /* buffer of KVR_WIRE_MAX_HINTS bytes; lcores that schedule a pair */
	struct stage_work work[STAGES];
	struct lcore_work turns;
	unsigned int qsbr_id;
	unsigned int lcore_id; /* number of the EAL lcore */
	struct idle idle;
} __rte_cache_aligned;

#endif
