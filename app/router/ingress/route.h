/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_ROUTE_H
#define ROUTER_ROUTE_H

/**
 * @file
 * From a ROUTE to a job (state/message.h) for a scheduler: check, hints, hashes, score. Ingress
 * lcores; one of them writes the job until its message is in the mailbox of the pool. Jobs of a
 * turn are a batch (lcore::job) and scored together. Budget: a message of one frame is read at
 * once, longer ones in pieces, fragment.h.
 */

#include "lcore/out.h"
#include "message/job.h"
#include "state/router.h"

/** Make a job of a ROUTE message of one frame and add it to the lcore's batch. @return KVR_OK: the
 * job has taken @p m; otherwise the code with details and text in *why, and the caller keeps @p m.
 */
enum kvr_code job_add(struct lcore *lc, const struct kvr_path *from, struct rte_mbuf *m,
		      struct rejection *why);

/** The steps of job_add(). Fill *why with the pools of this router. @return the code for an unknown
 * pool. */
enum kvr_code job_unknown_pool(const struct router *rt, uint32_t id, struct rejection *why);

/** Check the request against its pool. @return a code; details and text in *why. */
enum kvr_code job_check(const struct pool *pool, const struct kvr_wire_request *f,
			struct rejection *why);

/** Set all fields except the hashes. @p raw are the hints, in memory that lasts as long as the job.
 */
enum kvr_code job_begin(struct lcore *lc, struct job *job, const struct kvr_wire_hdr *hdr,
			const struct kvr_message *q, const void *raw);

/** Allocate job->hash_buf for @p n_hashes. */
enum kvr_code job_hash_buf(struct lcore *lc, struct job *job, uint32_t n_hashes);

/** Begin to hash the tokens of the job. @p mm belongs to the stream. */
void job_hash_begin(const struct job *job, struct kvr_tlv_iter *mm, struct kvr_hash_stream *stream);

/** Whether copies of the message are detected by their digest. */
bool job_compared(const struct job *job);

/** Add the job, which has hashes and digest, to the batch. On failure the caller keeps the job. */
enum kvr_code job_end(struct lcore *lc, struct job *job, const struct kvr_path *from,
		      uint16_t client_frame);

/** Score the lcore's batch and pass it to the schedulers. */
void jobs_flush(struct lcore *lc);

#endif
