/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Pools of numbered objects. Retired objects collect in the current batch. If no batch waits, the
 * current batch is closed with a QSBR token and waits. When all readers have passed the token, the
 * batch is spliced to the free list in one step; headers are returned DRAIN at a time.
 */

#include "prefix_pvt.h"

#define DRAIN 128u /* headers returned per call */

uint32_t kvr_prefix__pool_take(struct pfx_pool *pool)
{
	uint32_t i = pool->free;

	if (i != PFX_NONE) {
		pool->free = pool->next[i];
		pfx_st32(&pool->nfree, pfx_ld32(&pool->nfree) - 1);
		return i;
	}
	i = pfx_ld32(&pool->fresh);
	if (i > pool->n)
		return PFX_NONE;
	pfx_st32(&pool->fresh, i + 1);
	return i;
}

void kvr_prefix__pool_give(struct pfx_pool *pool, uint32_t i)
{
	pool->next[i] = pool->free;
	pool->free = i;
	pfx_st32(&pool->nfree, pfx_ld32(&pool->nfree) + 1);
}

void kvr_prefix__pool_retire(struct kvr_prefix *table, struct pfx_pool *pool, uint32_t i)
{
	pool->next[i] = pool->cur;
	if (pool->cur == PFX_NONE)
		pool->cur_tail = i;
	pool->cur = i;
	pool->ncur++;
	pool->nretired++;
	table->dirty = true;
}

#ifdef PFX_POISON
/* For tests: a reader that keeps a reference to freed memory must find invalid content. */
static void poison_object(struct kvr_prefix *table, struct pfx_pool *pool, uint32_t i)
{
	if (pool == &table->hdrs)
		memset((void *)&table->hdr[i], 0xa5, sizeof(table->hdr[i]));
	else if (pool == &table->chunks)
		memset(&table->sh[(size_t)i * PFX_CHUNK], 0xa5, PFX_CHUNK * 8);
	else if (pool == &table->exts)
		memset((void *)&table->ext[i], 0xa5, sizeof(table->ext[i]));
	else if (pool == &table->bigs)
		memset(table->big + (size_t)i * table->big_bytes, 0xa5, table->big_bytes);
}
#endif

static void splice_batch(struct kvr_prefix *table, struct pfx_pool *pool)
{
	if (pool->wait == PFX_NONE)
		return;
#ifdef PFX_POISON
	for (uint32_t i = pool->wait; i != PFX_NONE; i = pool->next[i])
		poison_object(table, pool, i);
#else
	RTE_SET_USED(table);
#endif
	pool->next[pool->wait_tail] = pool->free;
	pool->free = pool->wait;
	pfx_st32(&pool->nfree, pfx_ld32(&pool->nfree) + pool->nwait);
	pool->nretired -= pool->nwait;
	pool->wait = PFX_NONE;
	pool->nwait = 0;
}

/* Return headers one by one, as each may have a position in rte_hash to free. */
static bool drain_hdrs(struct kvr_prefix *table)
{
	struct pfx_pool *pool = &table->hdrs;

	for (uint32_t n = 0; n < DRAIN && pool->wait != PFX_NONE; n++) {
		uint32_t i = pool->wait;

		pool->wait = pool->next[i];
		pool->nwait--;
		pool->nretired--;
		if (table->key[i] >= 0)
			rte_hash_free_key_with_position(table->hash, table->key[i]);
#ifdef PFX_POISON
		poison_object(table, pool, i);
#endif
		kvr_prefix__pool_give(pool, i);
	}
	return pool->wait == PFX_NONE;
}

static void close_batch(struct pfx_pool *pool)
{
	pool->wait = pool->cur;
	pool->wait_tail = pool->cur_tail;
	pool->nwait = pool->ncur;
	pool->cur = PFX_NONE;
	pool->ncur = 0;
}

void kvr_prefix__pool_reclaim(struct kvr_prefix *table)
{
	struct pfx_pool *const pools[] = {&table->hdrs, &table->chunks, &table->bigs, &table->exts};

	for (int round = 0; round < 2; round++) {
		if (table->waiting && !table->passed) {
			if (rte_rcu_qsbr_check(table->qsbr, table->token, false) != 1)
				return;
			for (uint32_t i = 1; i < RTE_DIM(pools); i++)
				splice_batch(table, pools[i]);
			table->passed = true;
			table->done = table->batch - 1;
		}
		if (table->waiting && !drain_hdrs(table))
			return;
		table->waiting = table->passed = false;
		if (!table->dirty)
			return;
		for (uint32_t i = 0; i < RTE_DIM(pools); i++)
			close_batch(pools[i]);
		table->token = rte_rcu_qsbr_start(table->qsbr);
		table->batch++;
		table->waiting = true;
		table->dirty = false;
	}
}
