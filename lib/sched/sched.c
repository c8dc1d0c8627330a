/* SPDX-License-Identifier: BSD-3-Clause */
/* Create and destroy; all memory is allocated here. */
#include "sched_pvt.h"

#include "kvr_errno.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_common.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define HUGE_FROM  (UINT64_C(1) << 19) /* minimum size for huge pages */

/* Header of a part: start and length of its mapping. */
struct mapping {
	void *base;
	size_t bytes;
};

/* Map zero pages, which use memory when touched; huge pages if available. */
static void *map_alloc(void *arg, size_t bytes)
{
	const size_t align = bytes >= HUGE_FROM ? HUGE_BYTES : 64;
	struct mapping m = {.bytes = bytes + align + sizeof(struct mapping)};
	char *p;

	m.base = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m.base == MAP_FAILED)
		return NULL;
	p = (char *)m.base + sizeof(m);
	p += (align - (uintptr_t)p % align) % align;
	if (align == HUGE_BYTES)
		(void)madvise(m.base, m.bytes, MADV_HUGEPAGE); /* optional */
	memcpy(p - sizeof(m), &m, sizeof(m));
	return p;
}

static void map_release(void *arg, void *p)
{
	struct mapping m;

	memcpy(&m, (char *)p - sizeof(m), sizeof(m));
	munmap(m.base, m.bytes);
}

/* Allocate zeroed memory, which kvr_sched_destroy() frees; NULL after any failure. */
static void *take_memory(struct kvr_sched *s, uint64_t n, size_t size)
{
	void *p;

	if (s->n_parts == 64 || (s->n_parts > 0 && s->part[s->n_parts - 1] == NULL))
		return NULL;
	p = s->ops.alloc(s->ops.arg, (size_t)n * size);
	s->part[s->n_parts++] = p;
	return p;
}

/*
 * The per-rank arrays that decisions read are contiguous: few pages, with an odd number of cache
 * lines between their starts, because arrays with the same page offset evict each other from the L1
 * cache. A call with base 0 returns the size.
 */
static size_t lay_columns(struct kvr_sched *s, uintptr_t base)
{
	const size_t n = s->max_ranks, words = n / 64;
	const bool ttft = s->mode->by_ttft, late = ttft && s->conf.ttft_late_binding;
	const struct {
		void *column; /* pointer to set */
		size_t bytes;
	} of[] = {{&s->used, words * 8},
		  {&s->open, words * 8},
		  {&s->over, words * 8},
		  {&s->due, words * 8},
		  {&s->silent, words * 8},
		  {&s->failing, words * 8},
		  {&s->ready, words * 8},
		  {&s->fit, words * 8},
		  {&s->elig, words * 8},
		  {&s->ties, words * 8},
		  {&s->sums, words * sizeof(double)},
		  {&s->tokens, n * sizeof(double)},
		  {&s->ttft.rest, ttft ? n * sizeof(double) : 0},
		  {&s->ttft.until, ttft ? n * sizeof(double) : 0},
		  {&s->ttft.late, late ? n * sizeof(double) : 0},
		  {&s->ttft.lines, late ? words * 8 : 0},
		  {&s->ttft.seen, late ? n * sizeof(double) : 0},
		  {&s->ttft.line, late ? n * sizeof(*s->ttft.line) : 0},
		  {&s->cost, n * sizeof(double)},
		  {&s->depth, n * sizeof(uint32_t)},
		  {&s->requests, n * sizeof(uint32_t)},
		  {&s->place, n * sizeof(uint32_t)},
		  {&s->order, n * sizeof(uint32_t)},
		  {&s->rank, n * sizeof(*s->rank)}};
	size_t at = 0;

	for (size_t i = 0; i < RTE_DIM(of); i++) {
		void *p = of[i].bytes > 0 ? (void *)(base + at) : NULL;

		memcpy(of[i].column, &p, sizeof(p));
		at += of[i].bytes > 0 ? (of[i].bytes + 63) / 64 * 64 : 0;
		at += of[i].bytes >= 4096 ? 64 : 0;
	}
	return at;
}

static void take_ranks(struct kvr_sched *s)
{
	uint32_t n = s->max_ranks, words = n / 64;
	uint32_t mine = n > s->conf.max_workers ? n : s->conf.max_workers;

	lay_columns(s, (uintptr_t)take_memory(s, lay_columns(s, 0), 1));
	s->fail = take_memory(s, n, sizeof(*s->fail));
	s->mult = take_memory(s, n, sizeof(double));
	s->shared = take_memory(s, n, sizeof(uint32_t));
	s->zeros = take_memory(s, n, sizeof(uint32_t));
	for (uint32_t t = 0; t < TIERS; t++)
		s->saved[t] = take_memory(s, n, sizeof(uint32_t));
	s->order_next = take_memory(s, n, sizeof(uint32_t));
	s->mine = take_memory(s, mine, sizeof(uint32_t));
	s->worker = take_memory(s, s->conf.max_workers, sizeof(*s->worker));
	s->sorted = take_memory(s, s->conf.max_workers, sizeof(uint32_t));
	s->taint = take_memory(s, s->conf.max_taints, sizeof(*s->taint));
	s->taint_len = take_memory(s, s->conf.max_taints, sizeof(uint32_t));
	s->taint_set = take_memory(s, (uint64_t)s->conf.max_taints * words, sizeof(uint64_t));
}

static bool take_queue(struct kvr_sched *s)
{
	uint32_t n = s->conf.max_requests;

	s->chunk_max = n;
	s->slot = take_memory(s, n, sizeof(*s->slot));
	s->node = take_memory(s, n, sizeof(*s->node));
	s->wait = take_memory(s, n, sizeof(*s->wait));
	s->chunk = take_memory(s, s->chunk_max, sizeof(*s->chunk));
	s->lora = take_memory(s, KVR_SCHED_ADAPTERS, sizeof(*s->lora));
	s->lora_hash = take_memory(s, KVR_SCHED_ADAPTERS, sizeof(*s->lora_hash));
	s->cls = take_memory(s, s->n_cls, sizeof(*s->cls));
	if (s->cls == NULL)
		return false;
	/* One block for all classes: lanes of one rank each and of ranks that went. */
	s->cls[0].limit = take_memory(s, (uint64_t)s->n_cls * s->max_ranks, sizeof(double));
	s->cls[0].lane = take_memory(s, (uint64_t)s->n_cls * (s->max_ranks + 1), sizeof(uint32_t));
	s->cls[0].lanes =
		take_memory(s, (uint64_t)s->n_cls * (s->max_ranks / 64 + 1), sizeof(uint64_t));
	return s->cls[0].lanes != NULL;
}

static void set_threshold(struct cls *k)
{
	k->has_threshold =
		k->conf.busy_threshold != KVR_POOL_NONE || !isnan(k->conf.busy_threshold_frac);
}

static void init_classes(struct kvr_sched *s)
{
	for (uint32_t i = 0; i < s->n_cls; i++) {
		struct cls *k = &s->cls[i];

		if (s->conf.n_classes > 0) {
			k->conf = s->conf.classes[i];
		} else {
			kvr_pool_class_init(&k->conf, "default");
			k->conf.busy_threshold_frac = s->conf.queue_threshold;
			k->conf.queue_policy = s->conf.queue_policy;
		}
		set_threshold(k);
		k->limit = s->cls[0].limit + (size_t)i * s->max_ranks;
		k->lane = s->cls[0].lane + (size_t)i * (s->max_ranks + 1);
		k->lanes = s->cls[0].lanes + (size_t)i * (s->max_ranks / 64 + 1);
		k->root = NIL;
		for (uint32_t r = 0; r <= s->max_ranks; r++)
			k->lane[r] = NIL;
	}
}

static void init_model(struct kvr_sched *s)
{
	const char *t = s->conf.prefill_table;

	while (s->conf.prefill_model == KVR_PREFILL_MODEL_TABLE && *t != '\0' &&
	       s->n_points < MODEL_POINTS) {
		char *end;

		s->point_tokens[s->n_points] = strtod(t, &end);
		s->point_ns[s->n_points++] = strtod(end + 1, &end) * 1e6;
		t = *end == ',' ? end + 1 : end;
	}
}

static void set_watch(struct kvr_sched *s)
{
	s->watch = !isnan(s->conf.decode_blocks_threshold) ||
		   s->conf.prefill_tokens_threshold != KVR_POOL_NONE ||
		   !isnan(s->conf.prefill_tokens_threshold_frac);
}

static void init_sched(struct kvr_sched *s, uint64_t now)
{
	const struct kvr_pool_conf *c = &s->conf;

	for (uint32_t r = 0; r < s->max_ranks; r++)
		s->rank[r] = (struct rank){.worker = NIL,
					   .pf_head = NIL,
					   .pf_tail = NIL,
					   .bk_head = NIL,
					   .bk_tail = NIL,
					   .rel_head = NIL};
	init_classes(s);
	init_model(s);
	kvr_rand_init(&s->rand, c->seed);
	s->lora_seed = kvr_mix64(c->seed ^ UINT64_C(0x6c6f726100000000));
	if (!kvr_sched__kernels(SCHED_AVX512, &s->k) && !kvr_sched__kernels(SCHED_AVX2, &s->k))
		kvr_sched__kernels(SCHED_SCALAR, &s->k);
	s->blocks = kvr_active_blocks(s->active);
	s->block = c->block_size;
	s->inv_block = 1.0 / c->block_size;
	s->pow2 = (c->block_size & (c->block_size - 1)) == 0;
	set_watch(s);
	s->blank.rank = KVR_SCHED_NO_RANK;
	s->blank.better_rank = KVR_SCHED_NO_RANK;
	s->words = 1;
	s->carry = NIL;
	s->slice = UINT32_MAX;
	s->turn = NIL;
	s->owed.slot = NIL;
	s->owed.first = NIL;
	s->chunk_free = NIL;
	s->origin = now;
	s->ttft.window = now;
	s->ttft.left_w = 1;
	s->ttft.late_old = s->ttft.late_new = NIL;
	s->next_sweep = now + SWEEP_NS;
	s->next_drain = now + SWEEP_NS;
	s->expiry_ns = (uint64_t)(c->request_expiry_s * (double)SECOND_NS);
	s->refresh_ns = (uint64_t)(c->overlap_refresh_s * (double)SECOND_NS);
}

static struct kvr_active *make_active(const struct kvr_sched *s)
{
	const uint32_t runs = s->conf.max_active_blocks / KVR_ACTIVE_RUN;
	const struct kvr_active_conf conf = {
		.max_ranks = s->max_ranks,
		.max_runs = runs + 64,
		.max_wide = runs / 16 + 64,
		.max_prompt = s->conf.max_prompt_blocks,
		.seed = kvr_mix64(s->conf.seed ^ UINT64_C(0x6163746976650000)),
		.alloc = s->ops.alloc,
		.release = s->ops.release,
		.arg = s->ops.arg,
	};

	return kvr_active_create(&conf);
}

struct kvr_sched *kvr_sched_create(const struct kvr_pool_conf *conf,
				   const struct kvr_sched_ops *ops, uint64_t now)
{
	struct kvr_sched_ops o = ops != NULL ? *ops : (struct kvr_sched_ops){0};
	struct kvr_sched *s;
	char err[128];

	if (kvr_pool_conf_check(conf, err, sizeof(err)) != 0)
		return kvr_null(EINVAL);
	if (o.alloc == NULL || o.release == NULL) {
		o.alloc = map_alloc;
		o.release = map_release;
	}
	s = o.alloc(o.arg, sizeof(*s));
	if (s == NULL)
		return kvr_null(ENOMEM);
	s->ops = o;
	s->conf = *conf;
	s->mode = kvr_pool_mode(conf->mode);
	if (s->conf.max_workers == 0)
		s->conf.max_workers = conf->max_ranks;
	if (!isnan(conf->overlap_score_weight)) {
		s->conf.prefill_load_scale = conf->overlap_score_weight;
		if (conf->overlap_score_weight == 0)
			s->conf.overlap_score_credit = 0;
	}
	s->max_ranks = (conf->max_ranks + 63) / 64 * 64;
	s->n_cls = conf->n_classes > 0 ? conf->n_classes : 1;
	take_ranks(s);
	if (!take_queue(s))
		goto err_mem;
	s->active = make_active(s);
	if (s->active == NULL)
		goto err_mem;
	init_sched(s, now);
	return s;

err_mem:
	kvr_sched_destroy(s);
	return kvr_null(ENOMEM);
}

void kvr_sched_destroy(struct kvr_sched *s)
{
	if (s == NULL)
		return;
	kvr_active_destroy(s->active);
	for (uint32_t i = 0; i < s->n_parts; i++)
		if (s->part[i] != NULL)
			s->ops.release(s->ops.arg, s->part[i]);
	s->ops.release(s->ops.arg, s);
}

/* ---- changes at run time ---- */

#define TUNABLE(key, field)                                                                        \
	{                                                                                          \
		key, offsetof(struct kvr_pool_conf, field),                                        \
			sizeof(((struct kvr_pool_conf *)0)->field)                                 \
	}
static const struct {
	const char *key;
	size_t at, size;
} tunable[] = {
	TUNABLE("router_temperature", temperature),
	TUNABLE("overlap_score_credit", overlap_score_credit),
	TUNABLE("overlap_score_credit_decay", overlap_score_credit_decay),
	TUNABLE("prefill_load_scale", prefill_load_scale),
	TUNABLE("decode_active_request_weight", decode_active_request_weight),
	TUNABLE("host_cache_hit_weight", host_cache_hit_weight),
	TUNABLE("disk_cache_hit_weight", disk_cache_hit_weight),
	TUNABLE("shared_cache_multiplier", shared_cache_multiplier),
	TUNABLE("router_queue_threshold", queue_threshold),
	TUNABLE("active_decode_blocks_threshold", decode_blocks_threshold),
	TUNABLE("active_prefill_tokens_threshold", prefill_tokens_threshold),
	TUNABLE("active_prefill_tokens_threshold_frac", prefill_tokens_threshold_frac),
	TUNABLE("failure_ratio", failure_ratio),
};

bool kvr_sched_tunable(const char *key)
{
	for (size_t i = 0; i < RTE_DIM(tunable); i++)
		if (strcmp(tunable[i].key, key) == 0)
			return true;
	return false;
}

const char *kvr_sched_tunable_key(size_t i)
{
	return i < RTE_DIM(tunable) ? tunable[i].key : NULL;
}

/* Copy everything except the name and the order of the heaps. */
bool kvr_sched_class_tunable(const char *key)
{
	for (const struct kvr_opt *o = kvr_pool_class_opts; o->name != NULL; o++)
		if (strcmp(o->name, key) == 0)
			return strcmp(key, "queue_policy") != 0;
	return false;
}

static void tune_class(struct cls *k, struct kvr_pool_class *own, const struct kvr_pool_class *conf)
{
	const int order = own->queue_policy;

	*own = *conf;
	own->queue_policy = order;
	k->conf = *own;
	set_threshold(k);
}

void kvr_sched_tune(struct kvr_sched *s, const struct kvr_pool_conf *conf)
{
	for (size_t i = 0; i < RTE_DIM(tunable); i++)
		memcpy((char *)&s->conf + tunable[i].at, (const char *)conf + tunable[i].at,
		       tunable[i].size);
	if (s->conf.n_classes == 0)
		s->cls[0].conf.busy_threshold_frac = s->conf.queue_threshold;
	set_threshold(&s->cls[0]);
	for (uint32_t i = 0; i < s->conf.n_classes; i++)
		tune_class(&s->cls[i], &s->conf.classes[i], &conf->classes[i]);
	kvr_sched__limits(s);
	set_watch(s);
	for (uint32_t i = 0; i < s->n_ranks; i++) {
		kvr_sched__judge(s, s->order[i]);
		if (s->conf.failure_ratio == 0)
			kvr_sched__fail_forget(s, s->order[i]);
	}
	s->changed = true; /* waiting requests may be admissible */
}

const struct kvr_pool_conf *kvr_sched_conf(const struct kvr_sched *s)
{
	return &s->conf;
}

uint32_t kvr_sched_max_ranks(const struct kvr_sched *s)
{
	return s->max_ranks;
}

uint32_t kvr_sched_class_find(const struct kvr_sched *s, const char *name, size_t len)
{
	for (uint32_t i = 0; i < s->n_cls; i++)
		if (strlen(s->cls[i].conf.name) == len &&
		    memcmp(s->cls[i].conf.name, name, len) == 0)
			return i;
	return KVR_SCHED_NO_CLASS;
}

void kvr_sched_explain(struct kvr_sched *s, struct kvr_sched_terms *terms)
{
	s->terms = terms;
}

const struct kvr_sched_counters *kvr_sched_counters(const struct kvr_sched *s)
{
	return &s->cnt;
}

const struct kvr_active *kvr_sched_active(const struct kvr_sched *s)
{
	return s->active;
}
