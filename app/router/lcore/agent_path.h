/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_AGENT_PATH_H
#define ROUTER_AGENT_PATH_H

/**
 * @file
 * Where the worker of a request is. A slot keeps the path its request was dispatched to; a worker
 * that has moved since takes its requests along, as its path in the view is what counts. Nothing is
 * written into slots, which ingress lcores read at any time: the one store that publishes the view
 * moves them all. The look-up is made only while some worker is not where it joined, or is reached
 * by another next hop. Another life
 * of the worker has nothing to do with its requests, wherever it is.
 */

#include "state/router.h"

static inline const struct kvr_path *agent_path(const struct lcore *lc, const struct kvr_relay *r)
{
	const struct kvr_view_worker *w;

	if (likely(lc->view->moved == 0))
		return &r->agent;
	w = kvr_view_find(lc->view, r->worker);
	return w != NULL && w->epoch == r->epoch ? &w->path : &r->agent;
}

#endif
