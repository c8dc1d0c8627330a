/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of calls, charged to their client address. */
#include "body_budget.h"

enum gw_fault gw_budget_take(struct gw_call *call, uint32_t times)
{
	/* A body lies in libh2o's buffer, and once in that of the router's client. */
	const uint64_t held = (call->req != NULL ? 2 * call->req->entity.len : 0) + call->head.cap +
			      call->out.cap + call->busy.cap;
	const uint64_t most = (uint64_t)call->thread->opt->total_mb << 20;
	struct gw_sources *sources = call->thread->sources;

	gw_source_hold(sources, call->source, GW_BUDGET_CALLS, (int64_t)(held - call->held));
	call->held = held;
	if (gw_source_held(sources, NULL, GW_BUDGET_CALLS) > most) {
		GW_COUNT(call->thread, GW_NO_ROOM);
		return GW_FULL;
	}
	if (gw_source_held(sources, call->source, GW_BUDGET_CALLS) > held &&
	    !gw_source_fits(sources, call->source, GW_BUDGET_CALLS, 0, most, times)) {
		GW_COUNT(call->thread, GW_SOURCE_ROOM);
		return GW_SOURCE_SHARE;
	}
	return GW_FAULTS;
}

void gw_budget_leave(struct gw_call *call)
{
	gw_source_hold(call->thread->sources, call->source, GW_BUDGET_CALLS, -(int64_t)call->held);
	call->held = 0;
}
