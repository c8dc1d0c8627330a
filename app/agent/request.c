/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion of a dispatched request to an HTTP request. */
#include "job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "kvr_engine_paths.h"
#include "kvr_wire.h"
#include "result_pack.h"
#include "trace.h"

#define FOLD_MOST (64u << 20) /* bytes of a folded answer */

/* Create a span of the client's trace. @return true with the traceparent that names it. */
static bool create_span(struct app_job *job, const struct kvr_http_head *h,
			char child[AGENT_TRACEPARENT])
{
	const struct kvr_http_field *f = kvr_http_find(h, "traceparent");
	uint64_t span = 0;

	if (!job->app->o.trace_span || f == NULL ||
	    getrandom(&span, sizeof(span), GRND_NONBLOCK) != sizeof(span) || span == 0 ||
	    !agent_trace_child(f->value.p, f->value.len, span, child))
		return false;
	snprintf(job->link, sizeof(job->link), "{\"span_id\":\"%016" PRIx64 "\"}", span);
	return true;
}

/* Create the head. @return false: no memory. */
static bool set_head(struct app_job *job, const struct kvr_http_head *h, uint32_t dp_rank)
{
	const struct agent_options *options = &job->app->o;
	const uint32_t rank = options->local_ranks ? dp_rank - options->first_rank : dp_rank;
	char child[AGENT_TRACEPARENT];
	const struct kvr_engine_head head = {
		.url = options->engine,
		.rank = options->ranks > 1 || options->first_rank > 0 ? &rank : NULL,
		.traceparent = create_span(job, h, child) ? child : NULL,
		.content_len = job->ask.content_len,
		.uncompressed = job->answer.form != KVR_ENGINE_RELAY};
	const int64_t n = kvr_engine_write_head(h, &head, &job->ask.head);

	if (n < 0)
		return false;
	job->ask.head_len = (size_t)n;
	job->ask.is_head = kvr_http_equals(h->method, "HEAD");
	return true;
}

/* Create the content, and prepare for its answer. @return 0 or -errno. */
static int set_content(struct app_job *job, const struct kvr_agent_request *r,
		       const struct kvr_http_head *h, const char *p, size_t len)
{
	struct kvr_engine_request request = {
		.kind = job->app->o.type == AGENT_SGLANG ? KVR_ENGINE_SGLANG : KVR_ENGINE_VLLM,
		.head = h,
		.content = p,
		.content_len = len,
		.leg = {.leg = r->leg,
			.bootstrap_host = r->bootstrap_host,
			.bootstrap_port = r->bootstrap_port,
			.bootstrap_room = r->bootstrap_room,
			.prefill_ranks = job->app->o.prefill_ranks,
			.result = r->prefill_result,
			.result_len = r->prefill_result_len},
		.running_usage = !job->app->running_costs};
	struct kvr_engine_plan plan;
	char *result;
	int64_t n = agent_result_unpack(r->prefill_result, r->prefill_result_len, &result);
	int rc;

	if (n < 0)
		return (int)n;
	if (n > 0) {
		request.leg.result = result;
		request.leg.result_len = (size_t)n;
	}
	rc = kvr_engine_plan_request(&request, &plan);
	free(result);
	if (rc < 0)
		return rc;
	job->ask.content = plan.content;
	job->ask.content_len = plan.content_len;
	kvr_engine_answer_init(&job->answer, &plan, FOLD_MOST);
	return 0;
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

static void fail_job(struct app_job *job, uint16_t status, const char *why)
{
	app_job_set_error(job, "%s", why);
	job->over = true;
	job->status = status;
	app_job_mark_dirty(job);
}

/* Start the request at the engine. @return 0, or the code of a rejection with the reason @p why. */
static int start_request(struct app_job *job, const struct kvr_agent_request *r,
			 const char *message, size_t len, const char **why)
{
	struct kvr_http_head head;
	int rc;

	*why = "the body is not an HTTP request message";
	/* CONNECT would turn a shared connection into a tunnel. */
	if (kvr_http_parse_request(message, len, &head) < 0 || head.target.p[0] != '/' ||
	    kvr_http_equals(head.method, "CONNECT"))
		return 400;
	*why = "the path is not in --paths";
	if (!kvr_engine_path_allowed(job->app->o.paths, head.target.p, head.target.len)) {
		kvr_cell_add(&job->app->st.paths_refused, 1);
		return 403;
	}
	rc = set_content(job, r, &head, message + head.len, len - head.len);
	if (rc == -ENOTSUP) { /* an answer, because the client needs the reason */
		fail_job(
			job, 400,
			"prompt_logprobs, echo with logprobs, and n or best_of above 1 are not supported by separate prefill and decode engines");
		return 0;
	}
	*why = rc == -EBADMSG ? "the content is not a JSON object"
	       : rc == -ENOMEM
		       ? "no memory"
		       : "bootstrap room or transfer result is missing: the engine of the other leg is of another kind";
	if (rc < 0)
		return rc == -EBADMSG ? 400 : rc == -ENOMEM ? 503 : 422;
	*why = "no memory";
	if (!set_head(job, &head, r->dp_rank))
		return 503;
	kvr_cell_add(&job->app->st.requests, 1);
	job->ask.ops = &ask_ops;
	job->ask.arg = job;
	app_engine_send(job->app, &job->ask);
	return 0;
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
