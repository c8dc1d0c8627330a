/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_POOL_H
#define ROUTER_POOL_H

/**
 * @file
 * A pool: the workers of one model in one role, with the tables and rings they need. A part for
 * each writer, on cache lines of its own: what never changes, the event lcore's, the scheduler
 * lcore's, what a pair of pools adds to that, and control's. No word has two writers; a word that
 * an lcore or control reads while another writes it is atomic and says who reads it.
 */

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>
#include <rte_ring.h>

#include "kvr_disagg.h"
#include "kvr_flight.h"
#include "kvr_prefix.h"
#include "kvr_quota.h"
#include "kvr_rand.h"
#include "kvr_request.h"
#include "kvr_sched.h"
#include "kvr_stats.h"
#include "state/conf.h"
#include "state/message.h"
#include "state/ring_msg.h"

struct decision_log;
struct lcore;
struct measures;
struct rank_counts;
struct router;
struct session_use;
struct sessions;

/** How long a DISPATCH waits for its acknowledgement: 20 ms << step, at most 1 s. */
#define LEG_STEPS 7u

/** How much of what a rank holds is known to be so. */
enum cursor_faith {
	CURSOR_SURE,  /* events told it */
	CURSOR_ASKED, /* of a snapshot, true before event `next`: its agent is asked to go on */
	CURSOR_HINT,  /* of a snapshot, true at some time before: its agent is asked for a dump */
};

/** Where a rank's event stream stands. Event lcore only. */
struct event_cursor {
	uint64_t worker; /* whose rank it is */
	uint32_t epoch;	 /* its life; 0: nobody's */
	uint8_t dumping;
	uint8_t faith; /* enum cursor_faith */
	uint8_t pad[2];
	uint32_t has_dump; /* dump_id is valid */
	uint64_t dump_id;  /* header id of the frames of the last dump */
	uint64_t next;	   /* event id */
	uint64_t dump_pos; /* next frame of the dump; 0 outside dumps */
	/* `next` when a heartbeat last said that more exists, or of a dump `dump_pos` and bit 63;
	 * else UINT64_MAX */
	uint64_t lag;
};

/** What is said of a rank's event stream since its worker's life began. Event lcore; scheduler
 * lcore, telemetry: r. */
enum event_rank_cell {
	ER_AUTHORITATIVE, /* 1: nothing is known to be missing */
	ER_LAG,		  /* events that a heartbeat knew of and that have not come */
	ER_GAPS,	  /* frames refused because earlier events are missing */
	ER_DUMPS,	  /* whole ones */
	ER_CLEARS,
	ER_REGRESSIONS, /* frames whose events were applied before */
	ER_STORED,	/* blocks */
	ER_REMOVED,	/* blocks */
	ER_RESTORED,	/* blocks, from a snapshot */
	ER_CELLS
};
struct event_rank {
	kvr_cell_t v[ER_CELLS];
} __rte_cache_aligned;

/** What sources have of a pool. Scheduler lcore; quota_dp.c. */
struct shares {
	struct kvr_quota *slots;
	struct kvr_quota *jobs;	  /* that wait */
	struct kvr_quota *frames; /* of those */
	struct kvr_quota *sessions;
	uint32_t *session;  /* by its entry: what its source is charged */
	uint32_t n_waiting; /* jobs */
};

/** Writer: the event lcore. */
struct pool_event {
	struct event_note open; /* goes on in the next turn; zeroes: none */
	uint64_t skip;		/* events of it that are done, when it is of a dump */
	uint32_t at;		/* blocks of the event after those that are done */
	bool dear;		/* room is being made: small pieces */
	uint32_t fetched;	/* notes at the head of the ring that event_fetch() has seen */
	uint64_t expire_ns;	/* next kvr_prefix_expire() */
	uint64_t doubt_ns;   /* what of a snapshot is not confirmed then is dropped; 0: nothing */
	uint32_t doubt_rank; /* next to look at */
	/* frames that have left the ring, by the ingress lcore that reads it; publishes nothing */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t done[KVR_ROUTER_MAX_LCORES];
} __rte_cache_aligned;

/** Notes, when one lcore does everything: lcore/mailbox.h. That lcore; telemetry: r. */
struct note_array {
	struct note *v;
	uint32_t mask;
	_Atomic uint32_t head; /* next to take */
	_Atomic uint32_t tail; /* next to fill; both begin at 0 again when it is empty */
};

/** Requests that are live. Writer: the scheduler lcore. */
struct pool_live {
	struct kvr_rq_pool rq; /* constant but for `expected`, `closed` and what it counts */
	struct request *free_request;
	struct note_array notes;		   /* in use when pool::notes is NULL */
	struct kvr_flight_list aborts;		   /* by abort_ns */
	struct kvr_flight_list resends[LEG_STEPS]; /* DISPATCH without an answer, by wait */
	struct sending_list sends;		   /* that have something to send */
	uint32_t n_lost;			   /* in pool::lost */
	/* asks for a decision about a long prompt that is not ready, sched/prompts.h; r NULL: none
	 */
	struct {
		struct request *r;
		const struct kvr_sched_req *req;
		uint32_t leg;
	} asking;
	/* hashes of a booking that goes on, sched/prompts.h; NULL: none */
	struct prompt_hashes *entering;
	uint32_t sweep; /* next slot to look at for deadlines */
	uint32_t look;	/* slots to look at in this tick still */
	uint64_t begun; /* the greatest of pool::begun */
	struct shares shares;
	/* frames kept by requests that wait, held_dp.c; telemetry: r */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t held;
	/* frames of lcore::moved that came, by the ingress lcore that reads it */
	_Atomic uint32_t taken[KVR_ROUTER_MAX_LCORES];
} __rte_cache_aligned;

/** What a pool of a pair has besides. Writer: the scheduler lcore of both its pools. */
struct pool_pair {
	struct kvr_rand rand;	  /* decode pool: rooms */
	uint32_t n_prefilling;	  /* decode pool: decode leg not decided yet */
	struct kvr_disagg disagg; /* prefill pool: whether it takes part; telemetry: r */
} __rte_cache_aligned;

/** Writer: control. */
struct pool_control {
	/* a worker may come (back) soon; scheduler lcore: r, into live.rq.expected */
	_Atomic bool expected;
} __rte_cache_aligned;

/** The first part is constant: written at start, read by every thread. What its pointers lead to
 * has the writer that is named. */
struct pool {
	struct router *rt;
	const char *name;
	uint32_t number;  /* index, in handles */
	uint32_t wire_id; /* in messages */
	uint32_t block_size;
	uint32_t max_ranks;
	uint32_t max_prompt_blocks;
	uint32_t max_held; /* of live.held */
	uint32_t n_requests;
	uint32_t predict_ttl_ms;
	uint8_t role;
	bool eagle;	  /* tokens are hashed in eagle windows */
	bool events_used; /* KV events are applied */
	bool predict;	  /* decisions may be entered as predicted blocks */
	const struct kvr_pool_conf *conf;
	const struct kvr_router_pool_options *opt;
	struct lcore *sched_lcore;
	struct lcore *event_lcore;
	struct pool *prefill;	   /* of a decode pool; else NULL */
	struct pool *decode;	   /* of a prefill pool; else NULL */
	struct pool *other;	   /* whichever of these there is, or the pool itself */
	struct rte_mempool *jobs;  /* ingress takes, scheduler gives back */
	struct rte_mempool *pairs; /* decode pool; the same */
	struct rte_ring *notes;	   /* struct note; many producers. NULL: live.notes */
	struct rte_ring *events;   /* struct event_note; many producers */
	/* event lcore writes */
	struct kvr_prefix *prefix;	/* every thread: r, under QSBR */
	struct event_cursor *cursor;	/* by dense rank */
	struct event_rank *event_ranks; /* the same */
	kvr_cell_t *event_count;	/* enum event_counter */
	struct kvr_stats *event_stats;
	/* scheduler lcore writes */
	struct kvr_flight_table *requests; /* ingress: relay parts */
	struct kvr_sched *sched;
	struct decision_log *log;
	uint64_t *begun;	      /* by dense rank, view: ranks_begin() */
	struct kvr_sched_load *loads; /* max_ranks each: answers to POTENTIAL_LOADS */
	struct kvr_wire_rank_potential *loads_wire;
	kvr_cell_t *count; /* enum pool_counter */
	struct kvr_stats *stats;
	struct measures *measures;	 /* by policy class: sched/measure.h */
	struct rank_counts *rank_counts; /* by dense rank */
	struct kvr_stats *rq_stats;
	struct request *request; /* n_requests: every one that can have a slot, and a few more */
	struct session_use *use; /* by request; NULL: no pool of theirs has sessions */
	struct kvr_session *session_table; /* its table, for hashes of session ids; NULL: off */
	struct sessions *sessions;	   /* sched/session.h; NULL: off */
	uint32_t *lost; /* slots whose booking went with its worker, not handed on yet */

	struct pool_event event;
	struct pool_live live;
	struct pool_pair pair;
	struct pool_control control;
} __rte_cache_aligned;

/** Whether a note goes on in the next turn. */
static inline bool event_open(const struct pool_event *e)
{
	return e->open.m != NULL || e->open.p != NULL;
}

#define POOL_LINE(part)                                                                            \
	_Static_assert(offsetof(struct pool, part) % RTE_CACHE_LINE_SIZE == 0 &&                   \
			       sizeof(((struct pool *)0)->part) % RTE_CACHE_LINE_SIZE == 0,        \
		       #part " shares no line")
POOL_LINE(event);
POOL_LINE(live);
POOL_LINE(pair);
POOL_LINE(control);
#undef POOL_LINE
_Static_assert(offsetof(struct pool_event, done) % RTE_CACHE_LINE_SIZE == 0, "ingress reads it");
_Static_assert(offsetof(struct pool_live, held) % RTE_CACHE_LINE_SIZE == 0, "others read it");

#endif
