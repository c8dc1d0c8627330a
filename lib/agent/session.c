/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions: the application opens and closes each once, and copies of a question get the first
 * answer.
 */
#include "agent_pvt.h"

#include "kvr_rand.h"
#include <stdlib.h>

/* Recent answers, in buckets: a copy of a question gets the original answer, even if a late copy of
 * OPEN follows a CLOSE. */
static struct agent_answer *bucket_of(struct kvr_agent *agent, const struct kvr_wire_hdr *h)
{
	return &agent->answer[kvr_mix64(h->id) % AGENT_ANSWER_BUCKETS * AGENT_ANSWER_WAYS];
}

static struct agent_answer *find_answer(struct agent_answer *bucket, const struct kvr_wire_hdr *h)
{
	for (uint32_t i = 0; i < AGENT_ANSWER_WAYS; i++)
		if (bucket[i].kind == h->kind && bucket[i].id == h->id &&
		    bucket[i].epoch == h->epoch)
			return &bucket[i];
	return NULL;
}

static struct agent_answer *remember_answer(struct kvr_agent *agent, struct agent_answer *bucket,
					    const struct kvr_wire_hdr *h)
{
	struct agent_answer *oldest = bucket;

	for (uint32_t i = 1; i < AGENT_ANSWER_WAYS; i++)
		if (bucket[i].given < oldest->given)
			oldest = &bucket[i];
	*oldest = (struct agent_answer){.id = h->id,
					.given = ++agent->answers_given,
					.epoch = h->epoch,
					.kind = h->kind,
					.calling = true};
	return oldest;
}

/* Most agents get no questions: the table is allocated for the first one. */
static bool has_room(struct kvr_agent *agent)
{
	if (agent->answer == NULL)
		agent->answer =
			calloc(AGENT_ANSWER_BUCKETS * AGENT_ANSWER_WAYS, sizeof(*agent->answer));
	return agent->answer != NULL;
}

static int call_session_callback(struct kvr_agent *agent, uint8_t kind,
				 const struct kvr_wire_session *w)
{
	const struct kvr_agent_ops *ops = agent->conf.ops;
	char id[KVR_HINT_MAX_SESSION + 1];
	const struct kvr_agent_session s = {.id = id, .timeout_s = w->timeout_s};

	memcpy(id, w + 1, w->id_len); /* at most 256, checked */
	id[w->id_len] = '\0';
	if (kind == KVR_SESSION_OPEN)
		return ops->on_session_open == NULL
			       ? 0
			       : ops->on_session_open(agent, &s, agent->conf.user);
	return ops->on_session_close == NULL ? 0
					     : ops->on_session_close(agent, &s, agent->conf.user);
}

static uint16_t apply_session(struct kvr_agent *agent, uint8_t kind,
			      const struct kvr_wire_session *w)
{
	const int rc = call_session_callback(agent, kind, w);

	if (rc != 0)
		agent->stats.sessions_refused++;
	else if (kind == KVR_SESSION_OPEN)
		agent->stats.sessions_opened++;
	else
		agent->stats.sessions_closed++;
	return rc >= 0 && rc <= UINT16_MAX ? (uint16_t)rc : UINT16_MAX;
}

void kvr_agent__on_session(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body)
{
	const struct kvr_wire_hdr about = *h; /* a callback may receive frames and overwrite it */
	const uint8_t answer =
		about.kind == KVR_SESSION_OPEN ? KVR_SESSION_OPENED : KVR_SESSION_CLOSED;
	struct kvr_wire_session_status w = {0};
	struct agent_answer *bucket, *known;

	if (about.epoch != agent->router_epoch) {
		agent->stats
			.frames_foreign++; /* from a previous router, whose sessions ended with it
					    */
		return;
	}
	if (!has_room(agent))
		return; /* the router retransmits the question */
	bucket = bucket_of(agent, &about);
	known = find_answer(bucket, &about);
	if (known != NULL) {
		agent->stats.session_copies++;
		if (known->calling)
			return;
		w.code = known->code;
	} else {
		remember_answer(agent, bucket, &about);
		w.code = apply_session(agent, about.kind, (const void *)body);
		known = find_answer(bucket, &about);
		if (known != NULL) {
			known->code = w.code;
			known->calling = false;
		}
	}
	kvr_link_send(&agent->link, &agent->router, answer,
		      kvr_link_ids(&agent->link, about.source, about.id, about.handle), &w,
		      sizeof(w));
}
