/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines that fail all requests for an interval: routers must send requests elsewhere. */
#include <stdbool.h>
#include <stdint.h>

#include "failing.h"
#include "sim.h"

#define FAILS_KNOWN_NS (1500 * SIM_MS) /* from then on routers know of the failures */
#define FAILS_OVER_NS  (5000 * SIM_MS) /* after the interval: of the recovery */
#define FAILS_MOST     10u	       /* requests per rank: 6 open the breaker, and probes */

/* Whether the routers have a working engine of the same role. */
static bool has_peer(const struct sim *s, const struct engine *e)
{
	for (uint32_t i = 0; i < s->plan.engines; i++) {
		const struct engine *o = &s->engine[i];

		if (o != e && o->prefill == e->prefill && o->up &&
		    (o->fails_until_ns == 0 || s->now_ns > o->fails_until_ns + FAILS_OVER_NS))
			return true;
	}
	return false;
}

void failing_dispatch(struct engine *e, struct execution *r)
{
	struct sim *s = e->sim;

	if (s->now_ns >= e->fails_until_ns)
		return;
	r->fails_at = 0;
	r->counts = true;
	if (s->now_ns < e->fails_since_ns + FAILS_KNOWN_NS || !has_peer(s, e) ||
	    !client_plan_is_harmless(s))
		return;
	if (++e->fails_got > FAILS_MOST * s->plan.ranks * s->plan.routers)
		sim_fail(s, "engine %td fails its requests and still gets many", e - s->engine);
}

void failing_begin(struct engine *e, uint64_t until_ns)
{
	if (e->sim->now_ns >= e->fails_until_ns) {
		e->fails_since_ns = e->sim->now_ns;
		e->fails_got = 0;
	}
	e->fails_until_ns = until_ns;
}
