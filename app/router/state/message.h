/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_MESSAGE_H
#define ROUTER_MESSAGE_H

/**
 * @file
 * A request in the router: its message (job), the additions for a pair of pools (pair), the copies
 * on their way to workers (sending), and its state at the scheduler (request).
 *
 *   job      made by an ingress lcore, handed over with MSG_ROUTE, then owned by the scheduler
 * lcore pair     belongs to the job of a pair of pools request  owned by the scheduler lcore; has
 * the job while it needs the message, and one slot per leg
 *
 * All come from mempools sized at start. The owner of a job is the only writer of its words.
 * Budget: the cache lines of a job that a decision needs are prefetched before its message is
 * handled.
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

/** The session named in a ROUTE. */
struct job_session {
	struct kvr_session_key key; /* the id is stored with the hints; len 0: no session */
	uint32_t timeout_s;
	uint8_t action; /* enum kvr_wire_session_action */
};

/** A DISPATCH of several frames, or of a leg of a pair, until its worker acknowledges it. Scheduler
 * lcore; send_dp.c. Only `on` and `stops` are valid before send_start(). */
struct sending {
	TAILQ_ENTRY(sending) link; /* in pool::live.sends while `on` */
	struct kvr_flight *r;
	uint64_t due_ns;    /* time of the next slice */
	uint32_t gap_ns;    /* pause between frames; grows with losses */
	uint32_t limit;	    /* largest frame */
	uint32_t n_frames;  /* of the message */
	uint32_t next;	    /* next fragment of the first transmission; n_frames: all sent */
	uint32_t n_lack;    /* number of bits set in lack[] */
	bool on;	    /* frames are due */
	bool stops;	    /* send ABORT after the last frame */
	uint16_t stop_code; /* code of that ABORT */
	uint64_t lack[SENDING_WORDS]; /* fragments to retransmit, if n_lack > 0 */
};

TAILQ_HEAD(sending_list, sending);

/**
 * A ROUTE message from arrival until its request no longer needs it. From pool::jobs. Written by
 * the ingress lcore, then owned by the scheduler lcore.
 */
struct job {
	uint64_t source;
	uint64_t id;
	uint64_t digest;      /* of the client's message; 0: no copy will be compared */
	uint8_t kind;	      /* KVR_ROUTE, or KVR_POTENTIAL_LOADS for a query */
	uint64_t arrival_ns;  /* by the clock of the receiving lcore */
	uint64_t deadline_ns; /* 0: none */
	uint32_t flags;	      /* KVR_REQ_F_* */
	uint32_t isl;
	struct kvr_path client;
	struct rte_mbuf *frame;		/* single frame: data starts at the frame header */
	struct frame_list *frames;	/* several frames (frame is NULL) */
	struct prompt_hashes *hash_buf; /* or NULL */
	void *hint_buf; /* hints gathered from several frames, of router::hint_bufs; or NULL */
	struct pool *pool;
	struct job_session session;
	const void *hashes; /* n u64, unaligned; in the frame or in hash_buf */
	const void *tlvs;   /* the hints, in the frame or in hint_buf */
	uint32_t n_hashes;
	uint32_t tlvs_len;
	uint32_t hints_off; /* body offset of the hints, and of the data after them */
	uint32_t body_off;
	struct pair *pair;  /* if the pool is the decode pool of a pair; else NULL */
	uint32_t held;	    /* frames counted in pool::live.held while it waits; 0: does not wait */
	uint32_t moved;	    /* frames counted in lcore::moved until the scheduler has the job */
	uint32_t lcore;	    /* index of the ingress lcore that made it */
	uint64_t view;	    /* kvr_view::number of the view that `overlap` was looked up with */
	uint32_t quota_job; /* quota references while it waits: quota_dp.c */
	uint32_t quota_frames;
	bool sent;	   /* `sending` is valid */
	uint8_t excess_of; /* resource of a SourceLimit rejection (enum kvr_wire_source_limit), or 0
			    */
	struct kvr_quota_state excess; /* use and limit of that resource */
	struct sending sending;
	struct kvr_rq_msg msg; /* points to the next one, and to `pair` */
	struct kvr_hint_lists lists;
	struct kvr_overlap *overlap; /* stored after the struct */
};

/**
 * Additions to the job of a request for a pair of pools, with the same lifetime and writers. From
 * pool::pairs of the decode pool.
 */
struct pair {
	struct kvr_rq_pair rq; /* points to the next two */
	struct kvr_str required[KVR_HINTS_MAX_TAINTS + 1];
	struct kvr_hint_preferred preferred[KVR_HINTS_MAX_TAINTS + 1];
	struct rte_mbuf *result;	/* last item of the prefill leg, or NULL */
	struct frame_list *long_result; /* the same of several frames, in pool_live::held */
	uint32_t quota_result;		/* quota reference of `long_result`: quota_dp.c */
	bool over;			/* the message is kept only to finish sending it */
	char said[160]; /* first line of the engine's error, if the prefill leg failed */
	uint16_t port;	/* bootstrap port */
	char host[KVR_WORKER_TEXT];
	struct sending sending[2];   /* by leg */
	struct kvr_overlap *overlap; /* with the prefill pool; stored after the struct */
};

/** Times of a request: one cache line of struct request. Scheduler lcore. */
struct request_times {
	uint64_t arrival_ns;
	uint64_t sent_ns[2];	 /* by leg: first DISPATCH of this attempt; 0: none */
	uint64_t prefill_end_ns; /* 0: not ended, or ended after the first token */
	uint64_t first_ns;	 /* first token; 0: none */
	uint64_t last_ns;	 /* last report of tokens */
	uint32_t tokens;	 /* generated so far, as reported */
	uint32_t removed[2];	 /* by leg: blocks that the rank had removed before the DISPATCH */
	uint8_t class[2];	 /* by leg: policy class */
	uint8_t waited;		 /* bits of legs that waited in the queue */
	bool anew;		 /* the next decision begins another attempt */
};
_Static_assert(sizeof(struct request_times) <= 64, "one cache line");

/** A request at its scheduler: state of lib/request, message and slots. From pool::request of the
 * pool of the main leg, until KVR_RQO_DONE. Scheduler lcore. */
struct request {
	struct kvr_request rq;
	struct kvr_flight *slot[2]; /* by leg, or NULL */
	struct job *job;	    /* message, while it may be sent again; or NULL */
	uint64_t digest;	    /* of the client's ROUTE: kvr_request_digest() */
	uint64_t client_seen_ns;    /* last ROUTE or PROBE of the client, by lcore::quiet */
	struct request *next;	    /* in the free list */
	uint32_t unwanted_ms; /* by lcore::quiet: when the client's silence about a prefill leg was
				 noticed; 0: not yet */
	uint32_t number;
	uint8_t tries; /* attempts that are counted already */
	bool counted;  /* counted as routed, queued, disagg, rejected or query */
	bool away;     /* the client sends the body to the agents itself */
	bool decided;  /* in this attempt of a pair, the main leg has been decided or will not be */
	uint8_t asked; /* bits of legs that left the queue for another decision; they still count as
			  waiting */
	alignas(RTE_CACHE_LINE_SIZE) struct request_times times;
};
_Static_assert(sizeof(struct request) == 320, "five cache lines");

#endif
