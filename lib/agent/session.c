/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_pvt.h"

#include "kvr_rand.h"
#include <stdlib.h>

/* The answers given lately, in buckets: a copy must be answered like its original, also when a
 * later CLOSE has ended what a late copy of an OPEN asks for. */
static struct agent_answer *bucket_of(struct kvr_agent *a, const struct kvr_wire_hdr *h)
{
	return &a->answer[kvr_mix64(h->id) % AGENT_ANSWER_BUCKETS * AGENT_ANSWER_WAYS];
}

static struct agent_answer *find(struct agent_answer *bucket, const struct kvr_wire_hdr *h)
{
	for (uint32_t i = 0; i < AGENT_ANSWER_WAYS; i++)
		if (bucket[i].kind == h->kind && bucket[i].id == h->id &&
		    bucket[i].epoch == h->epoch)
			return &bucket[i];
	return NULL;
}

static struct agent_answer *remember(struct kvr_agent *a, struct agent_answer *bucket,
				     const struct kvr_wire_hdr *h)
{
	struct agent_answer *oldest = bucket;

	for (uint32_t i = 1; i < AGENT_ANSWER_WAYS; i++)
		if (bucket[i].given < oldest->given)
			oldest = &bucket[i];
	*oldest = (struct agent_answer){.id = h->id,
					.given = ++a->answers_given,
					.epoch = h->epoch,
					.kind = h->kind,
					.calling = true};
	return oldest;
}

/* Most agents are never asked: made for the first question. */
static bool has_room(struct kvr_agent *a)
{
	if (a->answer == NULL)
		a->answer = calloc(AGENT_ANSWER_BUCKETS * AGENT_ANSWER_WAYS, sizeof(*a->answer));
	return a->answer != NULL;
}

static int call(struct kvr_agent *a, uint8_t kind, const struct kvr_wire_session *w)
{
	const struct kvr_agent_ops *ops = a->conf.ops;
	char id[KVR_HINT_MAX_SESSION + 1];
	const struct kvr_agent_session s = {.id = id, .timeout_s = w->timeout_s};

	memcpy(id, w + 1, w->id_len); /* at most 256, checked */
	id[w->id_len] = '\0';
	if (kind == KVR_SESSION_OPEN)
		return ops->on_session_open == NULL ? 0 : ops->on_session_open(a, &s, a->conf.user);
	return ops->on_session_close == NULL ? 0 : ops->on_session_close(a, &s, a->conf.user);
}

static uint16_t act(struct kvr_agent *a, uint8_t kind, const struct kvr_wire_session *w)
{
	const int rc = call(a, kind, w);

	if (rc != 0)
		a->stats.sessions_refused++;
	else if (kind == KVR_SESSION_OPEN)
		a->stats.sessions_opened++;
	else
		a->stats.sessions_closed++;
	return rc >= 0 && rc <= UINT16_MAX ? (uint16_t)rc : UINT16_MAX;
}

void kvr_agent__on_session(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_hdr about = *h; /* a callback may receive, and overwrite it */
	const uint8_t answer =
		about.kind == KVR_SESSION_OPEN ? KVR_SESSION_OPENED : KVR_SESSION_CLOSED;
	struct kvr_wire_session_status w = {0};
	struct agent_answer *bucket, *known;

	if (about.epoch != a->router_epoch) {
		a->stats.frames_foreign++; /* of a router that is gone, and so are its sessions */
		return;
	}
	if (!has_room(a))
		return; /* it is asked again */
	bucket = bucket_of(a, &about);
	known = find(bucket, &about);
	if (known != NULL) {
		a->stats.session_copies++;
		if (known->calling)
			return;
		w.code = known->code;
	} else {
		remember(a, bucket, &about);
		w.code = act(a, about.kind, (const void *)body);
		known = find(bucket, &about);
		if (known != NULL) {
			known->code = w.code;
			known->calling = false;
		}
	}
	kvr_link_send(&a->link, &a->router, answer,
		      kvr_link_ids(&a->link, about.source, about.id, about.handle), &w, sizeof(w));
}
