/* SPDX-License-Identifier: BSD-3-Clause */
/* Splitting and combining of conversation turns, and trust in the results per model and source. */
#include "turn_cache.h"

#include <stdlib.h>
#include <string.h>

/* Number of ids before the rest of B that T must also have: the end of message k. Not more, because
 * it may be one word in a short template. */
#define SURE 2u

/* Key of @p before followed by a message. */
static struct gw_lru_key append_key(const struct gw_lru *lru, const struct gw_lru_key *before,
				    const struct kvr_json_value *message)
{
	const struct gw_lru_key both[2] = {*before, gw_lru_key(lru, message->p, message->len)};

	return gw_lru_key(lru, both, sizeof(both));
}

static bool of_user(const struct kvr_json_value *message)
{
	static const char *const names[] = {"role"};
	struct kvr_json_value role;

	kvr_json_members(message, names, 1, &role);
	return kvr_json_equals(&role, "user");
}

static bool may_cut(const struct gw_ask *a)
{
	static const char *const names[] = {"chat_template", "continue_final_message"};
	struct kvr_json_value v[2];
	bool more = false;

	kvr_json_members(&a->root, names, 2, v);
	return (v[0].type == KVR_JSON_NONE || v[0].type == KVR_JSON_NULL) &&
	       (v[1].type == KVR_JSON_NONE || v[1].type == KVR_JSON_NULL ||
		(kvr_json_bool(&v[1], &more) == 0 && !more));
}

void gw_turns_cut(const struct gw_ask *a, const struct gw_lru *lru, const char *others, size_t len,
		  struct gw_turns_cut *out)
{
	struct kvr_json_iter it = kvr_json_begin(&a->messages);
	struct kvr_json_value name, message;
	const char *end = NULL, *first = NULL;
	const bool may = may_cut(a);

	*out = (struct gw_turns_cut){.whole = gw_lru_key(lru, others, len)};
	while (kvr_json_next(&it, &name, &message)) {
		if (first == NULL)
			first = message.p;
		end = message.p + message.len;
		out->whole = append_key(lru, &out->whole, &message);
		if (!may || !of_user(&message) || !gw_lru_has(lru, &out->whole))
			continue;
		out->before = out->whole;
		out->from = message.p;
		out->one = message.len;
	}
	if (out->from == NULL)
		return;
	out->part = (size_t)(end - out->from);
	if (out->part == out->one || gw_lru_has(lru, &out->whole) ||
	    len + out->one + out->part >= (size_t)(end - first))
		out->from = NULL;
}

uint32_t *gw_turns_join(const uint32_t *t, uint32_t n_t, const uint32_t *b, uint32_t n_b,
			const uint32_t *s, uint32_t n_s, uint32_t *n)
{
	uint32_t head = 0, same = 0, end, need, *ids;

	while (head < n_b && head < n_s && b[head] == s[head])
		head++;
	while (same < n_b && same < n_t && b[n_b - 1 - same] == t[n_t - 1 - same])
		same++;
	end = n_b - head;
	need = end + SURE < n_b - 1 ? end + SURE : n_b - 1;
	if (n_b < 2 || head == 0 || same < need) /* end or more, because there is a head */
		return NULL;
	if ((uint64_t)n_t - end + n_s - head > GW_TURNS_MOST)
		return NULL;
	ids = malloc(((size_t)n_t - end + n_s - head) * sizeof(*ids) + 1);
	if (ids == NULL)
		return NULL;
	memcpy(ids, t, (size_t)(n_t - end) * sizeof(*ids));
	memcpy(ids + (n_t - end), s + head, (size_t)(n_s - head) * sizeof(*ids));
	*n = n_t - end + n_s - head;
	return ids;
}

static struct gw_turns_model *find_model(struct gw_turns *turns, const struct gw_lru_key *model)
{
	struct gw_turns_model *m = &turns->models[0];

	for (unsigned int i = 0; i < GW_TURNS_MODELS; i++) {
		struct gw_turns_model *at = &turns->models[i];

		if (at->used != 0 && memcmp(&at->model, model, sizeof(*model)) == 0) {
			m = at;
			break;
		}
		if (at->used < m->used)
			m = at;
	}
	if (m->used == 0 || memcmp(&m->model, model, sizeof(*model)) != 0)
		*m = (struct gw_turns_model){.model = *model};
	m->used = ++turns->tick;
	return m;
}

/* Return true if the turns of the source, or of all sources, are asked as a whole. */
static bool is_off(const struct gw_turns_model *m, uint64_t source, uint64_t now_ms)
{
	uint32_t wrong = 0;

	for (unsigned int i = 0; i < GW_TURNS_SOURCES; i++) {
		const struct gw_turns_off *o = &m->off[i];

		if (now_ms >= o->until)
			continue;
		if (o->source == source)
			return true;
		wrong += o->wrong;
	}
	return wrong == GW_TURNS_SOURCES;
}

enum gw_turns_way gw_turns_way(struct gw_turns *turns, const struct gw_lru_key *model,
			       uint64_t source, uint64_t now_ms)
{
	struct gw_turns_model *m = find_model(turns, model);

	if (is_off(m, source, now_ms))
		return GW_TURNS_WHOLE;
	return m->right < GW_TURNS_FIRST || ++m->asked % GW_TURNS_EVERY == 0 ? GW_TURNS_BOTH
									     : GW_TURNS_SHORT;
}

/* Replace the source's own entry, or the one that expires first. */
static void switch_off(struct gw_turns_model *m, uint64_t source, bool wrong, uint64_t until)
{
	struct gw_turns_off *o = &m->off[0];

	for (unsigned int i = 1; i < GW_TURNS_SOURCES && o->source != source; i++)
		if (m->off[i].source == source || m->off[i].until < o->until)
			o = &m->off[i];
	if (o->until < until)
		*o = (struct gw_turns_off){source, until, wrong};
}

void gw_turns_found(struct gw_turns *turns, const struct gw_lru_key *model, uint64_t source,
		    enum gw_turns_found what, uint64_t now_ms)
{
	struct gw_turns_model *m = find_model(turns, model);

	if (what == GW_TURNS_IS_RIGHT) {
		m->right++;
	} else if (what == GW_TURNS_IS_VAIN) {
		switch_off(m, source, false, now_ms + GW_TURNS_VAIN_MS);
	} else {
		m->asked = 0;
		m->right = 0;
		switch_off(m, source, true, now_ms + GW_TURNS_OFF_MS);
	}
}
