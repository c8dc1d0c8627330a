/* SPDX-License-Identifier: BSD-3-Clause */

/* Create, destroy and the counters. The structure is described in layout_pvt.h. */

#include "prefix_pvt.h"

#include "kvr_errno.h"
#include <rte_cpuflags.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <sys/mman.h>

#define NAME_MAX_CHARS 20
#define HUGE_PAGE      ((size_t)2 << 20)
#define HASH_RUN_BYTES 40u /* of rte_hash for one key: slot, place in a bucket, free list */

static int check_conf(const struct kvr_prefix_conf *c)
{
	if (c->name == NULL || strlen(c->name) == 0 || strlen(c->name) > NAME_MAX_CHARS ||
	    c->qsbr == NULL || c->max_ranks > KVR_PREFIX_MAX_RANKS ||
	    (c->max_blocks != 0 && c->max_blocks < 64) || c->max_blocks > 1u << 31 ||
	    c->max_runs > PFX_META_MAX - 8 || c->max_predicted > 1u << 28)
		return -EINVAL;
	return 0;
}

static int pick_isa(struct kvr_prefix *t, enum kvr_prefix_isa want)
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
	t->isa = want;
	if (want == KVR_PREFIX_ISA_SCALAR)
		t->score = kvr_prefix__score_scalar;
	else if (want == KVR_PREFIX_ISA_AVX2 && avx2)
		t->score = kvr_prefix__score_avx2;
	else if (want == KVR_PREFIX_ISA_AVX512 && avx512)
		t->score = kvr_prefix__score_avx512;
	else
		return want > KVR_PREFIX_ISA_AVX512 ? -EINVAL : -ENOTSUP;
	return 0;
}

/* Pages advised to be huge, touched now: no page fault later, on a polling lcore; or neither. */
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
	madvise(start, all, MADV_HUGEPAGE); /* advice: small pages serve as well */
	for (size_t i = 0; i < all; i += 4096)
		*(volatile char *)(start + i) = 0;
	return start;
}

static int get_memory(struct kvr_prefix *t, size_t bytes, const struct kvr_prefix_conf *c)
{
	t->mem = NULL;
	t->mem_bytes = RTE_ALIGN_CEIL(bytes, HUGE_PAGE);
	if (rte_eal_has_hugepages())
		t->mem = rte_zmalloc_socket("kvr_prefix", bytes, HUGE_PAGE, c->socket_id);
	if (t->mem != NULL)
		return 0;
	t->mem = map_huge(bytes, c->lazy);
	t->mem_mapped = true;
	return t->mem != NULL ? 0 : -ENOMEM;
}

struct part {
	void *at; /* address of the pointer to set */
	size_t bytes;
};

/* Everything the table needs beside rte_hash and itself, in one piece of memory; with @p only, its
 * bytes alone. */
static int lay_out(struct kvr_prefix *t, const struct kvr_prefix_conf *c, size_t *only)
{
	const size_t hdrs = t->hdrs.n + 1, metas = t->metas.n + 1, chunks = t->chunks.n + 1,
		     bigs = t->bigs.n + 1, exts = t->exts.n + 1, preds = t->preds.n + 1;
	const struct part part[] = {
		{&t->index.b, (size_t)t->index.end * sizeof(*t->index.b)},
		{&t->sh, chunks * PFX_CHUNK * sizeof(*t->sh)},
		{&t->hdr, hdrs * sizeof(*t->hdr)},
		{&t->big, bigs * t->big_bytes},
		{&t->ext, exts * sizeof(*t->ext)},
		{&t->meta, metas * sizeof(*t->meta)},
		{&t->chunk, chunks * sizeof(*t->chunk)},
		{&t->pred, preds * sizeof(*t->pred)},
		{&t->predx.b, (size_t)t->predx.end * sizeof(*t->predx.b)},
		{&t->birth, hdrs * sizeof(*t->birth)},
		{&t->key, hdrs * sizeof(*t->key)},
		{&t->prints, t->nprints * sizeof(*t->prints)},
		{&t->hold, (metas / PFX_LINE + 1) * t->max_ranks * (PFX_LINE / 8)},
		{&t->sum, (size_t)t->max_ranks * t->sum_words * sizeof(*t->sum)},
		{&t->rank, t->max_ranks * sizeof(*t->rank)},
		{&t->rank_blocks, t->max_ranks * sizeof(*t->rank_blocks)},
		{&t->hdrs.next, hdrs * 4},
		{&t->metas.next, metas * 4},
		{&t->chunks.next, chunks * 4},
		{&t->bigs.next, bigs * 4},
		{&t->exts.next, exts * 4},
		{&t->preds.next, preds * 4},
	};
	size_t bytes = 0;

	for (uint32_t i = 0; i < RTE_DIM(part); i++)
		bytes += RTE_ALIGN_CEIL(part[i].bytes, 64);
	if (only != NULL) {
		*only = RTE_ALIGN_CEIL(bytes, HUGE_PAGE);
		return 0;
	}
	if (get_memory(t, bytes, c) < 0)
		return -ENOMEM;
	bytes = 0;
	for (uint32_t i = 0; i < RTE_DIM(part); i++) {
		char *p = (char *)t->mem + bytes;

		memcpy(part[i].at, &p, sizeof(p));
		bytes += RTE_ALIGN_CEIL(part[i].bytes, 64);
	}
	return 0;
}

static void size_pool(struct pfx_pool *p, uint64_t n)
{
	p->n = (uint32_t)n;
	pfx_st32(&p->fresh, 1);
}

/*
 * Half a chunk a run is lost at its end on average. What waits for the readers comes on top:
 * an eighth of the headers, a sixteenth of the chunks.
 */
static void size_all(struct kvr_prefix *t, const struct kvr_prefix_conf *c)
{
	uint32_t blocks = c->max_blocks ? c->max_blocks : 1u << 20;
	uint32_t runs = c->max_runs ? c->max_runs : RTE_MAX(blocks / PFX_CHUNK, 16u);
	uint32_t preds = c->max_predicted ? c->max_predicted : runs;
	uint64_t chunks = blocks / PFX_CHUNK + runs / 2;

	t->max_blocks = blocks;
	t->max_ranks = c->max_ranks ? c->max_ranks : KVR_PREFIX_DEF_RANKS;
	t->stride = kvr_overlap_stride(t->max_ranks);
	t->big_words = (t->max_ranks + 63) / 64;
	t->big_bytes = RTE_ALIGN_CEIL(t->big_words * 8 + 48, 64);
	t->big_parts = (t->big_bytes - t->big_words * 8) / 4;
	size_pool(&t->metas, runs + 8ull);
	t->nprints = t->metas.n / PFX_PRINTS + 1;
	t->sum_words = (t->metas.n / 64 + 1 + 63) / 64;
	size_pool(&t->hdrs, runs + runs / 8 + 64ull);
	size_pool(&t->chunks, chunks + chunks / 16 + 64);
	size_pool(&t->bigs, runs / 4 + 64ull);
	size_pool(&t->exts, RTE_MIN(runs, preds) + preds / 8 + 64ull);
	size_pool(&t->preds, preds + 8ull);
	kvr_prefix__index_size(&t->index, blocks);
	kvr_prefix__index_size(&t->predx, preds + 8);
}

static int cmp_sh(const void *a, const void *b, size_t len)
{
	RTE_SET_USED(len);
	return pfx_ld64(a, 0) != pfx_ld64(b, 0);
}

static int make_hash(struct kvr_prefix *t, const struct kvr_prefix_conf *c)
{
	struct rte_hash_parameters p = {
		.entries = t->hdrs.n,
		.key_len = sizeof(uint64_t),
		.socket_id = c->socket_id,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
	};
	char name[RTE_HASH_NAMESIZE] = "kvr_";

	strcat(name, c->name); /* bounded by check_conf() */
	p.name = name;
	t->hash = rte_hash_create(&p);
	if (t->hash == NULL)
		return rte_errno == EEXIST ? -EEXIST : -ENOMEM;
	rte_hash_set_cmp_func(t->hash, cmp_sh);
	return 0;
}

void kvr_prefix_need(const struct kvr_prefix_conf *c, struct kvr_prefix_need *out)
{
	struct kvr_prefix t = {0};

	size_all(&t, c);
	lay_out(&t, c, &out->table_bytes);
	out->index_entries = t.hdrs.n;
	out->self_bytes = sizeof(t);
}

struct kvr_prefix *kvr_prefix_create(const struct kvr_prefix_conf *c)
{
	struct kvr_prefix *t;
	int ret = check_conf(c);

	if (ret < 0)
		return kvr_null(-ret);
	t = rte_zmalloc_socket("kvr_prefix", sizeof(*t), 64, c->socket_id);
	if (t == NULL)
		return kvr_null(ENOMEM);
	t->seed = kvr_mix64(c->seed + UINT64_C(0x9E3779B97F4A7C15));
	t->qsbr = c->qsbr;
	t->age = 1;
	t->batch = 1;
	t->slice = t->credit = c->slice ? c->slice : PFX_SLICE;
	size_all(t, c);
	ret = pick_isa(t, c->isa);
	if (ret == 0)
		ret = make_hash(t, c);
	if (ret == 0)
		ret = lay_out(t, c, NULL);
	if (ret < 0) {
		kvr_prefix_destroy(t);
		return kvr_null(-ret);
	}
	for (uint32_t i = 0; i < t->max_ranks; i++)
		t->rank[i].age = UINT32_MAX;
	return t;
}

void kvr_prefix_destroy(struct kvr_prefix *t)
{
	if (t == NULL)
		return;
	if (t->mem_mapped && t->mem != NULL)
		munmap(t->mem, t->mem_bytes);
	else
		rte_free(t->mem);
	rte_hash_free(t->hash);
	rte_free(t);
}

static uint32_t retired(const struct kvr_prefix *t)
{
	return t->hdrs.nretired + t->chunks.nretired + t->bigs.nretired + t->exts.nretired;
}

uint32_t kvr_prefix_maintain(struct kvr_prefix *t, uint64_t now_ms)
{
	uint64_t secs;

	if (t->epoch_ms == 0)
		t->epoch_ms = now_ms;
	secs = now_ms > t->epoch_ms ? (now_ms - t->epoch_ms) / 1000 : 0;
	if (secs > 0) {
		/* Readers note it with their matches; publishes nothing. */
		pfx_st32(&t->age, pfx_ld32(&t->age) + (uint32_t)secs);
		t->epoch_ms += secs * 1000;
	}
	kvr_prefix__clear_slice(t);
	kvr_prefix__pool_reclaim(t);
	return retired(t) + kvr_prefix__clear_left(t);
}

uint64_t kvr_prefix_work(const struct kvr_prefix *t)
{
	return t->work;
}

/* The pools are the writer's; a reader of these gauges may see them some events old. */
static uint64_t used(const struct pfx_pool *p, uint64_t bytes)
{
	uint32_t nfree = pfx_ld32(&p->nfree);
	uint32_t fresh = pfx_ld32(&p->fresh);

	return (fresh - 1 - nfree) * (bytes + 4);
}

static const struct kvr_counter counters[] = {KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
const struct kvr_stats_def kvr_prefix_stats_def = {"prefix", counters, NULL};

void kvr_prefix_stats_get(const struct kvr_prefix *t, struct kvr_prefix_stats *out)
{
	kvr_stats_row_copy(&out->blocks, &t->st.blocks, KVR_PREFIX_COUNTERS);
	out->retired = retired(t);
	out->used_bytes =
		used(&t->hdrs, sizeof(*t->hdr) + sizeof(*t->birth) + sizeof(*t->key)) +
		used(&t->metas, sizeof(*t->meta)) +
		used(&t->chunks, PFX_CHUNK * 8 + sizeof(*t->chunk)) + used(&t->bigs, t->big_bytes) +
		used(&t->exts, sizeof(*t->ext)) + used(&t->preds, sizeof(*t->pred)) +
		((uint64_t)t->index.used + t->predx.used) * sizeof(*t->index.b) / KVR_BUCKET_FILL +
		out->runs * HASH_RUN_BYTES;
	out->memory_bytes = t->mem_bytes + sizeof(*t) + (uint64_t)t->hdrs.n * HASH_RUN_BYTES;
}

uint64_t kvr_prefix_rank_blocks(const struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier)
{
	if (rank >= t->max_ranks || tier >= KVR_TIERS)
		return 0;
	return kvr_cell_get(&t->rank_blocks[rank][tier]);
}

const char *kvr_prefix_isa_name(const struct kvr_prefix *t)
{
	return t->isa == KVR_PREFIX_ISA_AVX512 ? "avx512"
	       : t->isa == KVR_PREFIX_ISA_AVX2 ? "avx2"
					       : "scalar";
}
