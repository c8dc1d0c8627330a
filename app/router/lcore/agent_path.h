/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_AGENT_PATH_H
#define ROUTER_AGENT_PATH_H

/**
 * @file
 * The path to the worker of a request. A slot stores the path its request was dispatched to, but
 * the worker may have moved since; then its path in the view applies. Slots are not rewritten,
 * because ingress lcores read them at any time: the store that publishes the view moves all
 * requests. The lookup happens only while some worker has moved or is reached through another next
 * hop. A later epoch of the worker does not apply to its old requests.
 */

#include "state/router.h"

static inline const struct kvr_path *agent_path(const struct lcore *lc, const struct kvr_relay *r)
{
	const struct kvr_view_worker *worker;

	if (likely(lc->view->moved == 0))
		return &r->agent;
	worker = kvr_view_find(lc->view, r->worker);
	return worker != NULL && worker->epoch == r->epoch ? &worker->path : &r->agent;
}

#endif
