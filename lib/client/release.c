/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_refusal.h"
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

/* The ids of requests have a slot number in the low half; this value is no slot. */
#define RELEASE_LOW UINT32_MAX

static struct client_release *find_release(const struct kvr_client *c, uint64_t id)
{
	struct client_release *r;

	LIST_FOREACH (r, &c->releases, link)
		if (r->ids.id == id)
			return r;
	return NULL;
}

/* End a release. It leaves the list before the callback, which may start another. */
static void end_release(struct kvr_client *c, struct client_release *r, int status, uint16_t code)
{
	LIST_REMOVE(r, link);
	c->n_releases--;
	kvr_timer_stop(&c->link.timers, &r->timer);
	if (r->on_released != NULL)
		r->on_released(c, r->session, status, code, r->user);
	free(r);
}

static void send_release(struct kvr_client *c, struct client_release *r)
{
	const struct kvr_wire_session w = {.pool = r->pool};
	uint8_t *f = kvr_link_frame(&c->link);

	kvr_link_queue(&c->link, &c->router,
		       kvr_put_session(f, KVR_WIRE_MAX_FRAME, KVR_SESSION_RELEASE, &r->ids, w,
				       (struct kvr_str){r->session, r->len}));
	kvr_link_repeat(&c->link, &r->timer, &r->backoff_us, CLIENT_RELEASE_MAX_US, r->until_us);
}

void kvr_client__release_timer(struct kvr_client *c, struct client_release *r)
{
	if (c->link.now_us >= r->until_us)
		end_release(c, r, -ETIMEDOUT, 0);
	else
		send_release(c, r);
}

void kvr_client__on_released(struct kvr_client *c, const struct kvr_wire_hdr *h,
			     const uint8_t *body)
{
	const struct kvr_wire_session_status *w = (const void *)body;
	struct client_release *r = find_release(c, h->id);

	if (r == NULL)
		return; /* a late copy */
	if (w->code == 0 || w->code == KVR_E_UNKNOWN_SESSION)
		end_release(c, r, w->code == 0 ? 0 : -ENOENT, w->code);
	else
		end_release(c, r, -EACCES, w->code);
}

void kvr_client__release_refused(struct kvr_client *c, const struct kvr_wire_hdr *h,
				 const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	struct client_release *r = find_release(c, h->id);

	if (r != NULL &&
	    kvr_refusal(KVR_SESSION_RELEASE, w->code, w->retryable != 0) == KVR_REFUSAL_END)
		end_release(c, r, w->code == KVR_E_UNKNOWN_SESSION ? -ENOENT : -EACCES, w->code);
}

void kvr_client__drop_releases(struct kvr_client *c)
{
	while (!LIST_EMPTY(&c->releases))
		end_release(c, LIST_FIRST(&c->releases), -ECANCELED, 0);
}

int kvr_client_release(struct kvr_client *c, const struct kvr_client_release *q)
{
	const size_t len = q->session != NULL ? strlen(q->session) : 0;
	const int pool = q->pool_name != NULL ? kvr_client_pool_lookup(c, q->pool_name) : q->pool;
	struct client_release *r;

	if (len > KVR_HINT_MAX_SESSION)
		return -EMSGSIZE;
	if (c->closing || !kvr_session_id_ok(q->session, (uint32_t)len))
		return -EINVAL;
	if (pool < 0)
		return pool;
	if (c->n_releases == CLIENT_RELEASES)
		return -EBUSY;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	kvr_link_tick(&c->link);
	memcpy(r->session, q->session, len);
	r->len = (uint32_t)len;
	r->pool = (uint16_t)pool;
	r->on_released = q->on_released;
	r->user = q->user;
	r->ids = kvr_link_ids(&c->link, c->source, ++c->last_release << 32 | RELEASE_LOW, 0);
	r->backoff_us = CLIENT_RELEASE_US;
	r->until_us = c->link.now_us + CLIENT_RELEASE_LIMIT_US;
	r->timer.kind = CLIENT_T_RELEASE;
	LIST_INSERT_HEAD(&c->releases, r, link);
	c->n_releases++;
	/* Sent by the timer, so that nothing is sent from inside the caller. */
	kvr_timer_set(&c->link.timers, &r->timer, c->link.now_us);
	return 0;
}
