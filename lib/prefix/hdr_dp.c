/* SPDX-License-Identifier: BSD-3-Clause */

/* Headers of runs, as readers find them: made, published, retired. */

#include "prefix_pvt.h"

#include <errno.h>

/* `new_head`: there was no run that begins with this SH. */
int kvr_prefix__run_publish(struct kvr_prefix *t, uint32_t hdr, bool new_head)
{
	uint64_t sh = *pfx_sh(t, &t->hdr[hdr], 0), mix = pfx_mix(t, sh);
	uint64_t n = atomic_load_explicit(&t->births, memory_order_relaxed) + 1;

	kvr_prefetch(pfx_prints(t, mix));

	/* Release both: pair with the acquires of the dump, which may start from either. */
	atomic_store_explicit(&t->birth[hdr], n, memory_order_release);
	atomic_store_explicit(&t->births, n, memory_order_release);
	/* Inserts or replaces; rte_hash releases the data word, so a finder sees all of it. */
	if (rte_hash_add_key_with_hash_data(t->hash, &sh, (uint32_t)mix, (void *)(uintptr_t)hdr) <
	    0) {
		atomic_store_explicit(&t->birth[hdr], 0, memory_order_relaxed);
		return -ENOSPC;
	}
	if (new_head)
		pfx_prints_put(pfx_prints(t, mix), mix, true);
	return 0;
}

/* Gives the place in rte_hash that is to be given back with the header. */
int32_t kvr_prefix__run_unpublish(struct kvr_prefix *t, uint64_t sh)
{
	const uint64_t mix = pfx_mix(t, sh);
	int32_t key;

	kvr_prefetch(pfx_prints(t, mix));
	key = rte_hash_del_key_with_hash(t->hash, &sh, (uint32_t)mix);
	pfx_prints_put(pfx_prints(t, mix), mix, false);
	return key;
}

void kvr_prefix__run_retire(struct kvr_prefix *t, uint32_t hdr, int32_t key)
{
	atomic_store_explicit(&t->birth[hdr], 0, memory_order_relaxed);
	kvr_prefix__owner_retire(t, &t->hdr[hdr]);
	t->key[hdr] = key;
	kvr_prefix__pool_retire(t, &t->hdrs, hdr);
}

uint32_t kvr_prefix__run_new_hdr(struct kvr_prefix *t, uint32_t start)
{
	uint32_t i = kvr_prefix__pool_take(&t->hdrs);

	if (i == PFX_NONE)
		return PFX_NONE;
	memset((void *)&t->hdr[i], 0, sizeof(t->hdr[i]));
	t->hdr[i].start = (uint8_t)start;
	pfx_st32(&t->hdr[i].age, pfx_ld32(&t->age));
	t->key[i] = -1;
	return i;
}

void kvr_prefix__run_init(struct kvr_prefix *t, uint32_t meta, uint32_t hdr, uint32_t parent)
{
	struct pfx_meta *m = &t->meta[meta];
	uint32_t gen = m->gen;

	memset(m, 0, sizeof(*m));
	m->gen = gen;
	m->hdr = hdr;
	m->parent = parent;
	m->parent_gen = parent ? t->meta[parent].gen : 0;
	pfx_add(&t->st.runs, 1);
}
