/* SPDX-License-Identifier: BSD-3-Clause */
/* Releases of sessions without a request: retransmitted until answered, for at most 5 s. */
#include "client_pvt.h"

#include "kvr_refusal.h"
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

/* The ids of requests have a slot number in the low half; this value is no slot. */
#define RELEASE_LOW UINT32_MAX

static struct client_release *find_release(const struct kvr_client *client, uint64_t id)
{
	struct client_release *release;

	LIST_FOREACH (release, &client->releases, link)
		if (release->ids.id == id)
			return release;
	return NULL;
}

/* End a release. It leaves the list before the callback, which may start another. */
static void end_release(struct kvr_client *client, struct client_release *release, int status,
			uint16_t code)
{
	LIST_REMOVE(release, link);
	client->n_releases--;
	kvr_timer_stop(&client->link.timers, &release->timer);
	if (release->on_released != NULL)
		release->on_released(client, release->session, status, code, release->user);
	free(release);
}

static void send_release(struct kvr_client *client, struct client_release *release)
{
	const struct kvr_wire_session w = {.pool = release->pool};
	uint8_t *f = kvr_link_frame(&client->link);

	kvr_link_queue(&client->link, &client->router,
		       kvr_put_session(f, KVR_WIRE_MAX_FRAME, KVR_SESSION_RELEASE, &release->ids, w,
				       (struct kvr_str){release->session, release->len}));
	kvr_link_repeat(&client->link, &release->timer, &release->backoff_us, CLIENT_RELEASE_MAX_US,
			release->until_us);
}

void kvr_client__release_timer(struct kvr_client *client, struct client_release *release)
{
	if (client->link.now_us >= release->until_us)
		end_release(client, release, -ETIMEDOUT, 0);
	else
		send_release(client, release);
}

void kvr_client__on_released(struct kvr_client *client, const struct kvr_wire_hdr *h,
			     const uint8_t *body)
{
	const struct kvr_wire_session_status *w = (const void *)body;
	struct client_release *release = find_release(client, h->id);

	if (release == NULL)
		return; /* a late copy */
	if (w->code == 0 || w->code == KVR_E_UNKNOWN_SESSION)
		end_release(client, release, w->code == 0 ? 0 : -ENOENT, w->code);
	else
		end_release(client, release, -EACCES, w->code);
}

void kvr_client__release_refused(struct kvr_client *client, const struct kvr_wire_hdr *h,
				 const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	struct client_release *release = find_release(client, h->id);

	if (release != NULL &&
	    kvr_refusal(KVR_SESSION_RELEASE, w->code, w->retryable != 0) == KVR_REFUSAL_END)
		end_release(client, release, w->code == KVR_E_UNKNOWN_SESSION ? -ENOENT : -EACCES,
			    w->code);
}

void kvr_client__drop_releases(struct kvr_client *client)
{
	while (!LIST_EMPTY(&client->releases))
		end_release(client, LIST_FIRST(&client->releases), -ECANCELED, 0);
}

int kvr_client_release(struct kvr_client *client, const struct kvr_client_release *q)
{
	const size_t len = q->session != NULL ? strlen(q->session) : 0;
	const int pool =
		q->pool_name != NULL ? kvr_client_pool_lookup(client, q->pool_name) : q->pool;
	struct client_release *release;

	if (len > KVR_HINT_MAX_SESSION)
		return -EMSGSIZE;
	if (client->closing || !kvr_session_id_ok(q->session, (uint32_t)len))
		return -EINVAL;
	if (pool < 0)
		return pool;
	if (client->n_releases == CLIENT_RELEASES)
		return -EBUSY;
	release = calloc(1, sizeof(*release));
	if (release == NULL)
		return -ENOMEM;
	kvr_link_tick(&client->link);
	memcpy(release->session, q->session, len);
	release->len = (uint32_t)len;
	release->pool = (uint16_t)pool;
	release->on_released = q->on_released;
	release->user = q->user;
	release->ids = kvr_link_ids(&client->link, client->source,
				    ++client->last_release << 32 | RELEASE_LOW, 0);
	release->backoff_us = CLIENT_RELEASE_US;
	release->until_us = client->link.now_us + CLIENT_RELEASE_LIMIT_US;
	release->timer.kind = CLIENT_T_RELEASE;
	LIST_INSERT_HEAD(&client->releases, release, link);
	client->n_releases++;
	/* Sent by the timer, so that nothing is sent from inside the caller. */
	kvr_timer_set(&client->link.timers, &release->timer, client->link.now_us);
	return 0;
}
