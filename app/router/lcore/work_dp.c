/* SPDX-License-Identifier: BSD-3-Clause */
/* Finished and pending work of an lcore, for its idle mode. Not called in `poll`. */
#include "lcore/idle.h"
#include "lcore/mailbox.h"
#include "state/router.h"

uint64_t lcore_done(const struct lcore *lc)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < STAGES; i++)
		n += kvr_cell_get(&lc->work[i].items);
	for (uint32_t i = 0; i < lc->n_event; i++)
		n += kvr_prefix_work(lc->event_pool[i]->prefix);
	for (uint32_t i = 0; i < lc->n_sched; i++)
		n += kvr_cell_get(&lc->sched_pool[i]->count[PC_ADMITTED]) +
		     kvr_cell_get(&lc->sched_pool[i]->count[PC_ADMISSION_REJECTED]);
	return n;
}

bool lcore_given(const struct lcore *lc)
{
	const struct router *rt = lc->rt;

	if (!rte_ring_empty(lc->calls) || (lc->egress != NULL && !rte_ring_empty(lc->egress)) ||
	    (lc->egress_ctl != NULL && !rte_ring_empty(lc->egress_ctl)) ||
	    (lc->joins != NULL && !rte_ring_empty(lc->joins)))
		return true;
	for (uint32_t i = 0; i < lc->n_event; i++)
		if (!rte_ring_empty(lc->event_pool[i]->events))
			return true;
	for (uint32_t i = 0; i < lc->n_sched; i++)
		if (mailbox_count(lc->sched_pool[i]) != 0)
			return true;
	for (uint32_t i = 0; rt->conf.n_ingress > 1 && lc->egress != NULL && i < rt->n_ports; i++)
		if (kvr_port_waiting(rt->port[i]) != 0)
			return true;
	return false;
}

bool lcore_goes_on(const struct lcore *lc)
{
	if (lc->call != NULL || lc->trash != NULL || lc->reading.first != NULL)
		return true;
	for (uint32_t i = 0; i < lc->n_event; i++)
		if (event_is_open(&lc->event_pool[i]->event))
			return true;
	for (uint32_t i = 0; i < lc->n_sched; i++)
		if (!TAILQ_EMPTY(&lc->sched_pool[i]->live.sends) ||
		    lc->sched_pool[i]->live.n_lost != 0 ||
		    kvr_sched_admits(lc->sched_pool[i]->sched))
			return true;
	return false;
}

bool lcore_timers(const struct lcore *lc)
{
	if (lc->reasm != NULL && kvr_reasm_stats(lc->reasm)->frames != 0)
		return true;
	for (uint32_t i = 0; i < lc->n_sched; i++)
		if (kvr_flight_count(lc->sched_pool[i]->requests) != 0)
			return true;
	return false;
}
