/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers of both sides of a slot: a message that is not answered in time is repeated, probed or
 * given up. */
#include "load.h"

static void give_up(struct load *l, uint32_t slot)
{
	load_engine_forget(l, slot);
	load_client_lost(l, slot);
}

void load_checks(struct load *l)
{
	for (uint32_t n = 0; n < LOAD_BURST && l->check_n > 0; n++) {
		const struct load_check c = l->checks[l->check_head];

		if (c.due > l->now)
			return;
		l->check_head = (l->check_head + 1) % l->n_slots;
		l->check_n--;
		l->slots[c.slot].flags &= (uint16_t)~LOAD_S_CHECKED;
		if (l->slots[c.slot].id == 0)
			continue;
		if (!load_client_check(l, c.slot))
			give_up(l, c.slot);
		load_engine_check(l, c.slot);
		if (l->slots[c.slot].id != 0)
			load_check_add(l, c.slot);
	}
}

void load_checks_end(struct load *l)
{
	for (uint32_t i = 0; i < l->n_slots; i++)
		if (l->slots[i].id != 0 && l->slots[i].cstate != LOAD_C_ENDED)
			give_up(l, i);
}
