/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of a rank's events, which live events (kv.c) and dumps (dump.c) work on. */
#include "agent_pvt.h"

#include <stdlib.h>

void kvr_agent__kv_drop(struct agent_rank *k)
{
	struct agent_event *e;

	while ((e = TAILQ_FIRST(&k->events)) != NULL) {
		TAILQ_REMOVE(&k->events, e, link);
		free(e);
	}
	k->to_send = NULL;
	k->bytes = k->in_flight = 0;
}

void kvr_agent__kv_kick(struct kvr_agent *a, struct agent_rank *k)
{
	/* By the timer: one frame takes the events of many calls. */
	if (a->registered && (k->to_send != NULL || k->overrun || k->dumping))
		kvr_timer_set(&a->link.timers, &k->timer, a->link.now_us);
}

/* Send again from @p id on, which is in the list or the next one to come. */
void kvr_agent__kv_rewind(struct agent_rank *k, uint64_t id)
{
	struct agent_event *e;

	k->in_flight = 0;
	k->to_send = NULL;
	TAILQ_FOREACH (e, &k->events, link) {
		if (e->id >= id) {
			k->to_send = e;
			return;
		}
	}
}
