/* SPDX-License-Identifier: BSD-3-Clause */
/* What a prompt is for the rank that was chosen: what is left to compute, and its blocks in flight.
 */
#include "sched_pvt.h"

uint32_t kvr_sched__exec_isl(const struct kvr_sched_req *req)
{
	return req->exec_isl != 0 ? req->exec_isl : req->isl;
}

/* Prompt tokens that the rank need not compute. */
static uint64_t held_tokens(const struct kvr_sched *s, const struct choice *c,
			    const struct kvr_sched_decision *d)
{
	const uint64_t flying = (uint64_t)s->depth[d->rank] * s->conf.block_size;
	const uint32_t isl = kvr_sched__exec_isl(c->req);

	if (c->keep == d->rank) /* what it counted for while it waited */
		return c->left < isl ? isl - c->left : 0;
	/* Mode ttft counts what requests in flight there compute. */
	return s->mode->by_ttft && flying > d->cached_tokens ? flying : d->cached_tokens;
}

/* The last match of lib/active must be of this prompt. */
uint64_t kvr_sched__left(const struct kvr_sched *s, const struct choice *c,
			 const struct kvr_sched_decision *d)
{
	const uint64_t held = held_tokens(s, c, d), isl = kvr_sched__exec_isl(c->req);

	return held < isl ? isl - held : 0;
}

/* The blocks of the prompt are in flight on the rank of the slot: short ones at once, the others as
 * the owner wants it, slices_dp.c. The last match must be of this prompt. */
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
