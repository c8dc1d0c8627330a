/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to clients: collects the items of the router as an HTTP response, and passes it to libh2o
 * as events, or as a whole with a length.
 */
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

static void add_choice(struct gw_call *call)
{
	const struct kvr_client_choice *ch = &call->choice;

	if (!call->explain || !ch->known)
		return;
	add_number(call->req, "x-kvroute-worker", ch->worker);
	add_number(call->req, "x-kvroute-dp-rank", ch->dp_rank);
	add_number(call->req, "x-kvroute-overlap-blocks", ch->overlap_blocks);
	add_number(call->req, "x-kvroute-required-blocks", ch->required_blocks);
	add_number(call->req, "x-kvroute-cached-tokens", ch->cached_tokens);
	add_header(call->req, H2O_STRLIT("x-kvroute-way"), kvr_way_name(ch->way),
		   strlen(kvr_way_name(ch->way)));
	if (ch->prefill_worker != 0) {
		add_number(call->req, "x-kvroute-prefill-worker", ch->prefill_worker);
		add_number(call->req, "x-kvroute-prefill-overlap-blocks",
			   ch->prefill_overlap_blocks);
	}
	add_header(call->req, H2O_STRLIT("x-kvroute-router"), call->router->name,
		   strlen(call->router->name));
}

/* Pass available data to libh2o if it is ready. */
static void push_data(struct gw_call *call)
{
	const struct gw_bytes spare = call->busy;
	const bool begun = call->started;
	h2o_iovec_t buf;

	if (call->req == NULL || call->sending)
		return;
	if (call->out.len == 0 && !call->complete)
		return;
	if (!call->started) {
		call->started = true;
		/* HTTP/1.0 has no chunks: the end of the answer closes the connection. */
		if (call->req->version < 0x101 && call->req->res.content_length == SIZE_MAX)
			call->req->http1_is_persistent = 0;
		h2o_start_response(call->req, &call->gen);
	}
	call->busy = call->out;
	call->out = (struct gw_bytes){spare.p, 0, spare.cap};
	call->sending = call->thread->touched = true;
	call->given_ms = gw_now_ms();
	buf = h2o_iovec_init(call->busy.p, call->busy.len);
	kvr_stats_add(call->thread->row, GW_BYTES_OUT, buf.len);
	/* With nothing to write, libh2o (HTTP/1.0, or another status than 200) would dispose of the
	 * request and thus of this call before it returns, while the caller still uses it. */
	h2o_send(call->req, &buf, buf.len > 0 || begun,
		 !call->complete ? H2O_SEND_STATE_IN_PROGRESS
		 : call->broken	 ? H2O_SEND_STATE_ERROR
				 : H2O_SEND_STATE_FINAL);
}

static void on_proceed(h2o_generator_t *gen, h2o_req_t *req)
{
	struct gw_call *call = (struct gw_call *)gen;

	(void)req;
	call->sending = false;
	call->given_ms = 0;
	call->busy.len = 0;
	push_data(call);
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
static void take_head(struct gw_call *call, const struct kvr_http_head *h)
{
	call->head_done = true;
	call->status = h->status;
	call->events = is_events(h);
	if (call->events)
		GW_COUNT(call->thread, GW_STREAMS);
	if (call->req == NULL)
		return;
	call->gen.proceed = on_proceed;
	call->req->res.status = h->status;
	call->req->res.reason = get_reason(h->status);
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (!kvr_http_is_hop(h->fields[i].name.p, h->fields[i].name.len) &&
		    !is_ours(&h->fields[i]))
			add_header(call->req, h->fields[i].name.p, h->fields[i].name.len,
				   h->fields[i].value.p, h->fields[i].value.len);
	add_choice(call);
}

static int add_head(struct gw_call *call, const void *data, size_t len)
{
	struct kvr_http_head h;
	int rc;

	if (gw_bytes_add(&call->head, data, len) < 0)
		return -ENOMEM;
	if (call->head.len == 0)
		return 0;
	rc = kvr_http_parse_response(call->head.p, call->head.len, &h);
	if (rc == -EAGAIN)
		return 0;
	/* 1xx is not a final answer; other classes are unknown to clients. */
	if (rc < 0 || h.status < 200 || h.status > 599)
		return -EBADMSG;
	take_head(call, &h);
	rc = gw_bytes_add(&call->out, call->head.p + h.len, call->head.len - h.len);
	call->head_len = h.len;
	call->head.len = 0;
	return rc;
}

int gw_answer_add(struct gw_call *call, const struct kvr_client_item *it)
{
	int rc;

	if ((it->flags & KVR_CLIENT_ITEM_ERROR) != 0)
		return 0; /* the error message follows with the end */
	rc = call->head_done ? gw_bytes_add(&call->out, it->data, it->len)
			     : add_head(call, it->data, it->len);
	if (rc < 0)
		return rc;
	/* These have no body: the client would take one for the next answer. */
	if ((call->status == 204 || call->status == 304) && call->out.len > 0)
		return -EBADMSG;
	if (call->out.len > call->thread->opt->buffer_bytes && call->sending)
		return -ENOBUFS;
	if ((it->flags & KVR_CLIENT_ITEM_LAST) != 0)
		return 0; /* the end follows in the same write */
	if (call->head_done && (call->events || call->started || call->out.len > HOLD_BYTES))
		push_data(call);
	return 0;
}

int gw_answer_end(struct gw_call *call)
{
	if (!call->head_done)
		return -EBADMSG;
	call->complete = true;
	/* Without a body, a length is not allowed or has another meaning (RFC 9110, 8.6). */
	if (!call->started && !call->events && call->req != NULL && call->status != 204 &&
	    call->status != 304)
		call->req->res.content_length = call->out.len;
	push_data(call);
	return 0;
}

/* Reset the state, as if no answer had arrived. */
static void reset_answer(struct gw_call *call)
{
	call->head.len = call->out.len = 0;
	call->head_done = call->events = false;
	call->status = 0;
	if (call->req == NULL)
		return;
	call->req->res.headers.size = 0;
	call->req->res.content_length = SIZE_MAX;
}

void gw_answer_keep(struct gw_call *call)
{
	if (call->head_done) {
		call->kept.len = 0;
		if (gw_bytes_add(&call->kept, call->head.p, call->head_len) < 0 ||
		    gw_bytes_add(&call->kept, call->out.p, call->out.len) < 0)
			call->kept.len = 0; /* the client gets the gateway's own message then */
	}
	reset_answer(call);
}

bool gw_answer_kept(struct gw_call *call)
{
	if (call->kept.len == 0 || call->started)
		return false;
	reset_answer(call);
	return add_head(call, call->kept.p, call->kept.len) == 0;
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

void gw_answer_track(struct gw_call *call, const struct kvr_client_tracker *t)
{
	char json[2048];
	size_t n;

	if (t == NULL || call->req == NULL || !call->head_done)
		return;
	n = track_json(t, json, sizeof(json));
	if (call->events) {
		/* The engine may have ended in the middle of a line. */
		gw_bytes_add(&call->out, "\n: kvroute ", 11);
		gw_bytes_add(&call->out, json, n);
		gw_bytes_add(&call->out, "\n\n", 2);
	} else if (!call->started) {
		add_header(call->req, H2O_STRLIT("x-kvroute-timing"), json, n);
	}
}

/* Token ids of the prompt; with images the router uses those of the routing prompt. */
static void add_ids(struct gw_bytes *b, const struct gw_call *call)
{
	char text[16];

	if (call->ask.preprocessed && call->ask.prompt.type == KVR_JSON_ARRAY) {
		gw_bytes_add(b, ",\"token_ids\":", 13);
		gw_bytes_add(b, call->ask.prompt.p, call->ask.prompt.len);
		return;
	}
	gw_bytes_add(b, ",\"token_ids\":[", 14);
	for (uint32_t i = 0; i < call->n_ids; i++)
		gw_bytes_add(b, text,
			     (size_t)snprintf(text, sizeof(text), "%s%u", i > 0 ? "," : "",
					      call->ids[i]));
	gw_bytes_add(b, "]", 1);
}

void gw_answer_choice(struct gw_call *call)
{
	const struct kvr_client_choice *ch = &call->choice;
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
	if (call->token_ids)
		add_ids(&b, call);
	gw_bytes_add(&b, "}", 1);
	add_choice(call);
	call->started = call->complete = call->thread->touched = true;
	call->given_ms = gw_now_ms();
	gw_answer_page(call->req, 200, JSON, b.p, b.len);
	free(b.p);
}

void gw_answer_error(struct gw_call *call, const struct gw_error *e, const char *text)
{
	char body[2048];
	size_t n;

	if (call->req == NULL)
		return;
	if (!call->started) {
		/* The client has received nothing of the engine's answer. */
		call->req->res.headers.size = 0;
		call->out.len = 0;
		call->started = call->complete = call->thread->touched = true;
		call->given_ms = gw_now_ms();
		add_choice(call);
		gw_answer_request_error(call->req, e, text);
		return;
	}
	call->complete = true;
	call->broken = !call->events;
	if (call->events) {
		/* The engine may have ended in the middle of a line. */
		GW_COUNT(call->thread, GW_SPLIT_STREAMS);
		gw_bytes_add(&call->out, "\n\ndata: ", 8);
		n = gw_error_json(e, text, body, sizeof(body));
		gw_bytes_add(&call->out, body, n);
		gw_bytes_add(&call->out, "\n\n", 2);
	}
	push_data(call);
}

void gw_answer_free(struct gw_call *call)
{
	free(call->head.p);
	free(call->kept.p);
	free(call->out.p);
	free(call->busy.p);
}
