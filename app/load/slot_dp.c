/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule of a slot's checks, and its release. */
#include "load.h"

void load_check_add(struct load *l, uint32_t slot)
{
	struct load_check *c = &l->checks[(l->check_head + l->check_n) % l->n_slots];

	if (l->slots[slot].flags & LOAD_S_CHECKED)
		return;
	*c = (struct load_check){l->now + l->check_period, slot};
	l->check_n++;
	l->slots[slot].flags |= LOAD_S_CHECKED;
}

void load_slot_release(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];

	if (s->cstate != LOAD_C_ENDED || s->leg.estate != LOAD_E_IDLE || (s->flags & LOAD_S_ACK) ||
	    s->id == 0 || (l->pairs != NULL && l->pairs[slot].prefill.estate != LOAD_E_IDLE))
		return;
	s->id = 0;
	s->cstate = LOAD_C_FREE;
	l->free[l->n_free++] = slot;
}
