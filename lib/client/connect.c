/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting: CONNECT is retransmitted until the router reports its pools, limits and cookie. A new
 * epoch of the router starts a refresh that the user does not see.
 */
#include "client_pvt.h"

#include "kvr_refusal.h"
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static void finish_connect(struct kvr_client *client, int status)
{
	const bool refreshing = client->refreshing;

	client->connecting = client->refreshing = false;
	client->connect_status = status;
	kvr_timer_stop(&client->link.timers, &client->connect);
	if (!refreshing && client->conf.on_connect != NULL)
		client->conf.on_connect(client, status, client->conf.user);
}

/* Send CONNECT, padded to the length of the longest answer: the router sends an unproven address no
 * longer message than it received. */
static void send_connect(struct kvr_client *client)
{
	static const uint8_t zeros[KVR_WIRE_MAX_FRAME];
	const uint32_t overhead =
		KVR_WIRE_MIN_FRAME + sizeof(struct kvr_wire_connect) + sizeof(struct kvr_wire_tlv);
	uint8_t tlvs[KVR_WIRE_MAX_FRAME], *f = kvr_link_frame(&client->link);
	struct kvr_hint_buf pad = {.p = tlvs, .cap = sizeof(tlvs)};

	kvr_hint_put(&pad, KVR_HINT_PAD, zeros,
		     RTE_MIN(client->conf.frame_bytes, KVR_WIRE_DEF_FRAME) / 8 * 8 - overhead, NULL,
		     0);
	kvr_link_queue(&client->link, &client->router,
		       kvr_put_connect(f, KVR_WIRE_MAX_FRAME, &client->connect_ids,
				       (uint16_t)client->conf.frame_bytes, &pad));
	kvr_link_repeat(&client->link, &client->connect, &client->connect_backoff_us,
			CLIENT_CONNECT_MAX_US, client->connect_until_us);
}

void kvr_client__connect_timer(struct kvr_client *client)
{
	if (!client->connecting)
		return;
	if (client->link.now_us >= client->connect_until_us)
		finish_connect(client, client->connect_code != 0 ? -EBUSY : -ETIMEDOUT);
	else
		send_connect(client);
}

static void start_connect(struct kvr_client *client, bool refreshing)
{
	kvr_link_tick(&client->link);
	client->connecting = true;
	client->refreshing = refreshing;
	client->connect_status = -EINPROGRESS;
	client->connect_code = 0;
	/* The ids of requests have a slot number in the low half; this id has none. */
	client->connect_ids = kvr_link_ids(&client->link, client->source,
					   client->connect_ids.id + (UINT64_C(1) << 32), 0);
	client->connect_backoff_us = CLIENT_CONNECT_US;
	client->connect_until_us = client->link.now_us + client->conf.connect_ms * 1000ull;
	/* Sent by the timer, so that nothing is sent or reported from inside the caller. */
	kvr_timer_set(&client->link.timers, &client->connect, client->link.now_us);
}

int kvr_client_connect(struct kvr_client *client)
{
	start_connect(client, false);
	return 0;
}

void kvr_client__saw_epoch(struct kvr_client *client, uint32_t epoch)
{
	if (client->connected && !client->connecting && epoch != client->router_epoch)
		start_connect(client, true);
}

/* Read pool entries, followed by names padded to 8 bytes. lib/wire has checked that they fit. */
static int read_pools(struct kvr_client *client, const struct kvr_wire_connected *w)
{
	const struct kvr_wire_pool *e = (const void *)(w + 1);
	const char *name = (const char *)(e + w->n_pools);
	struct kvr_client_pool *pools = calloc(w->n_pools + 1, sizeof(*pools));
	char *names = malloc((size_t)w->n_pools * (UINT8_MAX + 1) + 1), *at = names;

	if (pools == NULL || names == NULL) {
		free(pools);
		free(names);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < w->n_pools; i++) {
		const uint32_t len = RTE_MIN(e[i].name_len, UINT8_MAX);

		memcpy(at, name, len);
		at[len] = '\0';
		pools[i] =
			(struct kvr_client_pool){.name = at,
						 .number = e[i].pool,
						 .role = e[i].role,
						 .block_size = e[i].block_size,
						 .ranks = e[i].ranks,
						 .eagle = (e[i].flags & KVR_POOL_F_EAGLE) != 0,
						 .serves = (e[i].flags & KVR_POOL_F_SERVES) != 0};
		at += len + 1;
		name += RTE_ALIGN_CEIL(e[i].name_len, 8);
	}
	free(client->pools);
	free(client->pool_names);
	client->pools = pools;
	client->pool_names = names;
	client->n_pools = w->n_pools;
	return 0;
}

void kvr_client__on_connected(struct kvr_client *client, const struct kvr_wire_hdr *h,
			      const uint8_t *body, uint32_t len)
{
	const struct kvr_wire_connected *w = (const void *)body;
	const bool new_epoch = client->connected && client->router_epoch != h->epoch;

	if (!client->connecting || h->id != client->connect_ids.id)
		return; /* a late copy */
	if (read_pools(client, w) < 0)
		return; /* the timer sends CONNECT again */
	client->connected = true;
	client->connect_code = 0;
	client->router_epoch = h->epoch;
	client->cookie = w->cookie;
	client->max_tokens = w->max_tokens;
	client->max_hashes = w->max_hashes;
	client->max_body = w->max_body;
	client->max_message = w->max_message;
	client->max_frames = w->max_frames;
	client->frame_bytes = RTE_MIN(client->conf.frame_bytes, w->max_frame);
	client->frame_bytes = RTE_MAX(client->frame_bytes, KVR_WIRE_LEAST_MAX_FRAME);
	if (new_epoch)
		kvr_client__ask_all(client);
	finish_connect(client, 0);
}

void kvr_client__connect_refused(struct kvr_client *client, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const uint32_t n = RTE_MIN((uint32_t)w->text_len, CLIENT_TEXT - 1);

	if (!client->connecting)
		return;
	client->connect_code = w->code;
	client->connect_retryable = w->retryable != 0;
	memcpy(client->connect_text, w + 1, n);
	client->connect_text[n] = '\0';
	if (kvr_refusal(KVR_CONNECT, w->code, client->connect_retryable) == KVR_REFUSAL_END)
		finish_connect(client, w->code == KVR_E_NOT_ALLOWED ? -EACCES : -EPROTO);
}

struct kvr_client_refusal kvr_client_connect_refusal(const struct kvr_client *client)
{
	return (struct kvr_client_refusal){
		.code = client->connect_code,
		.retryable = client->connect_code != 0 && client->connect_retryable,
		.text = client->connect_code != 0 ? client->connect_text : ""};
}

/* Limited by the router's bytes and, with small frames, by its number of frames. */
uint32_t kvr_client__max_message(const struct kvr_client *client)
{
	const uint64_t unit = (client->frame_bytes - KVR_WIRE_MIN_FRAME) / 8 * 8;

	return (uint32_t)RTE_MIN((uint64_t)client->max_message, client->max_frames * unit);
}

int kvr_client_limits(const struct kvr_client *client, struct kvr_client_limits *out)
{
	if (!client->connected)
		return -ENOTCONN;
	*out = (struct kvr_client_limits){.frame_bytes = client->frame_bytes,
					  .max_tokens = client->max_tokens,
					  .max_hashes = client->max_hashes,
					  .max_body = client->max_body,
					  .max_message = kvr_client__max_message(client)};
	return 0;
}

const struct kvr_client_pool *kvr_client_pools(const struct kvr_client *client, uint32_t *n)
{
	*n = client->n_pools;
	return client->pools;
}

int kvr_client_pool_lookup(const struct kvr_client *client, const char *name)
{
	if (!client->connected)
		return -ENOTCONN;
	for (uint32_t i = 0; i < client->n_pools; i++)
		if (strcmp(client->pools[i].name, name) == 0)
			return client->pools[i].number;
	return -ENOENT;
}
