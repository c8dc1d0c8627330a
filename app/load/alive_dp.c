/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ALIVE of the simulated engines. A round over all slots begins every 15 s and takes up to 15 s:
 * handles are collected per engine, full messages are sent at once, the rest at the end of the
 * round.
 */
#include "load.h"

#include "frame.h"
#include "kvr_put.h"

#define ROUND_US 15000000u
#define STEPS	 (ROUND_US / LOAD_DUTY_US)

static void flush_alive(struct load *l, uint32_t engine)
{
	const struct kvr_wire_ids ids = load_worker_ids(l, engine, 0);
	struct load_engine *e = &l->engines[engine];
	const uint32_t cap = (uint32_t)(sizeof(struct kvr_wire_hdr) +
					sizeof(struct kvr_wire_alive) + e->alive.n * 8);
	void *f = NULL;

	if (e->alive.n > 0 && e->state == LOAD_W_SERVING)
		f = load_link_frame(l->link, load_port_of_engine(l, engine), (uint16_t)cap, NULL);
	if (f != NULL)
		kvr_put_alive(f, cap, &ids, e->alive.handle, e->alive.n);
	e->alive.n = 0;
}

static void report_leg(struct load *l, const struct load_leg *leg)
{
	const uint32_t engine = l->ranks[leg->rank].engine;
	struct load_engine *e = &l->engines[engine];

	if (leg->estate == LOAD_E_IDLE || leg->estate == LOAD_E_SENT)
		return;
	e->alive.handle[e->alive.n++] = leg->handle;
	if (e->alive.n == KVR_WIRE_ALIVE_MOST)
		flush_alive(l, engine);
}

void load_alive_duty(struct load *l)
{
	const uint32_t all = l->n_slots + l->n_engines;

	if (l->round.at == all) {
		if (l->now < l->round.next)
			return;
		l->round.at = 0;
	}
	if (l->round.at == 0)
		l->round.next = l->now + ROUND_US * l->us;
	for (uint32_t i = 0; i <= all / STEPS && l->round.at < all; i++, l->round.at++) {
		if (l->round.at >= l->n_slots) {
			flush_alive(l, l->round.at - l->n_slots);
			continue;
		}
		report_leg(l, &l->slots[l->round.at].leg);
		if (l->pairs != NULL)
			report_leg(l, &l->pairs[l->round.at].prefill);
	}
}
