/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_ROUTE_H
#define ROUTER_ROUTE_H

/**
 * @file
 * From a ROUTE to a job (state/message.h) that a scheduler can take: check, hints, hashes, score.
 * Ingress lcores; a job is written by one of them until its note is in the ring of its pool. Jobs
 * of a turn are a batch (lcore::job), scored together. Budget: a message of one frame is read at
 * once, longer ones in pieces, fragment.h.
 */

#include "lcore/out.h"
#include "message/job.h"
#include "state/router.h"

/**
 * Make a job of a ROUTE message of one frame and put it into the lcore's batch.
 * @return KVR_OK: the job has taken @p m; else the code, and the caller keeps it; details and text
 * of what is wrong, where there are any, are in *why.
 */
enum kvr_code job_add(struct lcore *lc, const struct kvr_path *from, struct rte_mbuf *m,
		      struct refusal *why);

/** The steps of that. The pool that is meant is none of this router's: what it has instead goes to
 * *why. @return the code. */
enum kvr_code job_unknown_pool(const struct router *rt, uint32_t id, struct refusal *why);

/** What the request says against the pool it is for; details and text of it go to *why. */
enum kvr_code job_check(const struct pool *p, const struct kvr_wire_request *f,
			struct refusal *why);

/** Fill in all but hashes; @p raw are the hints, in memory that lasts as long as the job. */
enum kvr_code job_begin(struct lcore *lc, struct job *j, const struct kvr_wire_hdr *h,
			const struct kvr_message *q, const void *raw);

/** Room for @p n_hashes in j->hash_buf. */
enum kvr_code job_hash_buf(struct lcore *lc, struct job *j, uint32_t n_hashes);

/** Begin to hash the tokens of the job; @p mm is the stream's as long as that lasts. */
void job_hash_begin(const struct job *j, struct kvr_tlv_iter *mm, struct kvr_hash_stream *stream);

/** Whether copies of the message are compared by their digest. */
bool job_compared(const struct job *j);

/** It has its hashes and its digest: into the batch. On failure the caller keeps the job. */
enum kvr_code job_end(struct lcore *lc, struct job *j, const struct kvr_path *from,
		      uint16_t client_frame);

/** Score the lcore's batch and hand it to the schedulers. */
void jobs_flush(struct lcore *lc);

#endif
