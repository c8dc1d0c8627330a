/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_POOL_H
#define ROUTER_POOL_H

/**
 * @file
 * A pool: the workers of one model in one role, with tables and rings. Each writer has a part of
 * its own cache lines: constants, the event lcore, the scheduler lcore, additions for a pair, and
 * the control thread. No word has two writers. A word that another thread reads while it is written
 * is atomic, and its comment names the reader.
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

/** The acknowledgement timeout of a DISPATCH is 20 ms << step, at most 1 s. */
#define LEG_STEPS 7u

/** Confidence in the known cache content of a rank. */
enum cursor_faith {
	CURSOR_SURE,  /* reported by events */
	CURSOR_ASKED, /* from a snapshot that was true before event `next`: the agent is asked for
			 later events */
	CURSOR_HINT,  /* from an older snapshot: the agent is asked for a dump */
};

/** Position in the event stream of a rank. Event lcore only. */
struct event_cursor {
	uint64_t worker; /* owner of the rank */
	uint32_t epoch;	 /* epoch of the owner; 0: no owner */
	uint8_t dumping;
	uint8_t faith; /* enum cursor_faith */
	uint8_t pad[2];
	uint32_t has_dump; /* dump_id is valid */
	uint64_t dump_id;  /* header id of the frames of the last dump */
	uint64_t next;	   /* next event id */
	uint64_t dump_pos; /* next frame of a dump; 0: no dump */
	/* last position for which a heartbeat reported more events: `next`, or for a dump
	 * `dump_pos` with bit 63; UINT64_MAX: none */
	uint64_t lag;
};

/** Counters and gauges of a rank's event stream in the current epoch. Writer: event lcore; readers:
 * scheduler lcore, telemetry. */
enum event_rank_cell {
	ER_AUTHORITATIVE, /* gauge, 1: no events are known to be missing */
	ER_LAG,		  /* gauge: events that a heartbeat reported and that have not arrived */
	ER_GAPS,	  /* frames rejected because earlier events are missing */
	ER_DUMPS,	  /* complete dumps */
	ER_CLEARS,
	ER_REGRESSIONS, /* frames of events that were applied before */
	ER_STORED,	/* blocks */
	ER_REMOVED,	/* blocks */
	ER_RESTORED,	/* blocks restored from a snapshot */
	ER_CELLS
};
struct event_rank {
	kvr_cell_t v[ER_CELLS];
} __rte_cache_aligned;

/** Quotas of sources in a pool. Scheduler lcore; quota_dp.c. */
struct pool_quotas {
	struct kvr_quota *slots;
	struct kvr_quota *jobs;	  /* waiting jobs */
	struct kvr_quota *frames; /* frames of waiting jobs */
	struct kvr_quota *sessions;
	uint32_t *session;  /* by table entry: quota reference of the source */
	uint32_t n_waiting; /* waiting jobs */
};

/** Writer: the event lcore. */
struct pool_event {
	struct event_msg open; /* message that continues in the next turn; zeroes: none */
	uint64_t skip;	       /* of a dump frame: events done */
	uint32_t at;	       /* blocks of the current event that are done */
	bool dear;	       /* memory is being freed, so pieces are small */
	uint32_t fetched;      /* messages at the head of the ring that are prefetched */
	uint64_t expire_ns;    /* next kvr_prefix_expire() */
	uint64_t doubt_ns;   /* end of the time in which blocks of a snapshot must be confirmed; 0:
				none left */
	uint32_t doubt_rank; /* next rank to check */
	/* frames that left the ring, by ingress lcore, which reads the count; publishes no other
	 * data */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t done[KVR_ROUTER_MAX_LCORES];
} __rte_cache_aligned;

/** Mailbox of a router with one lcore: lcore/mailbox.h. Writer: that lcore; telemetry reads. */
struct mailbox_array {
	struct sched_msg *v;
	uint32_t mask;
	_Atomic uint32_t head; /* next to take */
	_Atomic uint32_t tail; /* next to fill; both indexes return to 0 when it is empty */
};

/** Live requests. Writer: the scheduler lcore. */
struct pool_live {
	struct kvr_rq_pool rq; /* constant except `expected`, `closed` and the counters */
	struct request *free_request;
	struct mailbox_array mailbox;		   /* used if pool::mailbox is NULL */
	struct kvr_flight_list aborts;		   /* ordered by abort_ns */
	struct kvr_flight_list resends[LEG_STEPS]; /* unacknowledged DISPATCH, by step */
	struct sending_list sends;		   /* messages with frames to send */
	uint32_t n_lost;			   /* entries of pool::lost */
	/* a decision about a long prompt that is not finished, sched/long_prompt.h; r NULL: none */
	struct {
		struct request *r;
		const struct kvr_sched_req *req;
		uint32_t leg;
	} asking;
	/* hashes of an unfinished booking, sched/long_prompt.h; NULL: none */
	struct prompt_hashes *entering;
	uint32_t sweep; /* next slot to check for deadlines */
	uint32_t look;	/* slots left to check in this tick */
	uint64_t begun; /* largest value in pool::begun */
	struct pool_quotas quotas;
	/* frames of waiting requests, waiting_budget_dp.c; telemetry reads */
	alignas(RTE_CACHE_LINE_SIZE) _Atomic uint32_t held;
	/* frames of lcore::moved that arrived, by ingress lcore, which reads the count */
	_Atomic uint32_t taken[KVR_ROUTER_MAX_LCORES];
} __rte_cache_aligned;

/** Additions for a pair. Writer: the scheduler lcore of both pools. */
struct pool_pair {
	struct kvr_rand rand;	  /* decode pool: bootstrap rooms */
	uint32_t n_prefilling;	  /* decode pool: requests whose decode leg is not decided */
	struct kvr_disagg disagg; /* prefill pool: whether it is active; telemetry reads */
} __rte_cache_aligned;

/** Writer: the control thread. */
struct pool_control {
	/* a worker may register soon; the scheduler lcore copies it to live.rq.expected */
	_Atomic bool expected;
} __rte_cache_aligned;

/** The first part is constant: written at start, read by every thread. The data behind its pointers
 * belongs to the named writer. */
struct pool {
	struct router *rt;
	const char *name;
	uint32_t number;  /* index in router::pool and in handles */
	uint32_t wire_id; /* number in messages */
	uint32_t block_size;
	uint32_t max_ranks;
	uint32_t max_prompt_blocks;
	uint32_t max_held; /* limit of live.held */
	uint32_t n_requests;
	uint32_t predict_ttl_ms;
	uint8_t role;
	bool eagle;	  /* tokens are hashed in windows of block_size + 1 */
	bool events_used; /* KV events are applied */
	bool predict;	  /* decisions may be recorded as predicted blocks */
	const struct kvr_pool_conf *conf;
	const struct kvr_router_pool_options *opt;
	struct lcore *sched_lcore;
	struct lcore *event_lcore;
	struct pool *prefill;	   /* of a decode pool, or NULL */
	struct pool *decode;	   /* of a prefill pool, or NULL */
	struct pool *other;	   /* the other pool of the pair, or this pool */
	struct rte_mempool *jobs;  /* taken by ingress, returned by the scheduler */
	struct rte_mempool *pairs; /* decode pool: taken by ingress, returned by the scheduler */
	struct rte_ring *mailbox; /* struct sched_msg, many producers; NULL: live.mailbox is used */
	struct rte_ring *events;  /* struct event_msg; many producers */
	/* written by the event lcore */
	struct kvr_prefix *prefix;	/* read by every thread, under QSBR */
	struct event_cursor *cursor;	/* by dense rank */
	struct event_rank *event_ranks; /* by dense rank */
	kvr_cell_t *event_count;	/* enum event_counter */
	struct kvr_stats *event_stats;
	/* written by the scheduler lcore */
	struct kvr_flight_table *requests; /* ingress reads the relay part */
	struct kvr_sched *sched;
	struct decision_log *log;
	uint64_t *begun; /* by dense rank: first view with the current owner, ranks_begin() */
	struct kvr_sched_load *loads; /* max_ranks entries, for POTENTIAL_LOADS */
	struct kvr_wire_rank_potential *loads_wire;
	kvr_cell_t *count; /* enum pool_counter */
	struct kvr_stats *stats;
	struct measures *measures;	 /* by policy class: sched/request_stats.h */
	struct rank_counts *rank_counts; /* by dense rank */
	struct kvr_stats *rq_stats;
	struct request *request; /* n_requests: one per slot, and a few more */
	struct session_use *use; /* by request; NULL: neither pool of a pair has sessions */
	struct kvr_session *session_table; /* for hashes of session ids; NULL: no sessions */
	struct sessions *sessions;	   /* sched/session.h; NULL: no sessions */
	uint32_t *lost; /* slots whose booking was lost with the worker and not yet processed */

	struct pool_event event;
	struct pool_live live;
	struct pool_pair pair;
	struct pool_control control;
} __rte_cache_aligned;

/** Whether a message continues in the next turn. */
static inline bool event_is_open(const struct pool_event *e)
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
