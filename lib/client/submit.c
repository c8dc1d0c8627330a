/* SPDX-License-Identifier: BSD-3-Clause */
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
static bool is_away(const struct kvr_client *c, const struct kvr_client_request *q)
{
	return c->conf.away_bytes != 0 && q->body_len > c->conf.away_bytes &&
	       (q->flags & (KVR_CLIENT_QUERY | KVR_CLIENT_LOADS | KVR_CLIENT_INLINE)) == 0;
}

/* Return true for a health probe with content that would leave traces in the router. */
static bool is_bad_probe(const struct kvr_client_request *q)
{
	return (q->flags & KVR_CLIENT_HEALTH) != 0 &&
	       ((q->flags & (KVR_CLIENT_QUERY | KVR_CLIENT_BOOK | KVR_CLIENT_LOADS)) != 0 ||
		q->n_hashes != 0 || q->n_tokens != 0);
}

static int check_request(const struct kvr_client *c, const struct kvr_client_request *q)
{
	const uint32_t isl = q->isl != 0 ? q->isl : q->n_tokens;

	if (c->closing || isl == 0 || (q->n_tokens > 0 && q->tokens == NULL) ||
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
	if (q->n_tokens > c->max_tokens || isl > c->max_tokens || q->n_hashes > c->max_hashes ||
	    q->body_len > (is_away(c, q) ? KVR_WIRE_MAX_AWAY : c->max_body))
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

static void fill_request(const struct kvr_client *c, const struct kvr_client_request *q,
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
		.client_frame = (uint16_t)c->conf.frame_bytes};
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
static int build_message(const struct kvr_client *c, struct kvr_request_src *src, uint8_t **msg,
			 uint32_t *len)
{
	struct kvr_slice part[KVR_REQUEST_SLICES];

	*len = kvr_request_build(src, part);
	if (*len == 0 || *len > kvr_client__max_message(c))
		return -EMSGSIZE;
	*msg = malloc(*len);
	if (*msg == NULL)
		return -ENOMEM;
	return kvr_slices_copy(part, KVR_REQUEST_SLICES, 0, *len, *msg);
}

/* Return true if ACCEPTED may be omitted. Requests with other flags need its content. */
static bool is_quiet(const struct kvr_client *c, const struct kvr_client_request *q, bool away,
		     uint32_t len)
{
	const uint32_t needed =
		KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT | KVR_CLIENT_BOOK | KVR_CLIENT_LOADS;

	return (q->flags & KVR_CLIENT_QUIET) != 0 && (q->flags & needed) == 0 && !away &&
	       len <= c->frame_bytes - KVR_WIRE_MIN_FRAME;
}

static struct client_req *take_slot(struct kvr_client *c)
{
	const uint32_t slot = c->free_head;
	struct client_req *r = &c->req[slot - 1];
	const uint64_t id = (r->id + (UINT64_C(1) << 32)) >> 32 << 32 | slot;

	c->free_head = r->next_free;
	if (c->free_head == 0)
		c->free_tail = 0;
	*r = (struct client_req){.id = id, .state = CLIENT_FRESH};
	r->repeat.kind = CLIENT_T_REPEAT;
	r->ack.kind = CLIENT_T_ACK;
	r->limit.kind = CLIENT_T_LIMIT;
	return r;
}

static void start_request(struct kvr_client *c, struct client_req *r,
			  const struct kvr_client_request *q)
{
	const uint32_t limit_ms = q->request_ms != 0 ? q->request_ms : c->conf.request_ms;

	kvr_link_tick(&c->link);
	r->query = (q->flags & KVR_CLIENT_QUERY) != 0;
	r->book = (q->flags & KVR_CLIENT_BOOK) != 0;
	r->kind = (q->flags & KVR_CLIENT_LOADS) != 0 ? KVR_POTENTIAL_LOADS : KVR_ROUTE;
	r->direct = (q->flags & KVR_CLIENT_DIRECT) != 0;
	r->ops = q->ops;
	r->user = q->user;
	r->received_us = c->link.now_us;
	r->backoff_us = CLIENT_ROUTE_US;
	r->pace = CLIENT_PACE_FRAMES;
	r->ids = kvr_link_ids(&c->link, c->source, r->id, 0);
	r->item_from = c->router;
	c->live++;
	c->stats.submitted++;
	/* Sent by the timer at the next process call, so that several submits share a burst. */
	kvr_timer_set(&c->link.timers, &r->repeat, c->link.now_us);
	if (limit_ms != 0)
		kvr_timer_set(&c->link.timers, &r->limit, c->link.now_us + limit_ms * 1000ull);
}

int kvr_client_submit(struct kvr_client *c, const struct kvr_client_request *q, uint64_t *id)
{
	uint8_t token[KVR_WIRE_TOKEN], *room = NULL;
	const bool away = is_away(c, q);
	struct kvr_request_src src;
	struct client_req *r;
	uint8_t *msg = NULL;
	uint32_t len = 0;
	int pool, rc;

	*id = 0;
	pool = q->pool_name != NULL ? kvr_client_pool_lookup(c, q->pool_name) : q->pool;
	rc = pool < 0 ? pool : check_request(c, q);
	if (rc < 0)
		return rc;
	fill_request(c, q, (uint16_t)pool, &src);
	rc = take_hints(q->hints, &src);
	if (rc == 0 && c->free_head == 0)
		rc = -EBUSY;
	if (rc == 0 && away && getrandom(token, sizeof(token), 0) != sizeof(token))
		rc = -EIO; /* a token must not be predictable */
	if (rc == 0 && (away || (q->flags & KVR_CLIENT_BOOK) != 0 || q->n_failed_at > 0))
		rc = add_own_hints(q, away, token, &src, &room);
	if (rc == 0)
		rc = build_message(c, &src, &msg, &len);
	free(room);
	if (rc < 0)
		return rc;
	r = take_slot(c);
	if (away && kvr_client__away_take(r, q->body, q->body_len, token) < 0) {
		free(msg);
		kvr_client__free(c, r);
		return -ENOMEM;
	}
	r->msg = msg;
	r->msg_len = len;
	r->quiet = is_quiet(c, q, away, len);
	if (r->quiet)
		((struct kvr_wire_request *)msg)->flags |= KVR_REQ_F_QUIET;
	start_request(c, r, q);
	*id = r->id;
	return 0;
}

int kvr_client_cancel(struct kvr_client *c, uint64_t id)
{
	struct client_req *r = kvr_client__find(c, id);

	if (r == NULL || r->end_reported || r->state == CLIENT_ENDED)
		return -ENOENT;
	if (r->state == CLIENT_CANCELLING)
		return 0;
	kvr_link_tick(&c->link);
	kvr_client__start_cancel(c, r, KVR_CLIENT_CANCELLED);
	return 0;
}
