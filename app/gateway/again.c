/* SPDX-License-Identifier: BSD-3-Clause */
#include "again.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 250 /* an agent whose engine has gone signs off sooner */
#define LEAVING	 503 /* an agent's word for it: a DISPATCH was faster than its GOODBYE */

bool gw_again_no_bodies(const struct gw_call *c, const struct kvr_client_end *e)
{
	const bool rejected = e->reason == KVR_CLIENT_REJECTED;
	const bool prefill = rejected && e->code == KVR_E_PREFILL_FAILED;
	const bool refused = (prefill || (rejected && e->code == KVR_E_DISPATCH_FAILED)) &&
			     e->detail[0] == KVR_CLIENT_NO_BODIES;
	const bool missed = (prefill && e->detail[0] == 408) ||
			    (e->reason == KVR_CLIENT_FAILED && e->status == 408);

	return !c->through && (refused || missed);
}

bool gw_again_worker_lost(const struct gw_call *c, const struct kvr_client_end *e)
{
	if (c->worker_lost || c->pinned || c->ask.probe || c->query || c->ask.path == GW_PICK ||
	    c->ask.path == GW_LOADS)
		return false;
	if (e->reason == KVR_CLIENT_FAILED)
		return e->status == 502;
	return e->reason == KVR_CLIENT_REJECTED &&
	       (e->code == KVR_E_WORKER_LOST ||
		(e->code == KVR_E_DISPATCH_FAILED && e->detail[0] == LEAVING));
}

bool gw_again(const struct gw_call *c, const struct kvr_client_end *e)
{
	if (c->head_done || c->head.len > 0 || c->tries >= GW_TRIES || c->req == NULL)
		return false;
	if (gw_again_worker_lost(c, e)) /* a wait beyond its limit would only hide why it failed */
		return c->until_ms == 0 || gw_now_ms() + AGAIN_MS < c->until_ms;
	return gw_again_no_bodies(c, e) || e->reason == KVR_CLIENT_SILENT ||
	       e->reason == KVR_CLIENT_LOST ||
	       (e->reason == KVR_CLIENT_REJECTED && e->code == KVR_E_SHUTDOWN);
}

static struct gw_error error_of(const struct kvr_client_end *e, char *text, size_t size)
{
	if (e->reason != KVR_CLIENT_REJECTED) {
		gw_error_said(e, text, size);
		return *gw_error_fault(gw_error_reason(e->reason));
	}
	kvr_client_explain(e, text, size);
	return gw_error_refused(e);
}

struct gw_error gw_again_error(const struct gw_call *c, const struct kvr_client_end *e, char *text,
			       size_t size)
{
	if (c->why_text == NULL || e->reason != KVR_CLIENT_REJECTED ||
	    e->code != KVR_E_NO_ENDPOINTS)
		return error_of(e, text, size);
	snprintf(text, size, "%s", c->why_text);
	return c->why;
}

bool gw_again_in_time(struct gw_call *c)
{
	const uint64_t now = gw_now_ms();

	if (c->tries == 0 && c->t->opt->request_ms != 0)
		c->until_ms = now + c->t->opt->request_ms;
	c->left_ms = c->until_ms > now ? (uint32_t)(c->until_ms - now) : 0;
	return c->until_ms == 0 || c->left_ms > 0;
}

void gw_again_later(struct gw_call *c, const struct kvr_client_end *e)
{
	char text[512];

	c->worker_lost = true;
	c->why = error_of(e, text, sizeof(text));
	c->why_text = strdup(text);
	c->again_ms = gw_now_ms() + AGAIN_MS;
	TAILQ_INSERT_TAIL(&c->t->later, c, later);
}

void gw_again_not(struct gw_call *c)
{
	if (c->again_ms != 0)
		TAILQ_REMOVE(&c->t->later, c, later);
	c->again_ms = 0;
}
