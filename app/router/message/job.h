/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_JOB_H
#define ROUTER_JOB_H

/**
 * @file
 * Memory of jobs (state/message.h) and access to the bytes of their message. Packet lcores; a job
 * has one owner at any time.
 */

#include "state/router.h"

/** Allocate a job of @p pool without a message; NULL: none is free. Ingress lcore. */
struct job *job_new(struct lcore *lc, struct pool *pool);

/** Free a job that no scheduler has, with its frames. Any lcore. */
void job_drop(struct lcore *lc, struct job *job);

/** Add the pair to a job. @return KVR_OK, E_TOO_LARGE, E_NO_MEMORY. Ingress lcore. */
enum kvr_code pair_attach(struct job *job);

/** Free the pair. Any lcore. */
void pair_detach(struct job *job);

/** Header of the first frame of the job's message. */
const struct kvr_wire_hdr *job_header(const struct job *job);

/** Copy bytes [off, off + len) of the message body to @p dst, as frames_copy(). */
void job_copy(const struct job *job, uint32_t off, uint32_t len, void *dst);

/** Convert scores to the form of lib/sched. */
void overlap_view(const struct kvr_overlap *o, struct kvr_sched_overlap *ov);

#endif
