/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "kvr_epoch.h"
#include "kvr_rand.h"

#define MIN_SESSIONS 65536u
#define KVLOG_WORDS  65536u /* 512 KiB per rank: limit of unacknowledged events */

static void *alloc_zeroed(size_t n, size_t size)
{
	void *p = NULL;

	if (n == 0 || size > SIZE_MAX / n || posix_memalign(&p, RTE_CACHE_LINE_SIZE, n * size) != 0)
		return NULL;
	return memset(p, 0, n * size); /* touches all pages, so that no page fault follows */
}

static int setup_slices(struct load *l)
{
	if (l->opt->slice <= 0)
		return 0;
	l->m->slices = alloc_zeroed(LOAD_SLICES, sizeof(*l->m->slices));
	l->m->slice_cycles = (uint64_t)(l->opt->slice * (double)l->hz) + 1;
	return l->m->slices != NULL ? 0 : -ENOMEM;
}

static int setup_slots(struct load *l)
{
	l->n_slots = l->opt->max_inflight;
	l->slots = alloc_zeroed(l->n_slots, sizeof(*l->slots));
	l->free = alloc_zeroed(l->n_slots, sizeof(*l->free));
	l->checks = alloc_zeroed(l->n_slots, sizeof(*l->checks));
	l->paces = alloc_zeroed(l->n_slots, sizeof(*l->paces));
	if (l->slots == NULL || l->free == NULL || l->checks == NULL || l->paces == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n_slots; i++)
		l->free[i] = l->n_slots - 1 - i;
	l->n_free = l->n_slots;
	return load_timers_init(&l->timers, l->opt->instant ? 1 : 8 * l->n_slots);
}

/* Additions for disaggregated serving and sessions. */
static int setup_legs(struct load *l)
{
	const bool pairs = l->opt->prefills > 0;

	if (pairs)
		l->pairs = alloc_zeroed(l->n_slots, sizeof(*l->pairs));
	if (pairs || l->opt->sessions > 0)
		l->hints = alloc_zeroed(l->n_slots * 2ull, LOAD_HINT_ROOM);
	return (pairs && l->pairs == NULL) || ((pairs || l->opt->sessions > 0) && l->hints == NULL)
		       ? -ENOMEM
		       : 0;
}

/* Records by number. A number must not recur while an engine has its session open. */
static int setup_sessions(struct load *l)
{
	uint64_t n = MIN_SESSIONS;

	if (l->opt->sessions == 0)
		return 0;
	while (n < 16ull * l->opt->sessions)
		n *= 2;
	l->session_mask = n - 1;
	l->sessions = alloc_zeroed(n, sizeof(*l->sessions));
	l->lanes = alloc_zeroed(l->opt->sessions, sizeof(*l->lanes));
	if (l->sessions == NULL || l->lanes == NULL)
		return -ENOMEM;
	return load_timers_init(&l->lane_timers, 2 * l->opt->sessions);
}

static int setup_rank(struct load *l, uint32_t i)
{
	struct load_rank *r = &l->ranks[i];

	r->engine = i / l->opt->ranks;
	r->dp_rank = i % l->opt->ranks;
	engine_init(&r->model, &l->speed);
	r->model.max_running = l->opt->max_running;
	if (l->opt->blocks_per_rank == 0)
		return 0;
	r->model.cache = engine_cache_create(l->opt->blocks_per_rank, kvr_rand_u64(&l->rand));
	r->log.size = KVLOG_WORDS;
	r->log.words = alloc_zeroed(KVLOG_WORDS, sizeof(*r->log.words));
	return r->model.cache == NULL || r->log.words == NULL ? -ENOMEM : 0;
}

static int setup_members(struct load *l)
{
	const struct load_options *o = l->opt;
	int rc = 0;

	l->n_clients = o->clients;
	l->n_engines = o->engines;
	l->n_ranks = o->engines * o->ranks;
	l->clients = alloc_zeroed(l->n_clients, sizeof(*l->clients));
	l->engines = alloc_zeroed(l->n_engines, sizeof(*l->engines));
	l->ranks = alloc_zeroed(l->n_ranks, sizeof(*l->ranks));
	l->in_flight = alloc_zeroed(l->n_ranks, sizeof(*l->in_flight));
	l->kv_work = alloc_zeroed(l->n_ranks, sizeof(*l->kv_work));
	if (l->clients == NULL || l->engines == NULL || l->ranks == NULL || l->in_flight == NULL ||
	    l->kv_work == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n_clients;
	     i++) /* different in each process, also with one seed */
		l->clients[i].source = kvr_mix64(((uint64_t)l->epoch << 32 | i) ^ rte_rdtsc());
	for (uint32_t i = 0; i < l->n_engines; i++) {
		l->engines[i].worker = o->worker_base + i;
		l->engines[i].epoch = l->epoch;
		if (o->prefills > 0)
			l->engines[i].role = i < o->prefills ? KVR_ROLE_PREFILL : KVR_ROLE_DECODE;
		l->engines[i].bootstrap = i < lround(o->prefills * o->bootstrap_share);
	}
	for (uint32_t i = 0; i < l->n_ranks && rc == 0; i++)
		rc = setup_rank(l, i);
	return rc;
}

/* Largest dump: one event per block (hash and event head), in frames that are not quite full. */
static int setup_dump(struct load *l)
{
	const uint64_t blocks = l->opt->blocks_per_rank;
	struct load_dump *d = &l->dump;

	d->rank = LOAD_UNPINNED;
	if (blocks == 0)
		return 0;
	d->room = (uint32_t)(blocks * 26 + 4 * KVR_WIRE_MAX_FRAME);
	d->frames_room = d->room / 512 + 4;
	d->bytes = alloc_zeroed(d->room, 1);
	d->at = alloc_zeroed(d->frames_room + 1, sizeof(*d->at));
	d->scratch = alloc_zeroed(blocks, sizeof(*d->scratch));
	return d->bytes == NULL || d->at == NULL || d->scratch == NULL ? -ENOMEM : 0;
}

static int setup_content(struct load *l)
{
	const struct load_options *o = l->opt;
	uint32_t longest = load_workload_max_blocks(l->work) + 2 * o->osl / o->block_size + 2;

	l->removed = alloc_zeroed(longest, sizeof(*l->removed));
	l->tokens = alloc_zeroed(load_workload_max_isl(l->work) + 2u, sizeof(*l->tokens));
	l->body = alloc_zeroed(o->body_bytes + 8u, 1);
	l->item = alloc_zeroed(o->item_bytes + 8u, 1);
	if (l->removed == NULL || l->tokens == NULL || l->body == NULL || l->item == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->body_bytes; i++)
		l->body[i] = (uint8_t)(i * 7 + 1);
	for (uint32_t i = 0; i < o->item_bytes; i++)
		l->item[i] = (uint8_t)(i * 5 + 3);
	return 0;
}

/* Reject sizes that the protocol cannot carry, before the first request. */
static int check_sizes(const struct load *l, char *err, size_t errlen)
{
	const uint32_t blocks = load_workload_max_blocks(l->work);
	const uint32_t isl = load_workload_max_isl(l->work);

	if (!l->opt->tokens && blocks > KVR_WIRE_MAX_HASHES)
		snprintf(err, errlen, "a prompt has %u blocks; the protocol allows %u", blocks,
			 KVR_WIRE_MAX_HASHES);
	else if (isl > KVR_WIRE_MAX_TOKENS)
		snprintf(err, errlen, "a prompt has %u tokens; the protocol allows %u", isl,
			 KVR_WIRE_MAX_TOKENS);
	else
		return 0;
	return -EMSGSIZE;
}

int load_setup(struct load *l, const struct load_options *opt, char *err, size_t errlen)
{
	int rc;

	l->opt = opt;
	l->hz = rte_get_tsc_hz();
	l->us = l->hz / 1000000;
	/* Half the shortest timeout, within bounds: each check costs a cache line. */
	l->check_period =
		(uint64_t)(RTE_MIN(RTE_MAX(opt->repeat_ms / 2, 1.0), 50.0) * 1e-3 * (double)l->hz);
	l->speed.prefill = opt->prefill_us * (double)l->hz * 1e-6;
	l->speed.decode = opt->decode_us * (double)l->hz * 1e-6;
	l->epoch = kvr_epoch_of_clock();
	l->due_at = UINT64_MAX;
	kvr_rand_init(&l->rand, kvr_mix64(opt->seed + 3));
	l->policy.kind = (enum load_policy_kind)opt->policy;
	kvr_rand_init(&l->policy.rand, kvr_mix64(opt->seed + 4));
	rc = check_sizes(l, err, errlen);
	if (rc < 0)
		return rc;
	l->m = alloc_zeroed(1, sizeof(*l->m));
	rc = l->m == NULL ? -ENOMEM : setup_slices(l);
	if (rc == 0)
		rc = setup_slots(l);
	if (rc == 0)
		rc = setup_legs(l);
	if (rc == 0)
		rc = setup_sessions(l);
	if (rc == 0)
		rc = setup_members(l);
	if (rc == 0)
		rc = setup_dump(l);
	if (rc == 0)
		rc = setup_content(l);
	if (rc < 0)
		snprintf(err, errlen, "not enough memory for %u slots and %u ranks of %u blocks",
			 opt->max_inflight, opt->engines * opt->ranks, opt->blocks_per_rank);
	return rc;
}

void load_teardown(struct load *l)
{
	for (uint32_t i = 0; l->ranks != NULL && i < l->n_ranks; i++) {
		engine_cache_destroy(l->ranks[i].model.cache);
		free(l->ranks[i].log.words);
	}
	load_timers_fini(&l->timers);
	load_timers_fini(&l->lane_timers);
	free(l->sessions);
	free(l->lanes);
	free(l->pairs);
	free(l->hints);
	free(l->slots);
	free(l->free);
	free(l->checks);
	free(l->paces);
	free(l->clients);
	free(l->engines);
	free(l->ranks);
	free(l->in_flight);
	free(l->kv_work);
	free(l->dump.bytes);
	free(l->dump.at);
	free(l->dump.scratch);
	free(l->removed);
	free(l->tokens);
	free(l->body);
	free(l->item);
	if (l->m != NULL)
		free(l->m->slices);
	free(l->m);
}
