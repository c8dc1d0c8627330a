/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LIFE_H
#define ROUTER_LIFE_H

/**
 * @file
 * What a request is made of in the router: the message (job) with what a pair of pools adds to it,
 * the copies of it that are on their way to workers (sending), and the request at its scheduler.
 *
 *   job      made by the ingress lcore, handed over with NOTE_ROUTE, then the scheduler lcore's
 *   pair     hangs on the job of a pair
 *   request  the scheduler lcore's; has the job while it needs the message, and one slot a leg
 *
 * All come from pools of memory sized at start. One writer at any time: who has the job, has its
 * words. Budget: the lines of a job that a decision needs are fetched ahead of its note.
 */

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rte_mbuf.h>

#include "kvr_flight.h"
#include "kvr_hints.h"
#include "kvr_prefix.h"
#include "kvr_quota.h"
#include "kvr_request.h"
#include "kvr_sched.h"
#include "kvr_session.h"
#include "kvr_wire.h"
#include "kvr_worker.h"

struct frame_list;
struct pair;
struct pool;

#define SENDING_WORDS ((KVR_WIRE_MAX_FRAGMENTS + 63) / 64)

/** The session that a ROUTE names. */
struct job_session {
	struct kvr_session_key key; /* its id lies with the hints; len 0: no session */
	uint32_t timeout_s;
	uint8_t action; /* enum kvr_wire_session_action */
};

/** A DISPATCH of several frames, or of a leg, on its way to a worker, until it is acknowledged.
 * send_dp.c; scheduler lcore. Valid from send_start() on but for `on`
 * and `stops`. */
struct sending {
	TAILQ_ENTRY(sending) link; /* in pool::live.sends while `on` */
	struct kvr_flight *r;
	uint64_t due_ns;	      /* of the next slice */
	uint32_t gap_ns;	      /* between its frames, grows with losses */
	uint32_t limit;		      /* largest frame it is cut to */
	uint32_t n_frames;	      /* of the message */
	uint32_t next;		      /* fragment of the first copy; n_frames: all are out */
	uint32_t n_lack;	      /* bits set in lack[] */
	bool on;		      /* there is something to send now */
	bool stops;		      /* ABORT follows its last frame ... */
	uint16_t stop_code;	      /* ... with this code */
	uint64_t lack[SENDING_WORDS]; /* fragments to send again, while n_lack > 0 */
};

TAILQ_HEAD(sending_list, sending);

/**
 * One ROUTE from its arrival until its request does not need the message any more. From pool::jobs.
 * Written by the ingress lcore, then owned by the scheduler lcore.
 */
struct job {
	uint64_t source;
	uint64_t id;
	uint64_t digest;      /* of the client's message; 0: nobody will compare it */
	uint8_t kind;	      /* KVR_ROUTE, or KVR_POTENTIAL_LOADS: a question */
	uint64_t arrival_ns;  /* by the clock of the lcore that received it */
	uint64_t deadline_ns; /* 0 none */
	uint32_t flags;	      /* KVR_REQ_F_* */
	uint32_t isl;
	struct kvr_path client;
	struct rte_mbuf *frame;		/* single frame: data starts at the frame header */
	struct frame_list *frames;	/* several frames; frame is NULL */
	struct prompt_hashes *hash_buf; /* or NULL */
	void *hint_buf;			/* gathered hints, of router::hint_bufs, or NULL */
	struct pool *pool;
	struct job_session session;
	const void *hashes; /* n u64, unaligned; in the frame or in hash_buf */
	const void *tlvs;   /* the hints, in the frame or in hint_buf */
	uint32_t n_hashes;
	uint32_t tlvs_len;
	uint32_t hints_off; /* where they stand in the message's body, and what follows them */
	uint32_t body_off;
	struct pair *pair;  /* the pool is the decode pool of a pair; else NULL */
	uint32_t held;	    /* its frames, counted in pool::live.held; 0: it does not wait */
	uint32_t moved;	    /* its frames, counted in lcore::moved until the scheduler takes it */
	uint32_t lcore;	    /* ingress lcore that made it */
	uint64_t view;	    /* kvr_view::number: with which `overlap` was looked up */
	uint32_t share_job; /* while it waits: of its source, quota_dp.c */
	uint32_t share_frames;
	bool sent;		       /* send_start() has it, and `sending` is valid */
	uint8_t excess_of;	       /* refused SourceLimit: enum kvr_wire_source_limit; or 0 */
	struct kvr_quota_state excess; /* ... and how much it was */
	struct sending sending;
	struct kvr_rq_msg msg; /* points to the next one, and to `pair` */
	struct kvr_hint_lists lists;
	struct kvr_overlap *overlap; /* follows the struct */
};

/**
 * What the message of a request for a pair of pools needs besides: it lives as long as the job.
 * From pool::pairs of the decode pool. Writers: as the job.
 */
struct pair {
	struct kvr_rq_pair rq; /* points at the next two */
	struct kvr_str required[KVR_HINTS_MAX_TAINTS + 1];
	struct kvr_hint_preferred preferred[KVR_HINTS_MAX_TAINTS + 1];
	struct rte_mbuf *result;	/* last item of the prefill leg, or NULL */
	struct frame_list *long_result; /* the same, of several frames, which wait (pool::held) */
	uint32_t share_result;		/* of its client's source, quota_dp.c */
	bool over;	/* the message is only needed for what is sent of it still */
	char said[160]; /* what the engine of a failed one said, first line; "": nothing */
	uint16_t port;	/* bootstrap */
	char host[KVR_WORKER_TEXT];
	struct sending sending[2];   /* by leg */
	struct kvr_overlap *overlap; /* with the prefill pool's caches; follows the struct */
};

/** Times of a request, in struct request: one cache line. Scheduler lcore. */
struct request_times {
	uint64_t arrival_ns;
	uint64_t sent_ns[2];	 /* by leg: first DISPATCH of this try; 0: none */
	uint64_t prefill_end_ns; /* 0: not yet, or later than the first token */
	uint64_t first_ns;	 /* first token; 0: none */
	uint64_t last_ns;	 /* last report of tokens */
	uint32_t tokens;	 /* generated, as reported */
	uint32_t removed[2];	 /* by leg: blocks its rank had removed when it was sent */
	uint8_t class[2];	 /* by leg: policy class */
	uint8_t waited;		 /* bits of legs that have waited */
	bool anew;		 /* another try begins with the next question */
};
_Static_assert(sizeof(struct request_times) <= 64, "one cache line");

/**
 * A request at its scheduler: what lib/request knows of it, its message and its slots. From
 * pool::request of the pool of its main leg, until KVR_RQO_DONE. Scheduler lcore.
 */
struct request {
	struct kvr_request rq;
	struct kvr_flight *slot[2]; /* by leg; NULL: none */
	struct job *job;	    /* its message, while it or its repetition is needed; or NULL */
	uint64_t digest;	    /* of the client's ROUTE: kvr_request_digest() */
	uint64_t heard_ns;	    /* last ROUTE or PROBE of the client, by lcore::quiet */
	struct request *next;	    /* free ones */
	uint32_t unwanted_ms; /* of lcore::quiet, when its prefill leg was seen to be; 0: not yet */
	uint32_t number;
	uint8_t tries; /* of rq.tries, those that are counted */
	bool counted;  /* as routed, queued, disagg, rejected or query */
	bool away;     /* its client gives the body to the workers' agents */
	bool decided;  /* its main leg waits for no prefill leg, in this try of a pair */
	uint8_t asked; /* bits of legs that have left the queue to be decided once more: they count
			* as waiting until then */
	alignas(RTE_CACHE_LINE_SIZE) struct request_times times;
};
_Static_assert(sizeof(struct request) == 320, "five cache lines");

#endif
