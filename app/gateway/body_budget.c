/* SPDX-License-Identifier: BSD-3-Clause */
#include "body_budget.h"

enum gw_fault gw_budget_take(struct gw_call *c, uint32_t times)
{
	/* A body lies in libh2o's buffer, and once in that of the router's client. */
	const uint64_t held = (c->req != NULL ? 2 * c->req->entity.len : 0) + c->head.cap +
			      c->out.cap + c->busy.cap;
	const uint64_t most = (uint64_t)c->t->opt->total_mb << 20;
	struct gw_sources *s = c->t->sources;

	gw_source_hold(s, c->source, GW_BUDGET_CALLS, (int64_t)(held - c->held));
	c->held = held;
	if (gw_source_held(s, NULL, GW_BUDGET_CALLS) > most) {
		GW_COUNT(c->t, GW_NO_ROOM);
		return GW_FULL;
	}
	if (gw_source_held(s, c->source, GW_BUDGET_CALLS) > held &&
	    !gw_source_fits(s, c->source, GW_BUDGET_CALLS, 0, most, times)) {
		GW_COUNT(c->t, GW_SOURCE_ROOM);
		return GW_SOURCE_SHARE;
	}
	return GW_FAULTS;
}

void gw_budget_leave(struct gw_call *c)
{
	gw_source_hold(c->t->sources, c->source, GW_BUDGET_CALLS, -(int64_t)c->held);
	c->held = 0;
}
