/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"

/*
 * Checks of a simulated pair of prefill and decode engines (PROTOCOL.md 7.5). Both legs of a
 * request are in one slot, so the "transfer" is a look at the other leg:
 *
 * 	bootstrap   the decode leg waits until the prefill leg with its room has its result
 * 	sync        the decode leg carries the result, which must be equal to that leg's
 *
 * A decode leg whose prefill leg never arrives ends with an ERROR item.
 */

enum { DECODE, PREFILL }; /* index of room[] and runs[] */

#define TRANSFER_LIMIT_S 5u

static void count_violation(struct load *l, enum load_counter what)
{
	kvr_stats_inc(l->row, what);
}

/* The prefill engine with worker id @worker, or NULL. */
static const struct load_engine *prefill_engine(const struct load *l, uint64_t worker)
{
	const uint64_t i = worker - l->opt->worker_base;

	return i < l->n_engines && l->engines[i].role == KVR_ROLE_PREFILL ? &l->engines[i] : NULL;
}

void load_pair_begin(struct load *l, uint32_t slot)
{
	struct load_pair *p = &l->pairs[slot];

	*p = (struct load_pair){.prefill.gen = p->prefill.gen + 1};
}

struct load_transfer load_pair_result(const struct load *l, uint32_t slot)
{
	const struct load_pair *p = &l->pairs[slot];
	const struct load_slot *s = &l->slots[slot];
	const struct load_rank *r = &l->ranks[p->prefill.rank];
	const uint32_t n = s->prompt->n_blocks;
	struct load_transfer t = {.source = l->clients[s->client].source,
				  .id = s->id,
				  .worker = l->engines[r->engine].worker,
				  .room = p->room[PREFILL],
				  .last = n > 0 ? s->prompt->hashes[n - 1] : 0,
				  .dp_rank = r->dp_rank,
				  .n_blocks = n};

	load_transfer_seal(&t);
	return t;
}

/* ---- hints of the legs ---- */

/* Whether BOOTSTRAP has the address that the prefill engine published. */
static bool address_fits(const struct load *l, const struct load_engine *e,
			 const struct kvr_hints *h)
{
	return h->bootstrap.port == load_bootstrap_port(l, (uint32_t)(e - l->engines)) &&
	       h->bootstrap.host.len == strlen(l->opt->ip) &&
	       memcmp(h->bootstrap.host.p, l->opt->ip, h->bootstrap.host.len) == 0;
}

static void count_run(uint8_t *n)
{
	if (*n < UINT8_MAX)
		(*n)++;
}

static void on_prefill(struct load *l, uint32_t slot, const struct kvr_hints *h)
{
	struct load_pair *p = &l->pairs[slot];
	const struct load_rank *r = &l->ranks[p->prefill.rank];
	const struct load_engine *e = &l->engines[r->engine];
	const bool bootstrap = (h->present & KVR_HAS(KVR_HINT_BOOTSTRAP)) != 0;

	kvr_stats_inc(l->row, LOAD_PREFILL_LEGS);
	count_run(&p->runs[PREFILL]);
	p->finished = 0;
	p->room[PREFILL] = bootstrap ? h->bootstrap.room : 0;
	if (bootstrap != e->bootstrap || (bootstrap && !address_fits(l, e, h)))
		count_violation(l, LOAD_V_HINTS);
	if (bootstrap && !load_room_fits(h->bootstrap.room, r->dp_rank, l->opt->ranks))
		count_violation(l, LOAD_V_ROOM);
	if (h->present & KVR_HAS(KVR_HINT_PREFILL_RESULT))
		count_violation(l, LOAD_V_RESULT);
}

/* The result in the decode leg must be equal to that of the prefill leg. */
static void check_result(struct load *l, uint32_t slot, const struct kvr_hints *h)
{
	const struct load_pair *p = &l->pairs[slot];
	const struct load_transfer want = load_pair_result(l, slot);

	if (p->finished && want.worker == p->hinted && want.room == 0 &&
	    load_transfer_is(h->prefill_result.p, h->prefill_result.len, &want))
		kvr_stats_inc(l->row, LOAD_TRANSFERS);
	else
		count_violation(l, LOAD_V_RESULT);
}

static void on_decode(struct load *l, uint32_t slot, const struct kvr_hints *h)
{
	struct load_pair *p = &l->pairs[slot];
	const struct load_engine *e = prefill_engine(l, h->prefill_worker);
	const bool bootstrap = (h->present & KVR_HAS(KVR_HINT_BOOTSTRAP)) != 0;

	count_run(&p->runs[DECODE]);
	if (!(l->slots[slot].leg.flags & LOAD_L_DECODE)) {
		kvr_stats_inc(l->row, LOAD_BYPASS_LEGS);
		return;
	}
	kvr_stats_inc(l->row, bootstrap ? LOAD_BOOTSTRAP_LEGS : LOAD_SYNC_LEGS);
	p->hinted = h->prefill_worker;
	p->room[DECODE] = bootstrap ? h->bootstrap.room : 0;
	if (e == NULL) {
		count_violation(l, LOAD_V_WORKER);
		return;
	}
	if (bootstrap != e->bootstrap || (bootstrap && !address_fits(l, e, h)))
		count_violation(l, LOAD_V_HINTS);
	if (!bootstrap)
		check_result(l, slot, h);
	else if (h->present & KVR_HAS(KVR_HINT_PREFILL_RESULT))
		count_violation(l, LOAD_V_RESULT);
}

void load_pair_dispatched(struct load *l, uint32_t task, const struct kvr_hints *h)
{
	if (task & LOAD_PREFILL)
		on_prefill(l, load_slot_no(task), h);
	else
		on_decode(l, load_slot_no(task), h);
}

/* ---- the transfer ---- */

/* Whether the prefill leg that ended is the one named in the decode leg. */
static bool is_there(const struct load *l, uint32_t slot)
{
	const struct load_pair *p = &l->pairs[slot];

	return p->finished && p->room[PREFILL] == p->room[DECODE] &&
	       l->engines[l->ranks[p->prefill.rank].engine].worker == p->hinted;
}

bool load_pair_waits(struct load *l, uint32_t slot)
{
	if (l->pairs == NULL || l->pairs[slot].room[DECODE] == 0)
		return false;
	if (!is_there(l, slot))
		return true;
	kvr_stats_inc(l->row, LOAD_TRANSFERS);
	return false;
}

void load_pair_finished(struct load *l, uint32_t slot)
{
	l->pairs[slot].finished = 1;
}

bool load_pair_timed_out(struct load *l, uint32_t slot)
{
	const struct load_leg *leg = &l->slots[slot].leg;
	const struct load_pair *p = &l->pairs[slot];

	if (leg->estate != LOAD_E_TRANSFER || l->now - leg->progress_at < TRANSFER_LIMIT_S * l->hz)
		return false;
	kvr_stats_inc(l->row, LOAD_TRANSFER_TIMEOUTS);
	if (p->finished && p->room[PREFILL] != p->room[DECODE])
		count_violation(l, LOAD_V_ROOM);
	return true;
}

/* ---- reports to the client ---- */

void load_pair_accepted(struct load *l, uint32_t slot, const struct kvr_wire_accepted *a)
{
	struct load_pair *p = &l->pairs[slot];

	if (a->state != KVR_STATE_DISPATCHED && a->state != KVR_STATE_RUNNING)
		return;
	p->reported = 1;
	p->path = a->path;
	p->decode = a->worker;
	p->accepted = a->prefill_worker;
	p->accepted_rank = a->prefill_dp_rank;
	p->accepted_overlap = a->prefill_overlap_blocks;
}

static bool report_true(const struct load *l, uint32_t slot)
{
	const struct load_pair *p = &l->pairs[slot];
	const struct load_rank *r = &l->ranks[p->prefill.rank];
	const struct load_engine *e = &l->engines[r->engine];

	if (p->decode != l->engines[l->ranks[l->slots[slot].leg.rank].engine].worker)
		return false;
	if (p->path == KVR_WAY_BYPASSED)
		return p->runs[PREFILL] == 0 && p->accepted == 0 &&
		       p->accepted_rank == KVR_NONE32 && p->accepted_overlap == 0;
	return p->runs[PREFILL] == 1 && p->accepted == e->worker &&
	       p->accepted_rank == r->dp_rank && p->accepted_overlap == p->prefill.predicted &&
	       p->path == (e->bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC);
}

void load_pair_over(struct load *l, uint32_t slot, bool completed)
{
	static const enum load_counter by_path[] = {
		[KVR_WAY_AGGREGATED] = LOAD_PATH_AGGREGATED,
		[KVR_WAY_BOOTSTRAP] = LOAD_PATH_BOOTSTRAP,
		[KVR_WAY_SYNC] = LOAD_PATH_SYNC,
		[KVR_WAY_BYPASSED] = LOAD_PATH_BYPASSED,
	};
	const struct load_pair *p = &l->pairs[slot];

	if (p->reported && p->path < RTE_DIM(by_path))
		kvr_stats_inc(l->row, by_path[p->path]);
	if (p->runs[DECODE] > 1 || p->runs[PREFILL] > 1)
		kvr_stats_inc(l->row, LOAD_REROUTED); /* the report may be of an earlier attempt */
	else if (completed && p->reported && l->last_kill < l->slots[slot].route_tx &&
		 !report_true(l, slot))
		count_violation(l, LOAD_V_ACCEPTED);
}
