/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_JOB_H
#define ROUTER_JOB_H

/**
 * @file
 * Jobs (state/message.h): their memory, and the bytes of their message. Lcores; a job has one owner
 * at any time.
 */

#include "state/router.h"

/** A job of @p p without a message; NULL: none is free. Ingress lcore. */
struct job *job_new(struct lcore *lc, struct pool *p);

/** Free a job that has not been handed to a scheduler, and whatever frames it has. Any lcore. */
void job_drop(struct lcore *lc, struct job *j);

/** Give a job what its legs need. @return KVR_OK, E_TOO_LARGE, E_NO_MEMORY. Ingress lcore. */
enum kvr_code pair_attach(struct job *j);

/** Give it back, with the job. Any lcore. */
void pair_detach(struct job *j);

/** Header of the first frame of the job's message. */
const struct kvr_wire_hdr *job_header(const struct job *j);

/** Bytes [off, off + len) of the body of its message to @p dst: as frames_part(). */
void job_part(const struct job *j, uint32_t off, uint32_t len, void *dst);

/** Scores as the scheduler takes them. */
void overlap_view(const struct kvr_overlap *o, struct kvr_sched_overlap *ov);

#endif
