/* SPDX-License-Identifier: BSD-3-Clause */
#include "tokens.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "kvr_json.h"
#include "kvr_log.h"
#include "kvr_outage.h"
#include "lru.h"

#define MAX_ANSWER   (64u << 20) /* bytes */
#define FAILURES     3
#define PAUSE_MS     1000
#define SPARE_MS     1000
#define KEPT_SOCKETS 64
#define KEPT_FOR_MS  2000

struct gw_tokens {
	struct gw_thread *t;
	h2o_socketpool_t pool;
	h2o_http1client_ctx_t http;
	h2o_timeout_t io_timeout;
	struct gw_lru *cache;
	char head[768]; /* at the start of every request, up to the length */
	uint32_t failures;
	uint32_t failed;	     /* consecutive questions without ids, including rejections */
	bool worked, failure_logged; /* answered at least once; the current failure is logged */
	uint64_t next_log_ms;	     /* log no failure before this time */
	uint64_t pause_until_ms;
	TAILQ_HEAD(, gw_question) questions; /* ordered by until_ms */
};

struct gw_question {
	struct gw_tokens *k;
	TAILQ_ENTRY(gw_question) link;
	h2o_http1client_t *client;
	uint64_t until_ms;
	char *text;
	size_t len;
	struct gw_lru_key key;
	bool keep; /* store the answer under key */
	gw_tokens_fn *fn;
	void *arg;
	h2o_iovec_t bufs[2];
	char head[832];
	h2o_buffer_t *answer;
	bool ok;       /* status 200 */
	bool answered; /* it answered, perhaps with a rejection */
	bool *ended;   /* set if it ends before gw_tokens_ask() returns */
	char why[64];  /* reason for no ids */
};

int gw_tokens_start(struct gw_thread *t)
{
	const struct gw_options *o = t->opt;
	struct gw_tokens *k = calloc(1, sizeof(*k));
	uint64_t seed = 0;

	if (o->tokenize_port == 0) {
		free(k);
		return 0;
	}
	if (k == NULL || getrandom(&seed, sizeof(seed), 0) < 0) {
		free(k);
		return -ENOMEM;
	}
	k->cache = gw_lru_create(o->tokenize_bytes, seed);
	if (k->cache == NULL) {
		free(k);
		return -ENOMEM;
	}
	k->t = t;
	TAILQ_INIT(&k->questions);
	snprintf(k->head, sizeof(k->head),
		 "POST %s HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
		 "Connection: keep-alive\r\nContent-Length: ",
		 o->tokenize_path, o->tokenize_host, o->tokenize_port);
	/* Required by libh2o, by the wall clock. The gateway's own limit is shorter. */
	h2o_timeout_init(t->ctx.loop, &k->io_timeout, o->tokenize_ms + SPARE_MS);
	k->http = (h2o_http1client_ctx_t){.loop = t->ctx.loop,
					  .getaddr_receiver = &t->ctx.receivers.hostinfo_getaddr,
					  .io_timeout = &k->io_timeout};
	h2o_socketpool_init_by_hostport(&k->pool,
					h2o_iovec_init(o->tokenize_host, strlen(o->tokenize_host)),
					o->tokenize_port, 0, KEPT_SOCKETS);
	h2o_socketpool_set_timeout(&k->pool, t->ctx.loop, KEPT_FOR_MS);
	t->tokens = k;
	return 0;
}

static void release_question(struct gw_question *q)
{
	if (q->ended != NULL)
		*q->ended = true;
	TAILQ_REMOVE(&q->k->questions, q, link);
	if (q->answer != NULL)
		h2o_buffer_dispose(&q->answer);
	free(q->text);
	free(q);
}

void gw_tokens_cancel(struct gw_question *q)
{
	if (q->client != NULL)
		h2o_http1client_cancel(q->client);
	release_question(q);
}

void gw_tokens_stop(struct gw_thread *t)
{
	struct gw_tokens *k = t->tokens;

	if (k == NULL)
		return;
	while (!TAILQ_EMPTY(&k->questions))
		gw_tokens_cancel(TAILQ_FIRST(&k->questions));
	gw_lru_destroy(k->cache);
	h2o_socketpool_dispose(&k->pool);
	h2o_timeout_dispose(t->ctx.loop, &k->io_timeout);
	free(k);
	t->tokens = NULL;
}

/* {"tokens": [...]} */
static uint32_t *read_answer(const struct gw_question *q, uint32_t *n)
{
	struct kvr_json_value root, tokens;
	uint32_t *ids;
	int64_t count;

	if (!q->ok || q->answer == NULL ||
	    kvr_json_parse(q->answer->bytes, q->answer->size, &root, NULL) != 0 ||
	    !kvr_json_get(&root, "tokens", &tokens))
		return NULL;
	count = kvr_json_u32s(&tokens, NULL, 0);
	if (count <= 0 || count > (1 << 20))
		return NULL;
	ids = malloc((size_t)count * sizeof(*ids));
	if (ids != NULL)
		kvr_json_u32s(&tokens, ids, (size_t)count);
	*n = (uint32_t)count;
	return ids;
}

/*
 * Requests continue without ids, by load, without a difference for clients, so a wrong URL must be
 * logged. A single failure may be caused by an invalid prompt, unless no question was ever
 * answered.
 */
static void log_failure(struct gw_tokens *k, const struct gw_question *q)
{
	const uint64_t now = gw_now_ms();

	if ((++k->failed < FAILURES && k->worked) || now < k->next_log_ms)
		return;
	k->failure_logged = true;
	k->next_log_ms = now + KVR_OUTAGE_AGAIN_MS;
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = k->t->opt->tokenize,
			      .reason = q->why[0] != '\0' ? q->why : "no token ids"),
		"thread %u: no token ids from the tokenizer; text prompts are routed by load alone",
		k->t->number);
}

static void log_success(struct gw_tokens *k)
{
	k->failed = 0;
	k->worked = true;
	if (!k->failure_logged)
		return;
	k->failure_logged = false;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = k->t->opt->tokenize),
		     "thread %u: the tokenizer provides token ids", k->t->number);
}

static void set_reason(struct gw_question *q, const char *why)
{
	snprintf(q->why, sizeof(q->why), "%s", why);
}

/* The question has ended, and its client object is gone or about to be. */
static void end_question(struct gw_question *q)
{
	struct gw_tokens *k = q->k;
	gw_tokens_fn *fn = q->fn;
	void *arg = q->arg;
	uint32_t n = 0, *ids = read_answer(q, &n);

	if (ids == NULL) {
		GW_COUNT(k->t, GW_TOKENIZE_FAILED);
		k->failures = q->answered ? 0 : k->failures + 1;
		if (k->failures >= FAILURES)
			k->pause_until_ms = gw_now_ms() + PAUSE_MS;
		log_failure(k, q);
	} else {
		GW_COUNT(k->t, GW_TOKENIZED);
		k->failures = 0;
		log_success(k);
		if (q->keep)
			gw_lru_put(k->cache, &q->key, ids, n);
	}
	release_question(q);
	fn(arg, ids, n);
}

static void give_up(struct gw_question *q)
{
	if (q->client != NULL)
		h2o_http1client_cancel(q->client);
	q->client = NULL;
	q->ok = q->answered = false;
	set_reason(q, "no answer in time");
	end_question(q);
}

int32_t gw_tokens_turn(struct gw_tokens *k, int32_t wait)
{
	const uint64_t now = gw_now_ms();
	struct gw_question *q;

	if (k == NULL)
		return wait;
	while ((q = TAILQ_FIRST(&k->questions)) != NULL && q->until_ms <= now)
		give_up(q);
	return q != NULL && q->until_ms - now < (uint64_t)wait ? (int32_t)(q->until_ms - now)
							       : wait;
}

static int on_body(h2o_http1client_t *client, const char *errstr)
{
	struct gw_question *q = client->data;
	h2o_buffer_t *in = client->sock->input;
	const size_t have = q->answer != NULL ? q->answer->size : 0;

	if (errstr != NULL && errstr != h2o_http1client_error_is_eos) {
		q->ok = q->answered = false;
		set_reason(q, errstr);
	}
	if (q->ok && in->size > 0) {
		if (q->answer == NULL)
			h2o_buffer_init(&q->answer, &h2o_socket_buffer_prototype);
		if (have + in->size > MAX_ANSWER ||
		    h2o_buffer_reserve(&q->answer, in->size).base == NULL) {
			q->ok = false;
		} else {
			memcpy(q->answer->bytes + q->answer->size, in->bytes, in->size);
			q->answer->size += in->size;
		}
	}
	h2o_buffer_consume(&client->sock->input, in->size);
	if (errstr != NULL || !q->ok) {
		q->client = NULL;
		end_question(q);
		return errstr != NULL ? 0 : -1;
	}
	return 0;
}

static h2o_http1client_body_cb on_head(h2o_http1client_t *client, const char *errstr, int minor,
				       int status, h2o_iovec_t msg, h2o_header_t *headers,
				       size_t n_headers, int rlen)
{
	struct gw_question *q = client->data;

	(void)minor;
	(void)msg;
	(void)headers;
	(void)n_headers;
	(void)rlen;
	q->ok = status == 200;
	q->answered = errstr == NULL || errstr == h2o_http1client_error_is_eos;
	if (errstr != NULL || !q->ok) {
		/* Without a body, or not wanted: NULL closes the connection. */
		if (q->answered)
			snprintf(q->why, sizeof(q->why), "status %d", status);
		else
			set_reason(q, errstr);
		q->ok = false;
		q->client = NULL;
		end_question(q);
		return NULL;
	}
	return on_body;
}

static h2o_http1client_head_cb on_connect(h2o_http1client_t *client, const char *errstr,
					  h2o_iovec_t **bufs, size_t *n, int *method_is_head)
{
	struct gw_question *q = client->data;
	int len;

	if (errstr != NULL) {
		q->client = NULL;
		set_reason(q, errstr);
		end_question(q);
		return NULL;
	}
	len = snprintf(q->head, sizeof(q->head), "%s%zu\r\n\r\n", q->k->head, q->len);
	q->bufs[0] = h2o_iovec_init(q->head, (size_t)len);
	q->bufs[1] = h2o_iovec_init(q->text, q->len);
	*bufs = q->bufs;
	*n = 2;
	*method_is_head = 0;
	return on_head;
}

struct gw_lru *gw_tokens_cache(struct gw_tokens *k)
{
	return k->cache;
}

struct gw_question *gw_tokens_ask(struct gw_tokens *k, char *text, size_t len,
				  const struct gw_lru_key *key, gw_tokens_fn *fn, void *arg)
{
	struct gw_question *q;
	uint32_t n = 0, *ids = key != NULL ? gw_lru_get(k->cache, key, &n) : NULL;
	bool ended = false;

	if (ids != NULL)
		GW_COUNT(k->t, GW_TOKENIZE_CACHED);
	q = ids != NULL || k->pause_until_ms > gw_now_ms() ? NULL : calloc(1, sizeof(*q));
	if (q == NULL) {
		if (ids == NULL)
			GW_COUNT(k->t, GW_TOKENIZE_FAILED);
		free(text);
		fn(arg, ids, n);
		return NULL;
	}
	q->k = k;
	q->text = text;
	q->len = len;
	q->keep = key != NULL;
	if (key != NULL)
		q->key = *key;
	q->fn = fn;
	q->arg = arg;
	q->until_ms = gw_now_ms() + k->t->opt->tokenize_ms;
	TAILQ_INSERT_TAIL(&k->questions, q, link);
	q->ended = &ended;
	h2o_http1client_connect_with_pool(&q->client, q, &k->http, &k->pool, on_connect);
	if (ended)
		return NULL;
	q->ended = NULL;
	return q;
}
