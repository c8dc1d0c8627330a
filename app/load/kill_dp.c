/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

/*
 * Crashes of engines: requests, blocks and sessions are lost, and the worker returns later with a
 * new epoch. With `goodbye` the engine notifies the router, with `silent` the router must detect
 * the crash.
 */

/* Drop the engine's requests, and mark them for the report. */
static void drop_legs(struct load *l, uint32_t engine, uint32_t prefill_bit)
{
	for (uint32_t i = 0; i < l->n_slots; i++) {
		struct load_leg *leg = load_leg(l, i | prefill_bit);

		if (l->slots[i].id == 0 || l->ranks[leg->rank].engine != engine)
			continue;
		leg->flags &= (uint8_t)~LOAD_L_TAKEN;
		if (leg->estate == LOAD_E_IDLE)
			continue;
		load_engine_drop(l, i | prefill_bit);
		if (l->slots[i].cstate != LOAD_C_ENDED)
			kvr_stats_add(l->row, LOAD_KILLED_REQUESTS,
				      !(l->slots[i].flags & LOAD_S_KILLED));
		l->slots[i].flags |= LOAD_S_KILLED;
		load_slot_release(l, i);
	}
}

static void kill_engine(struct load *l, uint32_t engine)
{
	struct load_engine *e = &l->engines[engine];

	kvr_stats_inc(l->row, LOAD_KILLS);
	l->last_kill = l->now;
	e->state = l->opt->kill_mode == LOAD_KILL_GOODBYE ? LOAD_W_DYING : LOAD_W_DEAD;
	e->unwelcomed = true;
	e->next_tx = l->now;
	e->revive_at = l->now + (uint64_t)(l->opt->kill_down * (double)l->hz);
	drop_legs(l, engine, e->role == KVR_ROLE_PREFILL ? LOAD_PREFILL : 0);
	if (l->sessions != NULL)
		load_session_killed(l, engine);
	for (uint32_t i = 0; i < l->opt->ranks; i++) {
		const uint32_t rank = engine * l->opt->ranks + i;

		if (l->ranks[rank].model.cache != NULL)
			engine_cache_clear(l->ranks[rank].model.cache);
		load_kv_restart(l, rank);
	}
}

void load_kill_duty(struct load *l)
{
	uint32_t first;

	if (l->opt->kill_every == 0 || l->now < l->next_kill)
		return;
	first = kvr_rand_below(&l->rand, l->n_engines);
	l->next_kill = l->now + (uint64_t)(l->opt->kill_every * (double)l->hz);
	for (uint32_t i = 0; i < l->n_engines; i++) {
		const uint32_t engine = (first + i) % l->n_engines;

		if (l->engines[engine].state != LOAD_W_SERVING)
			continue;
		kill_engine(l, engine);
		return;
	}
}

bool load_kill_drops_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const struct load_engine *e = &l->engines[engine];
	struct load_slot *s;
	uint32_t slot;

	if (!e->unwelcomed || e->state == LOAD_W_LEAVING)
		return false;
	if (e->state != LOAD_W_DEAD && (h->kind == KVR_WELCOME || h->kind == KVR_GOODBYE_ACK ||
					(h->kind == KVR_REJECTED && h->source == e->worker)))
		return false;
	slot = h->kind == KVR_DISPATCH ? load_slot_of(l, h->id) : LOAD_NO_SLOT;
	s = slot != LOAD_NO_SLOT ? &l->slots[slot] : NULL;
	if (s == NULL || s->cstate == LOAD_C_ENDED || (s->flags & LOAD_S_KILLED))
		return true;
	s->flags |= LOAD_S_KILLED; /* sent after the crash */
	kvr_stats_inc(l->row, LOAD_KILLED_REQUESTS);
	return true;
}
