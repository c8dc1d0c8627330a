/* SPDX-License-Identifier: BSD-3-Clause */
/* Scheduling around long prompts that are processed in slices: prompts.h. */
#include "sched/prompts.h"

#include "message/job.h"
#include "sched/request.h"

static bool alone(const struct pool *p)
{
	return p->other == p;
}

static bool settled(const struct pool *p)
{
	return kvr_sched_settled(p->sched) &&
	       (likely(alone(p)) || kvr_sched_settled(p->other->sched));
}

static bool asks(const struct pool *p)
{
	return p->live.asking.r != NULL || (unlikely(!alone(p)) && p->other->live.asking.r != NULL);
}

bool prompts_idle(const struct pool *p)
{
	return settled(p) && !kvr_sched_admits(p->sched) && !asks(p) &&
	       (likely(alone(p)) || !kvr_sched_admits(p->other->sched));
}

bool prompts_may_admit(const struct pool *p)
{
	return settled(p) && !asks(p) &&
	       (kvr_sched_admits(p->sched) || !kvr_sched_admits(p->other->sched));
}

static bool enters(const struct pool *p, const void *hashes)
{
	return kvr_sched_enters(p->sched, hashes) || kvr_sched_enters(p->other->sched, hashes);
}

/* Free what is no longer needed. */
static void give_back(struct pool *p)
{
	if (p->live.entering == NULL || enters(p, p->live.entering->sh))
		return;
	hashes_put(p->live.entering);
	p->live.entering = NULL;
}

bool prompts_settle(struct pool *p)
{
	kvr_sched_settle(p->sched, PROMPTS_TURN);
	if (unlikely(p->live.entering != NULL))
		give_back(p);
	return settled(p);
}

void prompts_finish(struct pool *p)
{
	kvr_sched_settle(p->sched, UINT32_MAX);
	kvr_sched_settle(p->other->sched, UINT32_MAX);
	kvr_sched_admit_again(p->sched);
	kvr_sched_admit_again(p->other->sched);
	give_back(p);
}

void prompts_keep(struct pool *p, struct job *j)
{
	if (unlikely(p->other->sched == NULL)) /* at the stop it goes before its messages */
		return;
	if (unlikely(j->n_hashes > PROMPTS_LONG))
		prompts_handled(p); /* the memory of its hashes will be reused */
	if (likely(settled(p)) || !enters(p, j->hashes))
		return;
	give_back(p);
	if (unlikely(j->hash_buf == NULL || p->live.entering != NULL)) {
		prompts_finish(p);
		return;
	}
	p->live.entering = j->hash_buf;
	j->hash_buf = NULL;
}

/* ---- before a decision ---- */

bool prompts_short(const struct pool *p, const struct note *n)
{
	return alone(p) && ((n->type != NOTE_ROUTE && n->type != NOTE_LOADS) ||
			    n->job->n_hashes <= PROMPTS_LONG);
}

bool prompts_ready(struct pool *p, const struct job *j, uint32_t runs)
{
	if (likely(j == NULL || j->n_hashes <= PROMPTS_LONG))
		return true;
	return kvr_sched_prepare(p->sched, &j->msg.req, runs);
}

bool prompts_ready_note(struct pool *p, const struct note *n, uint32_t runs)
{
	const uint64_t before = prompts_walked(p);

	if (n->type != NOTE_ROUTE && n->type != NOTE_LOADS)
		return true;
	if (!prompts_ready(p, n->job, runs))
		return false;
	if (likely(n->job->pair == NULL))
		return true;
	runs -= RTE_MIN(runs, (uint32_t)(prompts_walked(p) - before));
	return prompts_ready(p->prefill, n->job, runs);
}

void prompts_handled(struct pool *p)
{
	kvr_sched_prepare_over(p->sched);
	if (unlikely(!alone(p)))
		kvr_sched_prepare_over(p->other->sched);
}

uint64_t prompts_walked(const struct pool *p)
{
	return kvr_sched_walked(p->sched) +
	       (likely(alone(p)) ? 0 : kvr_sched_walked(p->other->sched));
}
