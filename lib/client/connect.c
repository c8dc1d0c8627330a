/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_refusal.h"
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static void finish_connect(struct kvr_client *c, int status)
{
	const bool refreshing = c->refreshing;

	c->connecting = c->refreshing = false;
	c->connect_status = status;
	kvr_timer_stop(&c->link.timers, &c->connect);
	if (!refreshing && c->conf.on_connect != NULL)
		c->conf.on_connect(c, status, c->conf.user);
}

/* Send CONNECT, padded to the length of the longest answer: the router sends an unproven address no
 * longer message than it received. */
static void send_connect(struct kvr_client *c)
{
	static const uint8_t zeros[KVR_WIRE_MAX_FRAME];
	const uint32_t overhead =
		KVR_WIRE_MIN_FRAME + sizeof(struct kvr_wire_connect) + sizeof(struct kvr_wire_tlv);
	uint8_t tlvs[KVR_WIRE_MAX_FRAME], *f = kvr_link_frame(&c->link);
	struct kvr_hint_buf pad = {.p = tlvs, .cap = sizeof(tlvs)};

	kvr_hint_put(&pad, KVR_HINT_PAD, zeros,
		     RTE_MIN(c->conf.frame_bytes, KVR_WIRE_DEF_FRAME) / 8 * 8 - overhead, NULL, 0);
	kvr_link_queue(&c->link, &c->router,
		       kvr_put_connect(f, KVR_WIRE_MAX_FRAME, &c->connect_ids,
				       (uint16_t)c->conf.frame_bytes, &pad));
	kvr_link_repeat(&c->link, &c->connect, &c->connect_backoff_us, CLIENT_CONNECT_MAX_US,
			c->connect_until_us);
}

void kvr_client__connect_timer(struct kvr_client *c)
{
	if (!c->connecting)
		return;
	if (c->link.now_us >= c->connect_until_us)
		finish_connect(c, c->connect_code != 0 ? -EBUSY : -ETIMEDOUT);
	else
		send_connect(c);
}

static void start_connect(struct kvr_client *c, bool refreshing)
{
	kvr_link_tick(&c->link);
	c->connecting = true;
	c->refreshing = refreshing;
	c->connect_status = -EINPROGRESS;
	c->connect_code = 0;
	/* The ids of requests have a slot number in the low half; this id has none. */
	c->connect_ids =
		kvr_link_ids(&c->link, c->source, c->connect_ids.id + (UINT64_C(1) << 32), 0);
	c->connect_backoff_us = CLIENT_CONNECT_US;
	c->connect_until_us = c->link.now_us + c->conf.connect_ms * 1000ull;
	/* Sent by the timer, so that nothing is sent or reported from inside the caller. */
	kvr_timer_set(&c->link.timers, &c->connect, c->link.now_us);
}

int kvr_client_connect(struct kvr_client *c)
{
	start_connect(c, false);
	return 0;
}

void kvr_client__saw_epoch(struct kvr_client *c, uint32_t epoch)
{
	if (c->connected && !c->connecting && epoch != c->router_epoch)
		start_connect(c, true);
}

/* Read pool entries, followed by names padded to 8 bytes. lib/wire has checked that they fit. */
static int read_pools(struct kvr_client *c, const struct kvr_wire_connected *w)
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
	free(c->pools);
	free(c->pool_names);
	c->pools = pools;
	c->pool_names = names;
	c->n_pools = w->n_pools;
	return 0;
}

void kvr_client__on_connected(struct kvr_client *c, const struct kvr_wire_hdr *h,
			      const uint8_t *body, uint32_t len)
{
	const struct kvr_wire_connected *w = (const void *)body;
	const bool new_epoch = c->connected && c->router_epoch != h->epoch;

	if (!c->connecting || h->id != c->connect_ids.id)
		return; /* a late copy */
	if (read_pools(c, w) < 0)
		return; /* the timer sends CONNECT again */
	c->connected = true;
	c->connect_code = 0;
	c->router_epoch = h->epoch;
	c->cookie = w->cookie;
	c->max_tokens = w->max_tokens;
	c->max_hashes = w->max_hashes;
	c->max_body = w->max_body;
	c->max_message = w->max_message;
	c->max_frames = w->max_frames;
	c->frame_bytes = RTE_MIN(c->conf.frame_bytes, w->max_frame);
	c->frame_bytes = RTE_MAX(c->frame_bytes, KVR_WIRE_LEAST_MAX_FRAME);
	if (new_epoch)
		kvr_client__ask_all(c);
	finish_connect(c, 0);
}

void kvr_client__connect_refused(struct kvr_client *c, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const uint32_t n = RTE_MIN((uint32_t)w->text_len, CLIENT_TEXT - 1);

	if (!c->connecting)
		return;
	c->connect_code = w->code;
	c->connect_retryable = w->retryable != 0;
	memcpy(c->connect_text, w + 1, n);
	c->connect_text[n] = '\0';
	if (kvr_refusal(KVR_CONNECT, w->code, c->connect_retryable) == KVR_REFUSAL_END)
		finish_connect(c, w->code == KVR_E_NOT_ALLOWED ? -EACCES : -EPROTO);
}

struct kvr_client_refusal kvr_client_connect_refusal(const struct kvr_client *c)
{
	return (struct kvr_client_refusal){.code = c->connect_code,
					   .retryable =
						   c->connect_code != 0 && c->connect_retryable,
					   .text = c->connect_code != 0 ? c->connect_text : ""};
}

/* Limited by the router's bytes and, with small frames, by its number of frames. */
uint32_t kvr_client__max_message(const struct kvr_client *c)
{
	const uint64_t unit = (c->frame_bytes - KVR_WIRE_MIN_FRAME) / 8 * 8;

	return (uint32_t)RTE_MIN((uint64_t)c->max_message, c->max_frames * unit);
}

int kvr_client_limits(const struct kvr_client *c, struct kvr_client_limits *out)
{
	if (!c->connected)
		return -ENOTCONN;
	*out = (struct kvr_client_limits){.frame_bytes = c->frame_bytes,
					  .max_tokens = c->max_tokens,
					  .max_hashes = c->max_hashes,
					  .max_body = c->max_body,
					  .max_message = kvr_client__max_message(c)};
	return 0;
}

const struct kvr_client_pool *kvr_client_pools(const struct kvr_client *c, uint32_t *n)
{
	*n = c->n_pools;
	return c->pools;
}

int kvr_client_pool_lookup(const struct kvr_client *c, const char *name)
{
	if (!c->connected)
		return -ENOTCONN;
	for (uint32_t i = 0; i < c->n_pools; i++)
		if (strcmp(c->pools[i].name, name) == 0)
			return c->pools[i].number;
	return -ENOENT;
}
