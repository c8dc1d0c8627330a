/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submission: checks of the request, hints of the library, and the message, which is kept until it
 * cannot be needed again.
 */
#include "client_pvt.h"

#include "kvr_hints.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SUBMIT_FLAGS                                                                               \
	(KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT | KVR_CLIENT_EAGLE | KVR_CLIENT_BOOK |               \
	 KVR_CLIENT_LOADS | KVR_CLIENT_INLINE | KVR_CLIENT_HEALTH | KVR_CLIENT_TRACK |             \
	 KVR_CLIENT_QUIET)

/* Return true if the body is sent to the agent directly. */
static bool is_away(const struct kvr_client *client, const struct kvr_client_request *q)
{
	return client->conf.away_bytes != 0 && q->body_len > client->conf.away_bytes &&
	       (q->flags & (KVR_CLIENT_QUERY | KVR_CLIENT_LOADS | KVR_CLIENT_INLINE)) == 0;
}

/* Return true for a health probe with content that would leave traces in the router. */
static bool is_bad_probe(const struct kvr_client_request *q)
{
	return (q->flags & KVR_CLIENT_HEALTH) != 0 &&
	       ((q->flags & (KVR_CLIENT_QUERY | KVR_CLIENT_BOOK | KVR_CLIENT_LOADS)) != 0 ||
		q->n_hashes != 0 || q->n_tokens != 0);
}

static int check_request(const struct kvr_client *client, const struct kvr_client_request *q)
{
	const uint32_t isl = q->isl != 0 ? q->isl : q->n_tokens;

	if (client->closing || isl == 0 || (q->n_tokens > 0 && q->tokens == NULL) ||
	    (q->n_hashes > 0 && q->hashes == NULL) || (q->body_len > 0 && q->body == NULL) ||
	    (q->flags & ~SUBMIT_FLAGS) != 0 ||
	    (q->n_hashes == 0 && q->n_tokens != 0 && isl != q->n_tokens) || q->n_hashes > isl ||
	    ((q->flags & KVR_CLIENT_QUERY) && (q->flags & KVR_CLIENT_DIRECT)) ||
	    ((q->flags & KVR_CLIENT_BOOK) != 0 &&
	     ((q->flags & (KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT | KVR_CLIENT_LOADS)) != 0 ||
	      q->body_len > 0)) ||
	    ((q->flags & KVR_CLIENT_LOADS) != 0 && q->ops == NULL) || is_bad_probe(q) ||
	    q->n_failed_at > KVR_CLIENT_FAILED_AT)
		return -EINVAL;
	if (q->n_tokens > client->max_tokens || isl > client->max_tokens ||
	    q->n_hashes > client->max_hashes ||
	    q->body_len > (is_away(client, q) ? KVR_WIRE_MAX_AWAY : client->max_body))
		return -EMSGSIZE;
	return 0;
}

/* Check hints as the router will, so that the caller gets the error at once. */
static int take_hints(const struct kvr_client_hints *hints, struct kvr_request_src *src)
{
	struct kvr_hint_lists lists;
	struct kvr_hints parsed;

	if (hints == NULL)
		return 0;
	if (kvr_client_hints_error(hints) != 0)
		return -EINVAL;
	src->hints = kvr_client__hints_bytes(hints, &src->hints_len);
	return kvr_hints_parse(src->hints, src->hints_len, KVR_HINTS_ROUTE, &parsed, &lists) == 0
		       ? 0
		       : -EINVAL;
}

static void fill_request(const struct kvr_client *client, const struct kvr_client_request *q,
			 uint16_t pool, struct kvr_request_src *src)
{
	*src = (struct kvr_request_src){.hashes = q->hashes,
					.tokens = q->tokens,
					.body = q->body,
					.n_hashes = q->n_hashes,
					.n_tokens = q->n_tokens,
					.body_len = q->body_len};
	src->fixed = (struct kvr_wire_request){
		.pool = pool,
		.flags = ((q->flags & KVR_CLIENT_QUERY) ? KVR_REQ_F_QUERY : 0) |
			 ((q->flags & KVR_CLIENT_DIRECT) ? KVR_REQ_F_DIRECT : 0) |
			 ((q->flags & KVR_CLIENT_EAGLE) ? KVR_REQ_F_EAGLE : 0) |
			 ((q->flags & KVR_CLIENT_BOOK) ? KVR_REQ_F_BOOK : 0) |
			 ((q->flags & KVR_CLIENT_HEALTH) ? KVR_REQ_F_HEALTH : 0) |
			 ((q->flags & KVR_CLIENT_TRACK) ? KVR_REQ_F_TRACK : 0),
		.isl = q->isl != 0 ? q->isl : q->n_tokens,
		.max_tokens = q->max_tokens != 0 ? q->max_tokens : KVR_NONE32,
		.expected_output_tokens =
			q->expected_output_tokens != 0 ? q->expected_output_tokens : KVR_NONE32,
		.deadline_ms = q->queue_ms,
		.client_frame = (uint16_t)client->conf.frame_bytes};
}

static void put_failed_at(const struct kvr_client_request *q, struct kvr_hint_buf *b)
{
	uint64_t worker[KVR_CLIENT_FAILED_AT];
	uint32_t dp_rank[KVR_CLIENT_FAILED_AT];

	for (uint32_t i = 0; i < q->n_failed_at; i++) {
		worker[i] = q->failed_at[i].worker;
		dp_rank[i] = q->failed_at[i].dp_rank;
	}
	if (q->n_failed_at > 0)
		kvr_hint_put_ranks(b, KVR_HINT_FAILED_AT, worker, dp_rank, q->n_failed_at);
}

/* Append hints of the library to those of the user: ranks where the request failed, the token of
 * the body, and PAD, because a ROUTE that asks for addresses must not be shorter than the answer.
 * The caller frees @p room. */
static int add_own_hints(const struct kvr_client_request *q, bool away,
			 const uint8_t token[KVR_WIRE_TOKEN], struct kvr_request_src *src,
			 uint8_t **room)
{
	static const uint8_t zeros[KVR_WIRE_ASKING_LEAST];
	const bool asks = away || (q->flags & KVR_CLIENT_BOOK) != 0;
	struct kvr_hint_buf b = {.cap = src->hints_len + 3 * KVR_WIRE_ASKING_LEAST};
	struct kvr_slice part[KVR_REQUEST_SLICES];
	uint32_t len;

	*room = b.p = malloc(b.cap);
	if (b.p == NULL)
		return -ENOMEM;
	if (src->hints_len > 0)
		memcpy(b.p, src->hints, src->hints_len);
	b.len = src->hints_len;
	put_failed_at(q, &b);
	if (away) {
		kvr_hint_put_body(&b, q->body_len, token);
		src->fixed.flags |= KVR_REQ_F_AWAY;
		src->body = NULL;
		src->body_len = 0;
	}
	src->hints = b.p;
	src->hints_len = b.len;
	len = kvr_request_build(src, part);
	if (len == 0)
		return -EMSGSIZE;
	if (asks && len < KVR_WIRE_ASKING_LEAST)
		kvr_hint_put(&b, KVR_HINT_PAD, zeros, KVR_WIRE_ASKING_LEAST - len - 4, NULL, 0);
	src->hints_len = b.len;
	return b.err;
}

/* Build the message in one piece; it is kept until it cannot be needed again. */
static int build_message(const struct kvr_client *client, struct kvr_request_src *src,
			 uint8_t **msg, uint32_t *len)
{
	struct kvr_slice part[KVR_REQUEST_SLICES];

	*len = kvr_request_build(src, part);
	if (*len == 0 || *len > kvr_client__max_message(client))
		return -EMSGSIZE;
	*msg = malloc(*len);
	if (*msg == NULL)
		return -ENOMEM;
	return kvr_slices_copy(part, KVR_REQUEST_SLICES, 0, *len, *msg);
}

/* Return true if ACCEPTED may be omitted. Requests with other flags need its content. */
static bool is_quiet(const struct kvr_client *client, const struct kvr_client_request *q, bool away,
		     uint32_t len)
{
	const uint32_t needed =
		KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT | KVR_CLIENT_BOOK | KVR_CLIENT_LOADS;

	return (q->flags & KVR_CLIENT_QUIET) != 0 && (q->flags & needed) == 0 && !away &&
	       len <= client->frame_bytes - KVR_WIRE_MIN_FRAME;
}

static struct client_req *take_slot(struct kvr_client *client)
{
	const uint32_t slot = client->free_head;
	struct client_req *req = &client->req[slot - 1];
	const uint64_t id = (req->id + (UINT64_C(1) << 32)) >> 32 << 32 | slot;

	client->free_head = req->next_free;
	if (client->free_head == 0)
		client->free_tail = 0;
	*req = (struct client_req){.id = id, .state = CLIENT_FRESH};
	req->repeat.kind = CLIENT_T_REPEAT;
	req->ack.kind = CLIENT_T_ACK;
	req->limit.kind = CLIENT_T_LIMIT;
	return req;
}

static void start_request(struct kvr_client *client, struct client_req *req,
			  const struct kvr_client_request *q)
{
	const uint32_t limit_ms = q->request_ms != 0 ? q->request_ms : client->conf.request_ms;

	kvr_link_tick(&client->link);
	req->query = (q->flags & KVR_CLIENT_QUERY) != 0;
	req->book = (q->flags & KVR_CLIENT_BOOK) != 0;
	req->kind = (q->flags & KVR_CLIENT_LOADS) != 0 ? KVR_POTENTIAL_LOADS : KVR_ROUTE;
	req->direct = (q->flags & KVR_CLIENT_DIRECT) != 0;
	req->ops = q->ops;
	req->user = q->user;
	req->received_us = client->link.now_us;
	req->backoff_us = CLIENT_ROUTE_US;
	req->pace = CLIENT_PACE_FRAMES;
	req->ids = kvr_link_ids(&client->link, client->source, req->id, 0);
	req->item_from = client->router;
	client->live++;
	client->stats.submitted++;
	/* Sent by the timer at the next process call, so that several submits share a burst. */
	kvr_timer_set(&client->link.timers, &req->repeat, client->link.now_us);
	if (limit_ms != 0)
		kvr_timer_set(&client->link.timers, &req->limit,
			      client->link.now_us + limit_ms * 1000ull);
}

int kvr_client_submit(struct kvr_client *client, const struct kvr_client_request *q, uint64_t *id)
{
	uint8_t token[KVR_WIRE_TOKEN], *room = NULL;
	const bool away = is_away(client, q);
	struct kvr_request_src src;
	struct client_req *req;
	uint8_t *msg = NULL;
	uint32_t len = 0;
	int pool, rc;

	*id = 0;
	pool = q->pool_name != NULL ? kvr_client_pool_lookup(client, q->pool_name) : q->pool;
	rc = pool < 0 ? pool : check_request(client, q);
	if (rc < 0)
		return rc;
	fill_request(client, q, (uint16_t)pool, &src);
	rc = take_hints(q->hints, &src);
	if (rc == 0 && client->free_head == 0)
		rc = -EBUSY;
	if (rc == 0 && away && getrandom(token, sizeof(token), 0) != sizeof(token))
		rc = -EIO; /* a token must not be predictable */
	if (rc == 0 && (away || (q->flags & KVR_CLIENT_BOOK) != 0 || q->n_failed_at > 0))
		rc = add_own_hints(q, away, token, &src, &room);
	if (rc == 0)
		rc = build_message(client, &src, &msg, &len);
	free(room);
	if (rc < 0)
		return rc;
	req = take_slot(client);
	if (away && kvr_client__away_take(req, q->body, q->body_len, token) < 0) {
		free(msg);
		kvr_client__free(client, req);
		return -ENOMEM;
	}
	req->msg = msg;
	req->msg_len = len;
	req->quiet = is_quiet(client, q, away, len);
	if (req->quiet)
		((struct kvr_wire_request *)msg)->flags |= KVR_REQ_F_QUIET;
	start_request(client, req, q);
	*id = req->id;
	return 0;
}

int kvr_client_cancel(struct kvr_client *client, uint64_t id)
{
	struct client_req *req = kvr_client__find(client, id);

	if (req == NULL || req->end_reported || req->state == CLIENT_ENDED)
		return -ENOENT;
	if (req->state == CLIENT_CANCELLING)
		return 0;
	kvr_link_tick(&client->link);
	kvr_client__start_cancel(client, req, KVR_CLIENT_CANCELLED);
	return 0;
}
