/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion of a dispatched request to an HTTP request. */
#include "job.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "body.h"
#include "kvr_wire.h"
#include "paths.h"
#include "result_pack.h"
#include "trace.h"

/* Text in a buffer of fixed size. */
struct text {
	char *p;
	size_t len, size;
};

static void __attribute__((format(printf, 2, 3))) put_text(struct text *t, const char *fmt, ...)
{
	const size_t room = t->size - t->len;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = (size_t)vsnprintf(t->p + t->len, room, fmt, ap);
	va_end(ap);
	assert(n < room); /* the caller computed the size */
	t->len += n < room ? n : room - 1;
}

/* Copy a field of the client. A traceparent is replaced by one with a new span. */
static void put_field(struct app_job *job, struct text *t, const struct kvr_http_field *f)
{
	char child[AGENT_TRACEPARENT];
	uint64_t span = 0;

	if (job->app->o.trace_span && kvr_http_equals(f->name, "traceparent") &&
	    getrandom(&span, sizeof(span), GRND_NONBLOCK) == sizeof(span) && span != 0 &&
	    agent_trace_child(f->value.p, f->value.len, span, child)) {
		put_text(t, "traceparent: %s\r\n", child);
		snprintf(job->link, sizeof(job->link), "{\"span_id\":\"%016" PRIx64 "\"}", span);
		return;
	}
	put_text(t, "%.*s: %.*s\r\n", (int)f->name.len, f->name.p, (int)f->value.len, f->value.p);
}

/* Create the head: fields of the message, host and rank. @return false: no memory. */
static bool set_head(struct app_job *job, const struct kvr_http_head *h, uint32_t dp_rank)
{
	const struct agent_options *options = &job->app->o;
	const char *host = options->engine + strlen("http://");
	const int host_len = (int)strcspn(host, "/");
	/* The fragment of a URL is not sent. */
	const char *hash = memchr(h->target.p, '#', h->target.len);
	const int target_len = hash != NULL ? (int)(hash - h->target.p) : (int)h->target.len;
	/* Path and host of the engine; per field four bytes of separators, where the message may
	 * have two; and three more fields. */
	struct text t = {.size = h->len + 2 * sizeof(options->engine) + 2 * h->n_fields + 128};

	t.p = malloc(t.size);
	if (t.p == NULL)
		return false;
	put_text(&t, "%.*s %s%.*s HTTP/1.1\r\nHost: %.*s\r\n", (int)h->method.len, h->method.p,
		 host + host_len, target_len, h->target.p, host_len, host);
	for (unsigned int i = 0; i < h->n_fields; i++) {
		const struct kvr_http_field *f = &h->fields[i];

		if (!kvr_http_equals(f->name, "x-data-parallel-rank"))
			put_field(job, &t, f);
	}
	if (options->ranks > 1 || options->first_rank > 0)
		put_text(&t, "X-data-parallel-rank: %u\r\n",
			 options->local_ranks ? dp_rank - options->first_rank : dp_rank);
	if (job->ask.content_len > 0 || kvr_http_equals(h->method, "POST"))
		put_text(&t, "Content-Length: %zu\r\n", job->ask.content_len);
	put_text(&t, "\r\n");
	job->ask.head = t.p;
	job->ask.head_len = t.len;
	job->ask.is_head = kvr_http_equals(h->method, "HEAD");
	return true;
}

static bool is_responses(struct kvr_http_span target)
{
	static const char path[] = "/v1/responses";
	const size_t n = sizeof(path) - 1;

	return target.len >= n && memcmp(target.p, path, n) == 0 &&
	       (target.len == n || target.p[n] == '?' || target.p[n] == '#');
}

/* Create the content: the client's, or its version for the leg. @return length or -errno. */
static int64_t set_content(struct app_job *job, const struct kvr_agent_request *r,
			   const struct kvr_http_head *h, const char *p, size_t len)
{
	struct agent_leg leg = {.leg = r->leg,
				.responses = is_responses(h->target),
				.bootstrap_host = r->bootstrap_host,
				.bootstrap_port = r->bootstrap_port,
				.bootstrap_room = r->bootstrap_room,
				.prefill_ranks = job->app->o.prefill_ranks,
				.result = r->prefill_result,
				.result_len = r->prefill_result_len};

	if (r->leg != KVR_ROLE_AGGREGATED) {
		char *result;
		int64_t n = agent_result_unpack(leg.result, leg.result_len, &result);

		if (n < 0)
			return n;
		if (n > 0) {
			leg.result = result;
			leg.result_len = (uint32_t)n;
		}
		n = agent_body_leg((enum agent_engine)job->app->o.type, &leg, p, len,
				   &job->ask.content);
		free(result);
		return n;
	}
	job->ask.content = malloc(len + 1);
	if (job->ask.content == NULL)
		return -ENOMEM;
	memcpy(job->ask.content, p, len);
	return (int64_t)len;
}

static int reject_request(struct app *app, int code, const char *why)
{
	kvr_cell_add(&app->st.refused, 1);
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "request rejected with code %d: %s",
		code, why);
	return code;
}

static const struct app_ask_ops ask_ops = {
	.takes = app_job_accepts,
	.answer = {.head = app_job_on_head, .content = app_job_on_content},
	.ended = app_job_ended,
};

/* Start the request at the engine. @return 0, or the code of a rejection with the reason @p why. */
static int start_request(struct app_job *job, const struct kvr_agent_request *r,
			 const char *message, size_t len, const char **why)
{
	struct kvr_http_head head;
	int64_t n;

	*why = "the body is not an HTTP request message";
	/* CONNECT would turn a shared connection into a tunnel. */
	if (kvr_http_parse_request(message, len, &head) < 0 || head.target.p[0] != '/' ||
	    kvr_http_equals(head.method, "CONNECT"))
		return 400;
	*why = "the path is not in --paths";
	if (!agent_path_allowed(job->app->o.paths, head.target.p, head.target.len)) {
		kvr_cell_add(&job->app->st.paths_refused, 1);
		return 403;
	}
	n = set_content(job, r, &head, message + head.len, len - head.len);
	*why = n == -EBADMSG ? "the content is not a JSON object"
	       : n == -ENOMEM
		       ? "no memory"
		       : "bootstrap room or transfer result is missing: the engine of the other leg is of another kind";
	if (n < 0)
		return n == -EBADMSG ? 400 : n == -ENOMEM ? 503 : 422;
	*why = "no memory";
	job->ask.content_len = (size_t)n;
	if (!set_head(job, &head, r->dp_rank))
		return 503;
	kvr_cell_add(&job->app->st.requests, 1);
	job->ask.ops = &ask_ops;
	job->ask.arg = job;
	app_engine_send(job->app, &job->ask);
	return 0;
}

static void fail_job(struct app_job *job, uint16_t status, const char *why)
{
	app_job_set_error(job, "%s", why);
	job->over = true;
	job->status = status;
	app_job_mark_dirty(job);
}

static void on_body(struct app_job *job, const char *message, size_t len)
{
	const char *why;
	const int code = start_request(job, app_body_request(job->body), message, len, &why);

	if (code == 0)
		return;
	app_log(job->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"a request with a separate body failed with code %d: %s", code, why);
	fail_job(job, (uint16_t)code, why);
}

const struct app_bodies_ops app_job_bodies = {.come = on_body, .missed = fail_job};

int app_job_dispatch(struct app *app, const struct kvr_agent_request *r)
{
	const char *why = "no memory";
	struct app_job *job;
	int code = 0;

	if (app->state != APP_SERVING && app->state != APP_DRAINING)
		return reject_request(app, 503, "the agent is leaving");
	job = calloc(1, sizeof(*job));
	if (job == NULL)
		return reject_request(app, 503, why);
	job->app = app;
	job->handle = r->handle;
	job->rank = r->dp_rank - app->o.first_rank;
	job->prefill = r->leg == KVR_ROLE_PREFILL;
	job->bootstrap = r->bootstrap_host != NULL;
	LIST_INSERT_HEAD(app_job_bucket(app, job->handle), job, hash);
	app->live[job->rank]++;
	kvr_cell_add(&app->st.running, 1);
	if (!r->away) {
		code = start_request(job, r, r->body, r->body_len, &why);
	} else {
		job->body = app_body_expect(app, job, r);
		code = job->body != NULL ? 0 : 503;
	}
	if (code == 0 && !r->away && (r->flags & KVR_REQ_F_TRIAL) != 0)
		app_job_start_trial(job);
	if (code == 0)
		return 0;
	app_job_release(job);
	return reject_request(app, code, why);
}
