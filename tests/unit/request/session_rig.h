/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SESSION_RIG_H
#define SESSION_RIG_H

/* Three workers, a, and the pair p and d, and requests that name a session. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_sessions(uint32_t max, uint64_t affinity_s)
{
	rig_start(&g, max, affinity_s);
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'd', &g.d, false);
	rig_join(&g, 'p', &g.p, true);
	return rig_new(&g);
}

static void end_sessions(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

static struct rig_call *ask_session(struct kvr_rq_pool *p, const char *id,
				    enum kvr_rq_action action)
{
	struct rig_call *c = rig_new(&g);

	rig_session(c, id, action);
	rig_arrive(&g, c, p);
	return c;
}

#endif
