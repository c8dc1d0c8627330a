/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking functions: they run the event loop until their condition holds. */
#include "client_pvt.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#define WAIT_FOREVER UINT64_MAX

/* Wait for an event or until @p until_us, and handle it. */
static void wait_step(struct kvr_client *client, uint64_t until_us)
{
	struct pollfd p = {.fd = kvr_client_fd(client), .events = POLLIN};
	int ms = kvr_client_timeout_ms(client);

	if (until_us != WAIT_FOREVER) {
		const uint64_t now = kvr_link_tick(&client->link);
		const uint64_t left = until_us > now ? (until_us - now + 999) / 1000 : 0;

		if (ms < 0 || left < (uint64_t)ms)
			ms = (int)left;
	}
	if (ms != 0 && p.fd >= 0)
		poll(&p, 1, ms); /* after an interruption the next call waits again */
	kvr_client_process(client);
}

/* Free the request whose end was returned by the last call. */
static void free_read_end(struct kvr_client *client)
{
	static const struct kvr_client_ops no_ops;
	struct client_req *req = kvr_client__find(client, client->ended_id);

	client->ended_id = 0;
	if (req == NULL)
		return;
	if (req->state == CLIENT_ENDED)
		kvr_client__free(client, req);
	else
		req->ops = &no_ops; /* ended by its time limit: freed after CANCELLED */
}

int kvr_client_connect_wait(struct kvr_client *client)
{
	free_read_end(client);
	kvr_client_connect(client);
	while (client->connecting)
		wait_step(client, WAIT_FOREVER);
	return client->connect_status;
}

/* Return true if the engine answered completely; a missing choice was then lost on the way. */
static bool is_answered(const struct client_req *req)
{
	return req->end.reason == KVR_CLIENT_FINISHED || req->end.reason == KVR_CLIENT_FAILED;
}

/* Wait for ACCEPTED or the end. After the first item wait CLIENT_LATE_US longer, because ACCEPTED
 * may be lost. */
static void wait_accepted(struct kvr_client *client, const struct client_req *req)
{
	uint64_t until = WAIT_FOREVER;

	while (!req->accepted && !req->end_reported && client->link.now_us < until) {
		wait_step(client, until);
		if (until == WAIT_FOREVER && req->ready != NULL)
			until = client->link.now_us + CLIENT_LATE_US;
	}
}

int kvr_client_route_wait(struct kvr_client *client, const struct kvr_client_request *request,
			  struct kvr_client_choice *choice, uint64_t *id)
{
	struct client_req *req;
	int rc;

	free_read_end(client);
	*id = 0;
	if (request->ops != NULL)
		return -EINVAL;
	rc = kvr_client_submit(client, request, id);
	if (rc < 0)
		return rc;
	req = kvr_client__find(client, *id);
	wait_accepted(client, req);
	if (choice != NULL)
		*choice = req->choice;
	return !req->end_reported || req->accepted || is_answered(req) ? 0 : -ECANCELED;
}

static bool take_item(struct client_req *req, struct kvr_client_item *out)
{
	struct client_item *it = req->ready;

	if (req->reading != NULL) {
		req->ready_bytes -= req->reading->item.len + (uint32_t)sizeof(*it);
		free(req->reading);
		req->reading = NULL;
	}
	if (it == NULL)
		return false;
	req->ready = it->next;
	req->reading = it;
	*out = it->item;
	return true;
}

int kvr_client_next_item(struct kvr_client *client, uint64_t id, struct kvr_client_item *item,
			 struct kvr_client_end *end, int timeout_ms)
{
	const uint64_t until =
		timeout_ms < 0 ? WAIT_FOREVER : kvr_link_tick(&client->link) + timeout_ms * 1000ull;
	struct client_req *req;
	bool late = false;

	free_read_end(client);
	req = kvr_client__find(client, id);
	if (req == NULL || req->ops != NULL)
		return -ENOENT;
	for (;;) {
		if (take_item(req, item))
			return 1;
		if (req->end_reported) {
			*end = req->end;
			client->ended_id = id;
			return 0;
		}
		if (late)
			return -ETIMEDOUT;
		late = until != WAIT_FOREVER && kvr_link_tick(&client->link) >= until;
		wait_step(client, until); /* does not wait if it is too late: a last check */
	}
}
