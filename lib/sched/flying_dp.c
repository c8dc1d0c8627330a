/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokens of a prompt to compute on the chosen rank, and its blocks in flight there. */
#include "sched_pvt.h"

uint32_t kvr_sched__exec_isl(const struct kvr_sched_req *req)
{
	return req->exec_isl != 0 ? req->exec_isl : req->isl;
}

/* Return the prompt tokens that the rank does not have to compute. */
static uint64_t held_tokens(const struct kvr_sched *s, const struct choice *c,
			    const struct kvr_sched_decision *d)
{
	const uint64_t flying = (uint64_t)s->depth[d->rank] * s->conf.block_size;
	const uint32_t isl = kvr_sched__exec_isl(c->req);

	if (c->keep == d->rank) /* as counted while it waited */
		return c->left < isl ? isl - c->left : 0;
	/* Mode ttft includes blocks that requests in flight compute. */
	return s->mode->by_ttft && flying > d->cached_tokens ? flying : d->cached_tokens;
}

/* Requires that the last match of lib/active is of this prompt. */
uint64_t kvr_sched__left(const struct kvr_sched *s, const struct choice *c,
			 const struct kvr_sched_decision *d)
{
	const uint64_t held = held_tokens(s, c, d), isl = kvr_sched__exec_isl(c->req);

	return held < isl ? isl - held : 0;
}

/* Enter the blocks of the prompt as in flight on the rank of the slot: short prompts at once,
 * others in slices (slices_dp.c). Requires that the last match is of this prompt. */
void kvr_sched__fly(struct kvr_sched *s, const struct choice *c, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	if (!c->p.reuse || c->n == 0) {
		kvr_active_book_private(s->active, c->n, b->rank, &b->act);
	} else if (c->n > AT_ONCE) {
		kvr_sched__enter(s, slot, c->req->sh, c->n, now);
	} else {
		kvr_active_book(s->active, c->req->sh, c->n, b->rank, &b->act);
		kvr_cell_add(&s->cnt.unshared_blocks, b->act.n_private);
	}
}
