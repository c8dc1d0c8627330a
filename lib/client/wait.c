/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#define WAIT_FOREVER UINT64_MAX

/* Wait for an event or until @p until_us, and handle it. */
static void wait_step(struct kvr_client *c, uint64_t until_us)
{
	struct pollfd p = {.fd = kvr_client_fd(c), .events = POLLIN};
	int ms = kvr_client_timeout_ms(c);

	if (until_us != WAIT_FOREVER) {
		const uint64_t now = kvr_link_tick(&c->link);
		const uint64_t left = until_us > now ? (until_us - now + 999) / 1000 : 0;

		if (ms < 0 || left < (uint64_t)ms)
			ms = (int)left;
	}
	if (ms != 0 && p.fd >= 0)
		poll(&p, 1, ms); /* after an interruption the next call waits again */
	kvr_client_process(c);
}

/* Free the request whose end was returned by the last call. */
static void free_read_end(struct kvr_client *c)
{
	static const struct kvr_client_ops no_ops;
	struct client_req *r = kvr_client__find(c, c->ended_id);

	c->ended_id = 0;
	if (r == NULL)
		return;
	if (r->state == CLIENT_ENDED)
		kvr_client__free(c, r);
	else
		r->ops = &no_ops; /* ended by its time limit: freed after CANCELLED */
}

int kvr_client_connect_wait(struct kvr_client *c)
{
	free_read_end(c);
	kvr_client_connect(c);
	while (c->connecting)
		wait_step(c, WAIT_FOREVER);
	return c->connect_status;
}

/* Return true if the engine answered completely; a missing choice was then lost on the way. */
static bool is_answered(const struct client_req *r)
{
	return r->end.reason == KVR_CLIENT_FINISHED || r->end.reason == KVR_CLIENT_FAILED;
}

/* Wait for ACCEPTED or the end. After the first item wait CLIENT_LATE_US longer, because ACCEPTED
 * may be lost. */
static void wait_accepted(struct kvr_client *c, const struct client_req *r)
{
	uint64_t until = WAIT_FOREVER;

	while (!r->accepted && !r->end_reported && c->link.now_us < until) {
		wait_step(c, until);
		if (until == WAIT_FOREVER && r->ready != NULL)
			until = c->link.now_us + CLIENT_LATE_US;
	}
}

int kvr_client_route_wait(struct kvr_client *c, const struct kvr_client_request *req,
			  struct kvr_client_choice *choice, uint64_t *id)
{
	struct client_req *r;
	int rc;

	free_read_end(c);
	*id = 0;
	if (req->ops != NULL)
		return -EINVAL;
	rc = kvr_client_submit(c, req, id);
	if (rc < 0)
		return rc;
	r = kvr_client__find(c, *id);
	wait_accepted(c, r);
	if (choice != NULL)
		*choice = r->choice;
	return !r->end_reported || r->accepted || is_answered(r) ? 0 : -ECANCELED;
}

static bool take_item(struct client_req *r, struct kvr_client_item *out)
{
	struct client_item *it = r->ready;

	if (r->reading != NULL) {
		r->ready_bytes -= r->reading->item.len + (uint32_t)sizeof(*it);
		free(r->reading);
		r->reading = NULL;
	}
	if (it == NULL)
		return false;
	r->ready = it->next;
	r->reading = it;
	*out = it->item;
	return true;
}

int kvr_client_next_item(struct kvr_client *c, uint64_t id, struct kvr_client_item *item,
			 struct kvr_client_end *end, int timeout_ms)
{
	const uint64_t until =
		timeout_ms < 0 ? WAIT_FOREVER : kvr_link_tick(&c->link) + timeout_ms * 1000ull;
	struct client_req *r;
	bool late = false;

	free_read_end(c);
	r = kvr_client__find(c, id);
	if (r == NULL || r->ops != NULL)
		return -ENOENT;
	for (;;) {
		if (take_item(r, item))
			return 1;
		if (r->end_reported) {
			*end = r->end;
			c->ended_id = id;
			return 0;
		}
		if (late)
			return -ETIMEDOUT;
		late = until != WAIT_FOREVER && kvr_link_tick(&c->link) >= until;
		wait_step(c, until); /* does not wait if it is too late: a last check */
	}
}
