/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENDS_H
#define ENDS_H

/**
 * @file
 * A front end and an engine for end-to-end tests. The client asks for answers of known length and
 * content, the engine sends them, and both check every callback.
 */

#include "agent_pvt.h"
#include "client_pvt.h"

#include "kvr_rand.h"
#include "kvr_test.h"

#define ENDS_MAX 4096

/** Order for the engine, in the body of the request. */
struct ends_ask {
	uint32_t number, items, item_bytes, pad;
	uint32_t prompt_sum;
	uint32_t pad2;
};

struct ends_request {
	uint64_t id, handle;
	struct ends_ask ask;
	uint32_t got_items, runs, answered;
	int ends;
	struct kvr_client_end end;
	bool wrong;
};

static struct {
	struct kvr_client *client;
	struct kvr_agent *agent;
	struct ends_request req[ENDS_MAX];
	uint32_t n, ended;
	uint32_t by_reason[KVR_CLIENT_SILENT + 1];
	bool slow;	      /* the engine sends one item per turn instead of all at once */
	uint8_t cache[65536]; /* blocks held by the engine */
} ends;

/* Expected byte of an answer. */
static inline uint8_t ends_byte(uint32_t number, uint32_t item, uint32_t i)
{
	return (uint8_t)kvr_mix64(((uint64_t)number << 32) + item * 65536ull + i);
}

static inline int ends_dispatch(struct kvr_agent *a, const struct kvr_agent_request *q, void *u)
{
	struct ends_ask ask;
	struct ends_request *r;
	uint32_t sum = 0;

	CU_ASSERT_EQUAL_FATAL(q->body_len, sizeof(ask));
	memcpy(&ask, q->body, sizeof(ask));
	CU_ASSERT_FATAL(ask.number < ends.n);
	for (uint32_t i = 0; i < q->n_tokens; i++)
		sum += q->tokens[i] * (i + 1);
	CU_ASSERT_EQUAL(sum, ask.prompt_sum);
	r = &ends.req[ask.number];
	r->runs++;
	r->handle = q->handle;
	r->answered = 0;
	return ask.items == 0 ? 99 : 0; /* no answer: reject */
}

static inline void ends_abort(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why,
			      uint16_t code, void *u)
{
	for (uint32_t i = 0; i < ends.n; i++)
		if (ends.req[i].handle == handle)
			ends.req[i].handle = 0;
}

static inline int ends_dump(struct kvr_agent *a, uint32_t rank, uint64_t pos,
			    struct kvr_agent_kv *kv, void *u)
{
	static uint64_t all[65536];

	*kv = (struct kvr_agent_kv){.hashes = all};
	for (uint32_t i = 0; i < 65536; i++)
		if (ends.cache[i])
			all[kv->n++] = i;
	return pos == 0 && kv->n > 0;
}

static const struct kvr_agent_ops ends_agent_ops = {
	.on_dispatch = ends_dispatch, .on_abort = ends_abort, .on_dump = ends_dump};

/** Run the engine. */
static inline void ends_engine(void)
{
	static uint8_t data[65536];

	for (uint32_t n = 0; n < ends.n; n++) {
		struct ends_request *r = &ends.req[n];

		while (r->handle != 0) {
			const struct kvr_agent_item it = {
				.data = data,
				.len = r->ask.item_bytes,
				.flags = r->answered + 1 == r->ask.items ? KVR_AGENT_LAST : 0,
				.generated_tokens = r->answered + 1};
			int rc;

			for (uint32_t i = 0; i < it.len; i++)
				data[i] = ends_byte(n, r->answered, i);
			rc = kvr_agent_respond(ends.agent, r->handle, &it);
			if (rc == -ENOBUFS)
				break;
			if (rc != 0 || ++r->answered == r->ask.items)
				r->handle = 0;
			if (ends.slow)
				break;
		}
	}
}

static inline void ends_item(struct kvr_client *c, uint64_t id, const struct kvr_client_item *it,
			     void *u)
{
	struct ends_request *r = u;

	r->wrong |= r->id != id || r->ends != 0 || it->seq != r->got_items;
	if (r->ask.item_bytes <= 1000) { /* one item of the engine is one item of the protocol */
		r->wrong |= it->len != r->ask.item_bytes;
		for (uint32_t i = 0; i < it->len; i++)
			r->wrong |= ((const uint8_t *)it->data)[i] !=
				    ends_byte(r->ask.number, it->seq, i);
	}
	r->got_items++;
}

static inline void ends_end(struct kvr_client *c, uint64_t id, const struct kvr_client_end *e,
			    void *u)
{
	struct ends_request *r = u;

	r->ends++;
	r->end = *e;
	ends.ended++;
	ends.by_reason[e->reason]++;
}

static const struct kvr_client_ops ends_client_ops = {.on_item = ends_item, .on_end = ends_end};

static inline void ends_submit(uint32_t tokens, uint32_t items, uint32_t item_bytes, uint32_t flags)
{
	static uint32_t prompt[200000];
	struct ends_request *r = &ends.req[ends.n];
	struct kvr_client_request q = {.tokens = prompt,
				       .n_tokens = tokens,
				       .flags = flags,
				       .body = &r->ask,
				       .body_len = sizeof(r->ask),
				       .ops = &ends_client_ops,
				       .user = r};

	r->ask = (struct ends_ask){.number = ends.n, .items = items, .item_bytes = item_bytes};
	for (uint32_t i = 0; i < tokens; i++) {
		prompt[i] = ends.n * 77 + i;
		r->ask.prompt_sum += prompt[i] * (i + 1);
	}
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(ends.client, &q, &r->id), 0);
	ends.n++;
}

/** Check that every finished request has its whole answer, once, and ran once. */
static inline void ends_check(void)
{
	for (uint32_t i = 0; i < ends.n; i++) {
		const struct ends_request *r = &ends.req[i];

		CU_ASSERT_EQUAL(r->ends, 1);
		CU_ASSERT_FALSE(r->wrong);
		if (r->end.reason == KVR_CLIENT_FINISHED && r->ask.item_bytes <= 1000)
			CU_ASSERT_EQUAL(r->got_items, r->ask.items);
	}
}

#endif
