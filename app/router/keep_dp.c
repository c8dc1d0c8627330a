/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of several frames that were sent to a worker are kept until it has acknowledged them:
 * losing one frame of hundreds must not mean sending all of them again, from the client on. The
 * job is what is kept; its frames count as waiting ones (job_hold()), and without room for them
 * the client's repetition serves, as it does for messages of one frame.
 *
 *   MISSING            the fragments it names, at most KEEP_BURST for each
 *   20 ms, doubling    the first fragment: the worker says what it lacks, or acknowledges again
 *   acknowledged, an item, ended   the job is given back
 */
#include "agent_path.h"
#include "stages.h"

#include "kvr_frame.h"

#define KEEP_BURST 64u /* what a socket of the usual size takes at once */

bool keep_start(struct lcore *lc, struct kvr_flight *r, struct job *j)
{
	if (j->frames == NULL || r->job != NULL || r->legs != NULL || j->session.reserved ||
	    !job_hold(j))
		return false;
	buf_put(j->hash_buf);
	buf_put(j->hint_buf);
	buf_put(j->allowed_buf);
	j->hash_buf = j->hint_buf = j->allowed_buf = NULL;
	j->hashes = NULL;
	j->n_hashes = 0;
	r->job = j;
	legs_resend_start(lc, j->pool, r);
	return true;
}

void keep_end(struct kvr_flight *r)
{
	struct job *j = keep_job(r);

	if (likely(j == NULL))
		return;
	legs_resend_stop(j->pool, r);
	r->job = NULL;
	job_free(j->pool->sched_lcore, j);
}

void keep_again(struct lcore *lc, struct kvr_flight *r)
{
	const struct job *j = keep_job(r);

	out_again(lc, j, agent_path(lc, &r->relay), NULL, 1);
	legs_resend_start(lc, j->pool, r);
}

void keep_missing(struct lcore *lc, struct kvr_flight *r, const struct kvr_wire_missing *lack)
{
	const struct job *j = keep_job(r);

	if (j == NULL || lack->kind != KVR_DISPATCH)
		return;
	/* It is being heard: from here on it is waited for as at first. */
	legs_resend_stop(j->pool, r);
	r->attempt = 0;
	out_again(lc, j, agent_path(lc, &r->relay), lack, KEEP_BURST);
	legs_resend_start(lc, j->pool, r);
}
