/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Pools of numbered objects. Retired objects collect in the current batch. When no batch waits,
 * the current one is closed with a QSBR token and waits; when all readers have passed the token
 * it is spliced to the free list in one step, the headers some at a time.
 */

#include "prefix_pvt.h"

#define DRAIN 128u /* headers given back by one call */

uint32_t kvr_prefix__pool_take(struct pfx_pool *p)
{
	uint32_t i = p->free;

	if (i != PFX_NONE) {
		p->free = p->next[i];
		pfx_st32(&p->nfree, pfx_ld32(&p->nfree) - 1);
		return i;
	}
	i = pfx_ld32(&p->fresh);
	if (i > p->n)
		return PFX_NONE;
	pfx_st32(&p->fresh, i + 1);
	return i;
}

void kvr_prefix__pool_give(struct pfx_pool *p, uint32_t i)
{
	p->next[i] = p->free;
	p->free = i;
	pfx_st32(&p->nfree, pfx_ld32(&p->nfree) + 1);
}

void kvr_prefix__pool_retire(struct kvr_prefix *t, struct pfx_pool *p, uint32_t i)
{
	p->next[i] = p->cur;
	if (p->cur == PFX_NONE)
		p->cur_tail = i;
	p->cur = i;
	p->ncur++;
	p->nretired++;
	t->dirty = true;
}

#ifdef PFX_POISON
/* Tests: what a reader would see if it held on to freed memory must not look like anything. */
static void poison(struct kvr_prefix *t, struct pfx_pool *p, uint32_t i)
{
	if (p == &t->hdrs)
		memset((void *)&t->hdr[i], 0xa5, sizeof(t->hdr[i]));
	else if (p == &t->chunks)
		memset(&t->sh[(size_t)i * PFX_CHUNK], 0xa5, PFX_CHUNK * 8);
	else if (p == &t->exts)
		memset((void *)&t->ext[i], 0xa5, sizeof(t->ext[i]));
	else if (p == &t->bigs)
		memset(t->big + (size_t)i * t->big_bytes, 0xa5, t->big_bytes);
}
#endif

static void splice(struct kvr_prefix *t, struct pfx_pool *p)
{
	if (p->wait == PFX_NONE)
		return;
#ifdef PFX_POISON
	for (uint32_t i = p->wait; i != PFX_NONE; i = p->next[i])
		poison(t, p, i);
#else
	RTE_SET_USED(t);
#endif
	p->next[p->wait_tail] = p->free;
	p->free = p->wait;
	pfx_st32(&p->nfree, pfx_ld32(&p->nfree) + p->nwait);
	p->nretired -= p->nwait;
	p->wait = PFX_NONE;
	p->nwait = 0;
}

/* Headers come back one by one: each may have a place in rte_hash to give back. */
static bool drain_hdrs(struct kvr_prefix *t)
{
	struct pfx_pool *p = &t->hdrs;

	for (uint32_t n = 0; n < DRAIN && p->wait != PFX_NONE; n++) {
		uint32_t i = p->wait;

		p->wait = p->next[i];
		p->nwait--;
		p->nretired--;
		if (t->key[i] >= 0)
			rte_hash_free_key_with_position(t->hash, t->key[i]);
#ifdef PFX_POISON
		poison(t, p, i);
#endif
		kvr_prefix__pool_give(p, i);
	}
	return p->wait == PFX_NONE;
}

static void close_batch(struct pfx_pool *p)
{
	p->wait = p->cur;
	p->wait_tail = p->cur_tail;
	p->nwait = p->ncur;
	p->cur = PFX_NONE;
	p->ncur = 0;
}

void kvr_prefix__pool_reclaim(struct kvr_prefix *t)
{
	struct pfx_pool *const pools[] = {&t->hdrs, &t->chunks, &t->bigs, &t->exts};

	for (int round = 0; round < 2; round++) {
		if (t->waiting && !t->passed) {
			if (rte_rcu_qsbr_check(t->qsbr, t->token, false) != 1)
				return;
			for (uint32_t i = 1; i < RTE_DIM(pools); i++)
				splice(t, pools[i]);
			t->passed = true;
			t->done = t->batch - 1;
		}
		if (t->waiting && !drain_hdrs(t))
			return;
		t->waiting = t->passed = false;
		if (!t->dirty)
			return;
		for (uint32_t i = 0; i < RTE_DIM(pools); i++)
			close_batch(pools[i]);
		t->token = rte_rcu_qsbr_start(t->qsbr);
		t->batch++;
		t->waiting = true;
		t->dirty = false;
	}
}
