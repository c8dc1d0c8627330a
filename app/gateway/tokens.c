/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HTTP client of the tokenizer: questions with a time limit, an outage detector, and the cache of
 * ids.
 */
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
	struct gw_thread *thread;
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
	struct gw_tokens *tokens;
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

int gw_tokens_start(struct gw_thread *thread)
{
	const struct gw_options *options = thread->opt;
	struct gw_tokens *tokens = calloc(1, sizeof(*tokens));
	uint64_t seed = 0;

	if (options->tokenize_port == 0) {
		free(tokens);
		return 0;
	}
	if (tokens == NULL || getrandom(&seed, sizeof(seed), 0) < 0) {
		free(tokens);
		return -ENOMEM;
	}
	tokens->cache = gw_lru_create(options->tokenize_bytes, seed);
	if (tokens->cache == NULL) {
		free(tokens);
		return -ENOMEM;
	}
	tokens->thread = thread;
	TAILQ_INIT(&tokens->questions);
	snprintf(tokens->head, sizeof(tokens->head),
		 "POST %s HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
		 "Connection: keep-alive\r\nContent-Length: ",
		 options->tokenize_path, options->tokenize_host, options->tokenize_port);
	/* Required by libh2o, by the wall clock. The gateway's own limit is shorter. */
	h2o_timeout_init(thread->ctx.loop, &tokens->io_timeout, options->tokenize_ms + SPARE_MS);
	tokens->http =
		(h2o_http1client_ctx_t){.loop = thread->ctx.loop,
					.getaddr_receiver = &thread->ctx.receivers.hostinfo_getaddr,
					.io_timeout = &tokens->io_timeout};
	h2o_socketpool_init_by_hostport(
		&tokens->pool,
		h2o_iovec_init(options->tokenize_host, strlen(options->tokenize_host)),
		options->tokenize_port, 0, KEPT_SOCKETS);
	h2o_socketpool_set_timeout(&tokens->pool, thread->ctx.loop, KEPT_FOR_MS);
	thread->tokens = tokens;
	return 0;
}

static void release_question(struct gw_question *question)
{
	if (question->ended != NULL)
		*question->ended = true;
	TAILQ_REMOVE(&question->tokens->questions, question, link);
	if (question->answer != NULL)
		h2o_buffer_dispose(&question->answer);
	free(question->text);
	free(question);
}

void gw_tokens_cancel(struct gw_question *question)
{
	if (question->client != NULL)
		h2o_http1client_cancel(question->client);
	release_question(question);
}

void gw_tokens_stop(struct gw_thread *thread)
{
	struct gw_tokens *tokens = thread->tokens;

	if (tokens == NULL)
		return;
	while (!TAILQ_EMPTY(&tokens->questions))
		gw_tokens_cancel(TAILQ_FIRST(&tokens->questions));
	gw_lru_destroy(tokens->cache);
	h2o_socketpool_dispose(&tokens->pool);
	h2o_timeout_dispose(thread->ctx.loop, &tokens->io_timeout);
	free(tokens);
	thread->tokens = NULL;
}

/* {"tokens": [...]} */
static uint32_t *read_answer(const struct gw_question *question, uint32_t *n)
{
	struct kvr_json_value root, tokens;
	uint32_t *ids;
	int64_t count;

	if (!question->ok || question->answer == NULL ||
	    kvr_json_parse(question->answer->bytes, question->answer->size, &root, NULL) != 0 ||
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
static void log_failure(struct gw_tokens *tokens, const struct gw_question *question)
{
	const uint64_t now = gw_now_ms();

	if ((++tokens->failed < FAILURES && tokens->worked) || now < tokens->next_log_ms)
		return;
	tokens->failure_logged = true;
	tokens->next_log_ms = now + KVR_OUTAGE_AGAIN_MS;
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = tokens->thread->opt->tokenize,
			      .reason = question->why[0] != '\0' ? question->why : "no token ids"),
		"thread %u: no token ids from the tokenizer; text prompts are routed by load alone",
		tokens->thread->number);
}

static void log_success(struct gw_tokens *tokens)
{
	tokens->failed = 0;
	tokens->worked = true;
	if (!tokens->failure_logged)
		return;
	tokens->failure_logged = false;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = tokens->thread->opt->tokenize),
		     "thread %u: the tokenizer provides token ids", tokens->thread->number);
}

static void set_reason(struct gw_question *question, const char *why)
{
	snprintf(question->why, sizeof(question->why), "%s", why);
}

/* The question has ended, and its client object is gone or about to be. */
static void end_question(struct gw_question *question)
{
	struct gw_tokens *tokens = question->tokens;
	gw_tokens_fn *fn = question->fn;
	void *arg = question->arg;
	uint32_t n = 0, *ids = read_answer(question, &n);

	if (ids == NULL) {
		GW_COUNT(tokens->thread, GW_TOKENIZE_FAILED);
		tokens->failures = question->answered ? 0 : tokens->failures + 1;
		if (tokens->failures >= FAILURES)
			tokens->pause_until_ms = gw_now_ms() + PAUSE_MS;
		log_failure(tokens, question);
	} else {
		GW_COUNT(tokens->thread, GW_TOKENIZED);
		tokens->failures = 0;
		log_success(tokens);
		if (question->keep)
			gw_lru_put(tokens->cache, &question->key, ids, n);
	}
	release_question(question);
	fn(arg, ids, n);
}

static void give_up(struct gw_question *question)
{
	if (question->client != NULL)
		h2o_http1client_cancel(question->client);
	question->client = NULL;
	question->ok = question->answered = false;
	set_reason(question, "no answer in time");
	end_question(question);
}

int32_t gw_tokens_turn(struct gw_tokens *tokens, int32_t wait)
{
	const uint64_t now = gw_now_ms();
	struct gw_question *question;

	if (tokens == NULL)
		return wait;
	while ((question = TAILQ_FIRST(&tokens->questions)) != NULL && question->until_ms <= now)
		give_up(question);
	return question != NULL && question->until_ms - now < (uint64_t)wait
		       ? (int32_t)(question->until_ms - now)
		       : wait;
}

static int on_body(h2o_http1client_t *client, const char *errstr)
{
	struct gw_question *question = client->data;
	h2o_buffer_t *in = client->sock->input;
	const size_t have = question->answer != NULL ? question->answer->size : 0;

	if (errstr != NULL && errstr != h2o_http1client_error_is_eos) {
		question->ok = question->answered = false;
		set_reason(question, errstr);
	}
	if (question->ok && in->size > 0) {
		if (question->answer == NULL)
			h2o_buffer_init(&question->answer, &h2o_socket_buffer_prototype);
		if (have + in->size > MAX_ANSWER ||
		    h2o_buffer_reserve(&question->answer, in->size).base == NULL) {
			question->ok = false;
		} else {
			memcpy(question->answer->bytes + question->answer->size, in->bytes,
			       in->size);
			question->answer->size += in->size;
		}
	}
	h2o_buffer_consume(&client->sock->input, in->size);
	if (errstr != NULL || !question->ok) {
		question->client = NULL;
		end_question(question);
		return errstr != NULL ? 0 : -1;
	}
	return 0;
}

static h2o_http1client_body_cb on_head(h2o_http1client_t *client, const char *errstr, int minor,
				       int status, h2o_iovec_t msg, h2o_header_t *headers,
				       size_t n_headers, int rlen)
{
	struct gw_question *question = client->data;

	(void)minor;
	(void)msg;
	(void)headers;
	(void)n_headers;
	(void)rlen;
	question->ok = status == 200;
	question->answered = errstr == NULL || errstr == h2o_http1client_error_is_eos;
	if (errstr != NULL || !question->ok) {
		/* Without a body, or not wanted: NULL closes the connection. */
		if (question->answered)
			snprintf(question->why, sizeof(question->why), "status %d", status);
		else
			set_reason(question, errstr);
		question->ok = false;
		question->client = NULL;
		end_question(question);
		return NULL;
	}
	return on_body;
}

static h2o_http1client_head_cb on_connect(h2o_http1client_t *client, const char *errstr,
					  h2o_iovec_t **bufs, size_t *n, int *method_is_head)
{
	struct gw_question *question = client->data;
	int len;

	if (errstr != NULL) {
		question->client = NULL;
		set_reason(question, errstr);
		end_question(question);
		return NULL;
	}
	len = snprintf(question->head, sizeof(question->head), "%s%zu\r\n\r\n",
		       question->tokens->head, question->len);
	question->bufs[0] = h2o_iovec_init(question->head, (size_t)len);
	question->bufs[1] = h2o_iovec_init(question->text, question->len);
	*bufs = question->bufs;
	*n = 2;
	*method_is_head = 0;
	return on_head;
}

struct gw_lru *gw_tokens_cache(struct gw_tokens *tokens)
{
	return tokens->cache;
}

struct gw_question *gw_tokens_ask(struct gw_tokens *tokens, char *text, size_t len,
				  const struct gw_lru_key *key, gw_tokens_fn *fn, void *arg)
{
	struct gw_question *question;
	uint32_t n = 0, *ids = key != NULL ? gw_lru_get(tokens->cache, key, &n) : NULL;
	bool ended = false;

	if (ids != NULL)
		GW_COUNT(tokens->thread, GW_TOKENIZE_CACHED);
	question = ids != NULL || tokens->pause_until_ms > gw_now_ms()
			   ? NULL
			   : calloc(1, sizeof(*question));
	if (question == NULL) {
		if (ids == NULL)
			GW_COUNT(tokens->thread, GW_TOKENIZE_FAILED);
		free(text);
		fn(arg, ids, n);
		return NULL;
	}
	question->tokens = tokens;
	question->text = text;
	question->len = len;
	question->keep = key != NULL;
	if (key != NULL)
		question->key = *key;
	question->fn = fn;
	question->arg = arg;
	question->until_ms = gw_now_ms() + tokens->thread->opt->tokenize_ms;
	TAILQ_INSERT_TAIL(&tokens->questions, question, link);
	question->ended = &ended;
	h2o_http1client_connect_with_pool(&question->client, question, &tokens->http, &tokens->pool,
					  on_connect);
	if (ended)
		return NULL;
	question->ended = NULL;
	return question;
}
