/* SPDX-License-Identifier: BSD-3-Clause */
#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_http.h"
#include "kvr_json.h"
#include "kvr_types.h"

#define HOLD_BYTES                                                                                 \
	(256u << 10) /* maximum bytes before an answer that is not an event stream is sent */
#define JSON "application/json"

int gw_bytes_add(struct gw_bytes *b, const void *data, size_t len)
{
	if (len == 0)
		return 0;
	if (b->len + len > b->cap) {
		const size_t cap = (b->len + len) * 2;
		char *p = realloc(b->p, cap);

		if (p == NULL)
			return -ENOMEM;
		b->p = p;
		b->cap = cap;
	}
	memcpy(b->p + b->len, data, len);
	b->len += len;
	return 0;
}

static void add_header(h2o_req_t *req, const char *name, size_t name_len, const char *value,
		       size_t len)
{
	/* Names must be in lower case; name and value must live as long as the request. */
	const h2o_iovec_t n = h2o_strdup(&req->pool, name, name_len);
	const h2o_iovec_t v = h2o_strdup(&req->pool, value, len);

	h2o_strtolower(n.base, n.len);
	h2o_add_header_by_str(&req->pool, &req->res.headers, n.base, n.len, 1, NULL, v.base, v.len);
}

static void add_number(h2o_req_t *req, const char *name, uint64_t n)
{
	char text[24];

	add_header(req, name, strlen(name), text,
		   (size_t)snprintf(text, sizeof(text), "%" PRIu64, n));
}

static const char *get_reason(int status)
{
	if (status == 499)
		return "Client Closed Request";
	return status == 529 ? "Overloaded" : kvr_http_reason((unsigned int)status);
}

void gw_answer_page(h2o_req_t *req, int status, const char *type, const char *body, size_t len)
{
	req->res.status = status;
	req->res.reason = get_reason(status);
	req->res.content_length = len;
	h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, type,
		       strlen(type));
	h2o_send_inline(req, body, len);
}

void gw_answer_request_error(h2o_req_t *req, const struct gw_error *e, const char *text)
{
	char body[2048];
	const size_t len = gw_error_json(e, text, body, sizeof(body));

	if (e->retry_s > 0)
		add_number(req, "retry-after", e->retry_s);
	gw_answer_page(req, e->status, JSON, body, len);
}

void gw_answer_plain_error(h2o_req_t *req, enum gw_fault fault, const char *text)
{
	gw_answer_request_error(req, gw_error_fault(fault),
				text != NULL ? text : gw_error_text(fault));
}

static void add_choice(struct gw_call *c)
{
	const struct kvr_client_choice *ch = &c->choice;

	if (!c->explain || !ch->known)
		return;
	add_number(c->req, "x-kvroute-worker", ch->worker);
	add_number(c->req, "x-kvroute-dp-rank", ch->dp_rank);
	add_number(c->req, "x-kvroute-overlap-blocks", ch->overlap_blocks);
	add_number(c->req, "x-kvroute-required-blocks", ch->required_blocks);
	add_number(c->req, "x-kvroute-cached-tokens", ch->cached_tokens);
	add_header(c->req, H2O_STRLIT("x-kvroute-way"), kvr_way_name(ch->way),
		   strlen(kvr_way_name(ch->way)));
	if (ch->prefill_worker != 0) {
		add_number(c->req, "x-kvroute-prefill-worker", ch->prefill_worker);
		add_number(c->req, "x-kvroute-prefill-overlap-blocks", ch->prefill_overlap_blocks);
	}
	add_header(c->req, H2O_STRLIT("x-kvroute-router"), c->router->name,
		   strlen(c->router->name));
}

/* Pass available data to libh2o if it is ready. */
static void push_data(struct gw_call *c)
{
	const struct gw_bytes spare = c->busy;
	const bool begun = c->started;
	h2o_iovec_t buf;

	if (c->req == NULL || c->sending)
		return;
	if (c->out.len == 0 && !c->complete)
		return;
	if (!c->started) {
		c->started = true;
		/* HTTP/1.0 has no chunks: the end of the answer closes the connection. */
		if (c->req->version < 0x101 && c->req->res.content_length == SIZE_MAX)
			c->req->http1_is_persistent = 0;
		h2o_start_response(c->req, &c->gen);
	}
	c->busy = c->out;
	c->out = (struct gw_bytes){spare.p, 0, spare.cap};
	c->sending = c->t->touched = true;
	c->given_ms = gw_now_ms();
	buf = h2o_iovec_init(c->busy.p, c->busy.len);
	kvr_stats_add(c->t->row, GW_BYTES_OUT, buf.len);
	/* With nothing to write, libh2o (HTTP/1.0, or another status than 200) would dispose of the
	 * request and thus of this call before it returns, while the caller still uses it. */
	h2o_send(c->req, &buf, buf.len > 0 || begun,
		 !c->complete ? H2O_SEND_STATE_IN_PROGRESS
		 : c->broken  ? H2O_SEND_STATE_ERROR
			      : H2O_SEND_STATE_FINAL);
}

static void on_proceed(h2o_generator_t *gen, h2o_req_t *req)
{
	struct gw_call *c = (struct gw_call *)gen;

	(void)req;
	c->sending = false;
	c->given_ms = 0;
	c->busy.len = 0;
	push_data(c);
}

static bool is_events(const struct kvr_http_head *h)
{
	const struct kvr_http_field *f = kvr_http_find(h, "content-type");

	return f != NULL && f->value.len >= 17 &&
	       strncasecmp(f->value.p, "text/event-stream", 17) == 0;
}

/* libh2o writes these itself. */
static bool is_ours(const struct kvr_http_field *f)
{
	return (f->name.len == 4 && strncasecmp(f->name.p, "date", 4) == 0) ||
	       (f->name.len == 6 && strncasecmp(f->name.p, "server", 6) == 0);
}

/* The head is complete: set status and fields. */
static void take_head(struct gw_call *c, const struct kvr_http_head *h)
{
	c->head_done = true;
	c->status = h->status;
	c->events = is_events(h);
	if (c->events)
		GW_COUNT(c->t, GW_STREAMS);
	if (c->req == NULL)
		return;
	c->gen.proceed = on_proceed;
	c->req->res.status = h->status;
	c->req->res.reason = get_reason(h->status);
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (!kvr_http_is_hop(h->fields[i].name.p, h->fields[i].name.len) &&
		    !is_ours(&h->fields[i]))
			add_header(c->req, h->fields[i].name.p, h->fields[i].name.len,
				   h->fields[i].value.p, h->fields[i].value.len);
	add_choice(c);
}

static int add_head(struct gw_call *c, const void *data, size_t len)
{
	struct kvr_http_head h;
	int rc;

	if (gw_bytes_add(&c->head, data, len) < 0)
		return -ENOMEM;
	if (c->head.len == 0)
		return 0;
	rc = kvr_http_parse_response(c->head.p, c->head.len, &h);
	if (rc == -EAGAIN)
		return 0;
	/* 1xx is not a final answer; other classes are unknown to clients. */
	if (rc < 0 || h.status < 200 || h.status > 599)
		return -EBADMSG;
	take_head(c, &h);
	rc = gw_bytes_add(&c->out, c->head.p + h.len, c->head.len - h.len);
	c->head_len = h.len;
	c->head.len = 0;
	return rc;
}

int gw_answer_add(struct gw_call *c, const struct kvr_client_item *it)
{
	int rc;

	if ((it->flags & KVR_CLIENT_ITEM_ERROR) != 0)
		return 0; /* the error message follows with the end */
	rc = c->head_done ? gw_bytes_add(&c->out, it->data, it->len)
			  : add_head(c, it->data, it->len);
	if (rc < 0)
		return rc;
	/* These have no body: the client would take one for the next answer. */
	if ((c->status == 204 || c->status == 304) && c->out.len > 0)
		return -EBADMSG;
	if (c->out.len > c->t->opt->buffer_bytes && c->sending)
		return -ENOBUFS;
	if ((it->flags & KVR_CLIENT_ITEM_LAST) != 0)
		return 0; /* the end follows in the same write */
	if (c->head_done && (c->events || c->started || c->out.len > HOLD_BYTES))
		push_data(c);
	return 0;
}

int gw_answer_end(struct gw_call *c)
{
	if (!c->head_done)
		return -EBADMSG;
	c->complete = true;
	/* Without a body, a length is not allowed or has another meaning (RFC 9110, 8.6). */
	if (!c->started && !c->events && c->req != NULL && c->status != 204 && c->status != 304)
		c->req->res.content_length = c->out.len;
	push_data(c);
	return 0;
}

/* Reset the state, as if no answer had arrived. */
static void reset_answer(struct gw_call *c)
{
	c->head.len = c->out.len = 0;
	c->head_done = c->events = false;
	c->status = 0;
	if (c->req == NULL)
		return;
	c->req->res.headers.size = 0;
	c->req->res.content_length = SIZE_MAX;
}

void gw_answer_keep(struct gw_call *c)
{
	if (c->head_done) {
		c->kept.len = 0;
		if (gw_bytes_add(&c->kept, c->head.p, c->head_len) < 0 ||
		    gw_bytes_add(&c->kept, c->out.p, c->out.len) < 0)
			c->kept.len = 0; /* the client gets the gateway's own message then */
	}
	reset_answer(c);
}

bool gw_answer_kept(struct gw_call *c)
{
	if (c->kept.len == 0 || c->started)
		return false;
	reset_answer(c);
	return add_head(c, c->kept.p, c->kept.len) == 0;
}

/* Print ,"name":n, or nothing if unknown. */
static void add_us(char *buf, size_t size, size_t *n, const char *name, uint32_t us)
{
	if (us != UINT32_MAX)
		*n += (size_t)snprintf(buf + *n, size - *n, ",\"%s\":%u", name, us);
}

/* Print an object of the engine on one line. */
static void add_object(char *buf, size_t size, size_t *n, const char *name, const void *p,
		       uint32_t len)
{
	struct kvr_json_value v;
	size_t at;

	if (len == 0 || kvr_json_parse(p, len, &v, NULL) < 0 || v.type != KVR_JSON_OBJECT)
		return;
	at = *n + (size_t)snprintf(buf + *n, size - *n, ",\"%s\":", name);
	memcpy(buf + at, v.p, v.len);
	for (*n = at + v.len; at < *n; at++)
		if ((unsigned char)buf[at] < ' ')
			buf[at] = ' ';
}

/* At most 1,400 bytes. */
static size_t track_json(const struct kvr_client_tracker *t, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(
		buf, size,
		"{\"worker_id\":%" PRIu64
		",\"dp_rank\":%u,\"overlap_blocks\":%u,\"required_blocks\":%u,\"predicted_cached_tokens\":%u,\"hit_rate\":%.4f,\"isl\":%u,\"osl\":%u",
		t->worker, t->dp_rank, t->overlap_blocks, t->required_blocks,
		t->predicted_cached_tokens, t->hit_rate, t->isl, t->osl);

	if (t->prefill_worker != 0)
		n += (size_t)snprintf(buf + n, size - n,
				      ",\"prefill_worker_id\":%" PRIu64
				      ",\"prefill_dp_rank\":%u,\"prefill_overlap_blocks\":%u",
				      t->prefill_worker, t->prefill_dp_rank,
				      t->prefill_overlap_blocks);
	add_us(buf, size, &n, "cached_tokens", t->cached_tokens);
	add_us(buf, size, &n, "queue_us", t->queue_us);
	add_us(buf, size, &n, "ttft_us", t->ttft_us);
	add_us(buf, size, &n, "itl_us", t->itl_us);
	add_us(buf, size, &n, "prefill_us", t->prefill_us);
	add_us(buf, size, &n, "transfer_us", t->transfer_us);
	add_object(buf, size, &n, "prompt_tokens_details", t->prompt_details,
		   t->prompt_details_len);
	add_object(buf, size, &n, "trace_link", t->trace_link, t->trace_link_len);
	buf[n++] = '}';
	return n;
}

void gw_answer_track(struct gw_call *c, const struct kvr_client_tracker *t)
{
	char json[2048];
	size_t n;

	if (t == NULL || c->req == NULL || !c->head_done)
		return;
	n = track_json(t, json, sizeof(json));
	if (c->events) {
		/* The engine may have ended in the middle of a line. */
		gw_bytes_add(&c->out, "\n: kvroute ", 11);
		gw_bytes_add(&c->out, json, n);
		gw_bytes_add(&c->out, "\n\n", 2);
	} else if (!c->started) {
		add_header(c->req, H2O_STRLIT("x-kvroute-timing"), json, n);
	}
}

/* Token ids of the prompt; with images the router uses those of the routing prompt. */
static void add_ids(struct gw_bytes *b, const struct gw_call *c)
{
	char text[16];

	if (c->ask.preprocessed && c->ask.prompt.type == KVR_JSON_ARRAY) {
		gw_bytes_add(b, ",\"token_ids\":", 13);
		gw_bytes_add(b, c->ask.prompt.p, c->ask.prompt.len);
		return;
	}
	gw_bytes_add(b, ",\"token_ids\":[", 14);
	for (uint32_t i = 0; i < c->n_ids; i++)
		gw_bytes_add(
			b, text,
			(size_t)snprintf(text, sizeof(text), "%s%u", i > 0 ? "," : "", c->ids[i]));
	gw_bytes_add(b, "]", 1);
}

void gw_answer_choice(struct gw_call *c)
{
	const struct kvr_client_choice *ch = &c->choice;
	struct gw_bytes b = {0};
	char text[512];
	int n;

	n = snprintf(
		text, sizeof(text),
		"{\"worker_id\":%" PRIu64
		",\"dp_rank\":%u,\"overlap_blocks\":%u,\"required_blocks\":%u,\"cached_tokens\":%u,\"way\":\"%s\"",
		ch->worker, ch->dp_rank, ch->overlap_blocks, ch->required_blocks, ch->cached_tokens,
		kvr_way_name(ch->way));
	gw_bytes_add(&b, text, (size_t)n);
	if (ch->prefill_worker != 0)
		n = snprintf(text, sizeof(text),
			     ",\"prefill_worker_id\":%" PRIu64
			     ",\"prefill_dp_rank\":%u,\"prefill_overlap_blocks\":%u",
			     ch->prefill_worker, ch->prefill_dp_rank, ch->prefill_overlap_blocks);
	else
		n = snprintf(text, sizeof(text), ",\"prefill_worker_id\":null");
	gw_bytes_add(&b, text, (size_t)n);
	if (c->token_ids)
		add_ids(&b, c);
	gw_bytes_add(&b, "}", 1);
	add_choice(c);
	c->started = c->complete = c->t->touched = true;
	c->given_ms = gw_now_ms();
	gw_answer_page(c->req, 200, JSON, b.p, b.len);
	free(b.p);
}

void gw_answer_error(struct gw_call *c, const struct gw_error *e, const char *text)
{
	char body[2048];
	size_t n;

	if (c->req == NULL)
		return;
	if (!c->started) {
		/* The client has received nothing of the engine's answer. */
		c->req->res.headers.size = 0;
		c->out.len = 0;
		c->started = c->complete = c->t->touched = true;
		c->given_ms = gw_now_ms();
		add_choice(c);
		gw_answer_request_error(c->req, e, text);
		return;
	}
	c->complete = true;
	c->broken = !c->events;
	if (c->events) {
		/* The engine may have ended in the middle of a line. */
		GW_COUNT(c->t, GW_SPLIT_STREAMS);
		gw_bytes_add(&c->out, "\n\ndata: ", 8);
		n = gw_error_json(e, text, body, sizeof(body));
		gw_bytes_add(&c->out, body, n);
		gw_bytes_add(&c->out, "\n\n", 2);
	}
	push_data(c);
}

void gw_answer_free(struct gw_call *c)
{
	free(c->head.p);
	free(c->kept.p);
	free(c->out.p);
	free(c->busy.p);
}
