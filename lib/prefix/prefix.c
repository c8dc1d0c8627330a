/* SPDX-License-Identifier: BSD-3-Clause */

/* Creation, destruction and counters of the table. layout_pvt.h describes the data structure. */

#include "prefix_pvt.h"

#include "kvr_errno.h"
#include <rte_cpuflags.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <sys/mman.h>

#define NAME_MAX_CHARS 20
#define HUGE_PAGE      ((size_t)2 << 20)
#define HASH_RUN_BYTES 40u /* bytes of rte_hash per key: slot, place in a bucket, free list */

static int check_conf(const struct kvr_prefix_conf *conf)
{
	if (conf->name == NULL || strlen(conf->name) == 0 || strlen(conf->name) > NAME_MAX_CHARS ||
	    conf->qsbr == NULL || conf->max_ranks > KVR_PREFIX_MAX_RANKS ||
	    (conf->max_blocks != 0 && conf->max_blocks < 64) || conf->max_blocks > 1u << 31 ||
	    conf->max_runs > PFX_META_MAX - 8 || conf->max_predicted > 1u << 28)
		return -EINVAL;
	return 0;
}

static int pick_isa(struct kvr_prefix *table, enum kvr_prefix_isa want)
{
	bool avx2 = rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX2) == 1 &&
		    rte_cpu_get_flag_enabled(RTE_CPUFLAG_BMI2) == 1;
	bool avx512 = avx2 && rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512F) == 1 &&
		      rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512BW) == 1 &&
		      rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512DQ) == 1 &&
		      rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512VL) == 1;

	if (want == KVR_PREFIX_ISA_AUTO)
		want = avx512 ? KVR_PREFIX_ISA_AVX512
		       : avx2 ? KVR_PREFIX_ISA_AVX2
			      : KVR_PREFIX_ISA_SCALAR;
	table->isa = want;
	if (want == KVR_PREFIX_ISA_SCALAR)
		table->score = kvr_prefix__score_scalar;
	else if (want == KVR_PREFIX_ISA_AVX2 && avx2)
		table->score = kvr_prefix__score_avx2;
	else if (want == KVR_PREFIX_ISA_AVX512 && avx512)
		table->score = kvr_prefix__score_avx512;
	else
		return want > KVR_PREFIX_ISA_AVX512 ? -EINVAL : -ENOTSUP;
	return 0;
}

/*
 * Map memory advised to be huge and touch it, so that a polling lcore takes no page fault later.
 * With `lazy` do neither.
 */
static void *map_huge(size_t bytes, bool lazy)
{
	size_t all = RTE_ALIGN_CEIL(bytes, HUGE_PAGE);
	char *p = mmap(NULL, all + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	char *start;

	if (p == MAP_FAILED)
		return NULL;
	start = RTE_PTR_ALIGN_CEIL(p, HUGE_PAGE);
	if (start > p)
		munmap(p, (size_t)(start - p));
	munmap(start + all, HUGE_PAGE - (size_t)(start - p));
	if (lazy)
		return start;
	madvise(start, all, MADV_HUGEPAGE); /* only advice: small pages work too */
	for (size_t i = 0; i < all; i += 4096)
		*(volatile char *)(start + i) = 0;
	return start;
}

static int get_memory(struct kvr_prefix *table, size_t bytes, const struct kvr_prefix_conf *conf)
{
	table->mem = NULL;
	table->mem_bytes = RTE_ALIGN_CEIL(bytes, HUGE_PAGE);
	if (rte_eal_has_hugepages())
		table->mem = rte_zmalloc_socket("kvr_prefix", bytes, HUGE_PAGE, conf->socket_id);
	if (table->mem != NULL)
		return 0;
	table->mem = map_huge(bytes, conf->lazy);
	table->mem_mapped = true;
	return table->mem != NULL ? 0 : -ENOMEM;
}

struct part {
	void *at; /* address of the pointer to set */
	size_t bytes;
};

/*
 * Lay out everything except rte_hash and the table itself in one allocation. If @p only is given,
 * only compute its size.
 */
static int lay_out(struct kvr_prefix *table, const struct kvr_prefix_conf *conf, size_t *only)
{
	const size_t hdrs = table->hdrs.n + 1, metas = table->metas.n + 1,
		     chunks = table->chunks.n + 1, bigs = table->bigs.n + 1,
		     exts = table->exts.n + 1, preds = table->preds.n + 1;
	const struct part part[] = {
		{&table->index.b, (size_t)table->index.end * sizeof(*table->index.b)},
		{&table->sh, chunks * PFX_CHUNK * sizeof(*table->sh)},
		{&table->hdr, hdrs * sizeof(*table->hdr)},
		{&table->big, bigs * table->big_bytes},
		{&table->ext, exts * sizeof(*table->ext)},
		{&table->meta, metas * sizeof(*table->meta)},
		{&table->chunk, chunks * sizeof(*table->chunk)},
		{&table->pred, preds * sizeof(*table->pred)},
		{&table->predx.b, (size_t)table->predx.end * sizeof(*table->predx.b)},
		{&table->birth, hdrs * sizeof(*table->birth)},
		{&table->key, hdrs * sizeof(*table->key)},
		{&table->fingerprints, table->fingerprint_sets * sizeof(*table->fingerprints)},
		{&table->held_bits, (metas / PFX_LINE + 1) * table->max_ranks * (PFX_LINE / 8)},
		{&table->sum, (size_t)table->max_ranks * table->sum_words * sizeof(*table->sum)},
		{&table->rank, table->max_ranks * sizeof(*table->rank)},
		{&table->rank_blocks, table->max_ranks * sizeof(*table->rank_blocks)},
		{&table->hdrs.next, hdrs * 4},
		{&table->metas.next, metas * 4},
		{&table->chunks.next, chunks * 4},
		{&table->bigs.next, bigs * 4},
		{&table->exts.next, exts * 4},
		{&table->preds.next, preds * 4},
	};
	size_t bytes = 0;

	for (uint32_t i = 0; i < RTE_DIM(part); i++)
		bytes += RTE_ALIGN_CEIL(part[i].bytes, 64);
	if (only != NULL) {
		*only = RTE_ALIGN_CEIL(bytes, HUGE_PAGE);
		return 0;
	}
	if (get_memory(table, bytes, conf) < 0)
		return -ENOMEM;
	bytes = 0;
	for (uint32_t i = 0; i < RTE_DIM(part); i++) {
		char *p = (char *)table->mem + bytes;

		memcpy(part[i].at, &p, sizeof(p));
		bytes += RTE_ALIGN_CEIL(part[i].bytes, 64);
	}
	return 0;
}

static void size_pool(struct pfx_pool *pool, uint64_t n)
{
	pool->n = (uint32_t)n;
	pfx_st32(&pool->fresh, 1);
}

/*
 * On average half a chunk is unused at the end of each run. Add an eighth of the headers and a
 * sixteenth of the chunks for objects that wait for the readers.
 */
static void size_all(struct kvr_prefix *table, const struct kvr_prefix_conf *conf)
{
	uint32_t blocks = conf->max_blocks ? conf->max_blocks : 1u << 20;
	uint32_t runs = conf->max_runs ? conf->max_runs : RTE_MAX(blocks / PFX_CHUNK, 16u);
	uint32_t preds = conf->max_predicted ? conf->max_predicted : runs;
	uint64_t chunks = blocks / PFX_CHUNK + runs / 2;

	table->max_blocks = blocks;
	table->max_ranks = conf->max_ranks ? conf->max_ranks : KVR_PREFIX_DEF_RANKS;
	table->stride = kvr_overlap_stride(table->max_ranks);
	table->big_words = (table->max_ranks + 63) / 64;
	table->big_bytes = RTE_ALIGN_CEIL(table->big_words * 8 + 48, 64);
	table->big_parts = (table->big_bytes - table->big_words * 8) / 4;
	size_pool(&table->metas, runs + 8ull);
	table->fingerprint_sets = table->metas.n / PFX_FINGERPRINTS + 1;
	table->sum_words = (table->metas.n / 64 + 1 + 63) / 64;
	size_pool(&table->hdrs, runs + runs / 8 + 64ull);
	size_pool(&table->chunks, chunks + chunks / 16 + 64);
	size_pool(&table->bigs, runs / 4 + 64ull);
	size_pool(&table->exts, RTE_MIN(runs, preds) + preds / 8 + 64ull);
	size_pool(&table->preds, preds + 8ull);
	kvr_prefix__index_size(&table->index, blocks);
	kvr_prefix__index_size(&table->predx, preds + 8);
}

static int cmp_sh(const void *a, const void *b, size_t len)
{
	RTE_SET_USED(len);
	return pfx_ld64(a, 0) != pfx_ld64(b, 0);
}

static int make_hash(struct kvr_prefix *table, const struct kvr_prefix_conf *conf)
{
	struct rte_hash_parameters params = {
		.entries = table->hdrs.n,
		.key_len = sizeof(uint64_t),
		.socket_id = conf->socket_id,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
	};
	char name[RTE_HASH_NAMESIZE] = "kvr_";

	strcat(name, conf->name); /* bounded by check_conf() */
	params.name = name;
	table->hash = rte_hash_create(&params);
	if (table->hash == NULL)
		return rte_errno == EEXIST ? -EEXIST : -ENOMEM;
	rte_hash_set_cmp_func(table->hash, cmp_sh);
	return 0;
}

void kvr_prefix_need(const struct kvr_prefix_conf *conf, struct kvr_prefix_need *out)
{
	struct kvr_prefix table = {0};

	size_all(&table, conf);
	lay_out(&table, conf, &out->table_bytes);
	out->index_entries = table.hdrs.n;
	out->self_bytes = sizeof(table);
}

struct kvr_prefix *kvr_prefix_create(const struct kvr_prefix_conf *conf)
{
	struct kvr_prefix *table;
	int ret = check_conf(conf);

	if (ret < 0)
		return kvr_null(-ret);
	table = rte_zmalloc_socket("kvr_prefix", sizeof(*table), 64, conf->socket_id);
	if (table == NULL)
		return kvr_null(ENOMEM);
	table->seed = kvr_mix64(conf->seed + UINT64_C(0x9E3779B97F4A7C15));
	table->qsbr = conf->qsbr;
	table->age = 1;
	table->batch = 1;
	table->slice = table->credit = conf->slice ? conf->slice : PFX_SLICE;
	size_all(table, conf);
	ret = pick_isa(table, conf->isa);
	if (ret == 0)
		ret = make_hash(table, conf);
	if (ret == 0)
		ret = lay_out(table, conf, NULL);
	if (ret < 0) {
		kvr_prefix_destroy(table);
		return kvr_null(-ret);
	}
	for (uint32_t i = 0; i < table->max_ranks; i++)
		table->rank[i].age = UINT32_MAX;
	return table;
}

void kvr_prefix_destroy(struct kvr_prefix *table)
{
	if (table == NULL)
		return;
	if (table->mem_mapped && table->mem != NULL)
		munmap(table->mem, table->mem_bytes);
	else
		rte_free(table->mem);
	rte_hash_free(table->hash);
	rte_free(table);
}

static uint32_t count_retired(const struct kvr_prefix *table)
{
	return table->hdrs.nretired + table->chunks.nretired + table->bigs.nretired +
	       table->exts.nretired;
}

uint32_t kvr_prefix_maintain(struct kvr_prefix *table, uint64_t now_ms)
{
	uint64_t secs;

	if (table->epoch_ms == 0)
		table->epoch_ms = now_ms;
	secs = now_ms > table->epoch_ms ? (now_ms - table->epoch_ms) / 1000 : 0;
	if (secs > 0) {
		/* Relaxed: readers store it with their matches; it publishes nothing. */
		pfx_st32(&table->age, pfx_ld32(&table->age) + (uint32_t)secs);
		table->epoch_ms += secs * 1000;
	}
	kvr_prefix__clear_slice(table);
	kvr_prefix__pool_reclaim(table);
	return count_retired(table) + kvr_prefix__clear_left(table);
}

uint64_t kvr_prefix_work(const struct kvr_prefix *table)
{
	return table->work;
}

/*
 * Bytes in use. The pools belong to the writer; a reader of these gauges may see values that are
 * some events old.
 */
static uint64_t pool_bytes(const struct pfx_pool *pool, uint64_t bytes)
{
	uint32_t nfree = pfx_ld32(&pool->nfree);
	uint32_t fresh = pfx_ld32(&pool->fresh);

	return (fresh - 1 - nfree) * (bytes + 4);
}

static const struct kvr_counter counters[] = {KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
const struct kvr_stats_def kvr_prefix_stats_def = {"prefix", counters, NULL};

void kvr_prefix_stats_get(const struct kvr_prefix *table, struct kvr_prefix_stats *out)
{
	kvr_stats_row_copy(&out->blocks, &table->st.blocks, KVR_PREFIX_COUNTERS);
	out->retired = count_retired(table);
	out->used_bytes = pool_bytes(&table->hdrs, sizeof(*table->hdr) + sizeof(*table->birth) +
							   sizeof(*table->key)) +
			  pool_bytes(&table->metas, sizeof(*table->meta)) +
			  pool_bytes(&table->chunks, PFX_CHUNK * 8 + sizeof(*table->chunk)) +
			  pool_bytes(&table->bigs, table->big_bytes) +
			  pool_bytes(&table->exts, sizeof(*table->ext)) +
			  pool_bytes(&table->preds, sizeof(*table->pred)) +
			  ((uint64_t)table->index.used + table->predx.used) *
				  sizeof(*table->index.b) / KVR_BUCKET_FILL +
			  out->runs * HASH_RUN_BYTES;
	out->memory_bytes =
		table->mem_bytes + sizeof(*table) + (uint64_t)table->hdrs.n * HASH_RUN_BYTES;
}

uint64_t kvr_prefix_rank_blocks(const struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier)
{
	if (rank >= table->max_ranks || tier >= KVR_TIERS)
		return 0;
	return kvr_cell_get(&table->rank_blocks[rank][tier]);
}

const char *kvr_prefix_isa_name(const struct kvr_prefix *table)
{
	return table->isa == KVR_PREFIX_ISA_AVX512 ? "avx512"
	       : table->isa == KVR_PREFIX_ISA_AVX2 ? "avx2"
						   : "scalar";
}
