/* SPDX-License-Identifier: BSD-3-Clause */

/* Headers of runs: create, publish, retire. */

#include "prefix_pvt.h"

#include <errno.h>

/* `new_head`: no run started with this SH before. */
int kvr_prefix__run_publish(struct kvr_prefix *table, uint32_t hdr, bool new_head)
{
	uint64_t sh = *pfx_sh(table, &table->hdr[hdr], 0), mix = pfx_mix(table, sh);
	uint64_t n = atomic_load_explicit(&table->births, memory_order_relaxed) + 1;

	kvr_prefetch(pfx_fingerprint_set(table, mix));

	/* Release both: pair with the acquires of the dump, which may start with either of them. */
	atomic_store_explicit(&table->birth[hdr], n, memory_order_release);
	atomic_store_explicit(&table->births, n, memory_order_release);
	/*
	 * Inserts or replaces. rte_hash releases the data word, so a reader that finds the header
	 * sees all of it.
	 */
	if (rte_hash_add_key_with_hash_data(table->hash, &sh, (uint32_t)mix,
					    (void *)(uintptr_t)hdr) < 0) {
		atomic_store_explicit(&table->birth[hdr], 0, memory_order_relaxed);
		return -ENOSPC;
	}
	if (new_head)
		pfx_fingerprints_update(pfx_fingerprint_set(table, mix), mix, true);
	return 0;
}

/* @return the position in rte_hash, to be freed together with the header. */
int32_t kvr_prefix__run_unpublish(struct kvr_prefix *table, uint64_t sh)
{
	const uint64_t mix = pfx_mix(table, sh);
	int32_t key;

	kvr_prefetch(pfx_fingerprint_set(table, mix));
	key = rte_hash_del_key_with_hash(table->hash, &sh, (uint32_t)mix);
	pfx_fingerprints_update(pfx_fingerprint_set(table, mix), mix, false);
	return key;
}

void kvr_prefix__run_retire(struct kvr_prefix *table, uint32_t hdr, int32_t key)
{
	atomic_store_explicit(&table->birth[hdr], 0, memory_order_relaxed);
	kvr_prefix__owner_retire(table, &table->hdr[hdr]);
	table->key[hdr] = key;
	kvr_prefix__pool_retire(table, &table->hdrs, hdr);
}

uint32_t kvr_prefix__run_new_hdr(struct kvr_prefix *table, uint32_t start)
{
	uint32_t i = kvr_prefix__pool_take(&table->hdrs);

	if (i == PFX_NONE)
		return PFX_NONE;
	memset((void *)&table->hdr[i], 0, sizeof(table->hdr[i]));
	table->hdr[i].start = (uint8_t)start;
	pfx_st32(&table->hdr[i].age, pfx_ld32(&table->age));
	table->key[i] = -1;
	return i;
}

void kvr_prefix__run_init(struct kvr_prefix *table, uint32_t meta, uint32_t hdr, uint32_t parent)
{
	struct pfx_meta *run = &table->meta[meta];
	uint32_t gen = run->gen;

	memset(run, 0, sizeof(*run));
	run->gen = gen;
	run->hdr = hdr;
	run->parent = parent;
	run->parent_gen = parent ? table->meta[parent].gen : 0;
	pfx_add(&table->st.runs, 1);
}
