/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One job per dispatched request: an HTTP request at the engine, whose answer is forwarded item by
 * item. Data of the engine are collected during a turn and forwarded at its end, one item per read.
 * Data that the router does not accept yet remain in the job, and above a limit reading stops, so
 * that the engine waits.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "result_pack.h"

#define TRIAL_US  UINT64_C(2000000) /* doubles with each consecutive failure ... */
#define TRIALS	  4u		    /* ... and there is no limit after this number */
#define BUCKETS	  4096u
#define ITEM_MOST (512u << 10) /* bytes of one item */
#define HEAD_US	  1000u /* wait for content: an engine with a token sends both almost at once */

struct app_bucket *app_job_bucket(struct app *app, uint64_t handle)
{
	return &app->buckets[(handle * UINT64_C(0x9e3779b97f4a7c15)) >> 52];
}

static struct app_job *find_job(struct app *app, uint64_t handle)
{
	struct app_job *job;

	LIST_FOREACH (job, app_job_bucket(app, handle), hash)
		if (job->handle == handle)
			return job;
	return NULL;
}

uint32_t app_jobs_running(const struct app *app)
{
	return (uint32_t)kvr_cell_get(&app->st.running);
}

static void enqueue_job(struct app_job *job, struct app_jobs *in)
{
	TAILQ_INSERT_TAIL(in, job, queue);
	job->in = in;
}

static void unqueue_job(struct app_job *job)
{
	if (job->in != NULL)
		TAILQ_REMOVE(job->in, job, queue);
	job->in = NULL;
}

static void end_trial(struct app_job *job)
{
	if (job->trial_us != 0)
		TAILQ_REMOVE(&job->app->trials, job, trial);
	job->trial_us = 0;
}

void app_job_release(struct app_job *job)
{
	app_engine_drop(job->app, &job->ask);
	end_trial(job);
	unqueue_job(job);
	LIST_REMOVE(job, hash);
	job->app->live[job->rank]--;
	kvr_cell_sub(&job->app->st.running, 1);
	app_body_drop(job->app, job->body);
	free(job->ask.head);
	free(job->ask.content);
	kvr_engine_answer_fini(&job->answer);
	free(job);
}

void app_job_mark_dirty(struct app_job *job)
{
	if (job->in == &job->app->heads)
		unqueue_job(job);
	if (job->in == NULL)
		enqueue_job(job, &job->app->dirty);
}

void app_job_hold_head(struct app_job *job)
{
	if (job->in != NULL)
		return;
	job->head_us = job->app->now_us;
	enqueue_job(job, &job->app->heads);
}

uint64_t app_heads_due_us(const struct app *app)
{
	const struct app_job *job = TAILQ_FIRST(&app->heads);

	return job != NULL ? job->head_us + HEAD_US : UINT64_MAX;
}

void app_job_set_error(struct app_job *job, const char *format, ...)
{
	va_list args;

	job->failed = true;
	if (job->words[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(job->words, sizeof(job->words), format, args);
	va_end(args);
}

/* ---- forwarding ---- */

/* Tokens of an answer that came as a whole are not reported, unless there is only one: the router
 * would take the end of the generation for the time of the first token. */
static uint32_t reported_tokens(const struct app_job *job)
{
	const uint32_t n = job->answer.usage.generated;

	return job->answer.stream || n <= 1 ? n : 0;
}

static struct kvr_agent_item item_of(const struct app_job *job, const void *data, size_t len)
{
	return (struct kvr_agent_item){.data = data,
				       .len = (uint32_t)len,
				       .status = job->status,
				       .generated_tokens = reported_tokens(job),
				       .trace_link = job->link,
				       .trace_link_len = (uint32_t)strlen(job->link),
				       .cached_known = job->answer.usage.cached_known,
				       .cached_tokens = job->answer.usage.cached};
}

/* Judge the engine by the end of the answer. */
static enum kvr_engine_verdict judge_answer(const struct app_job *job)
{
	return job->failed ? kvr_engine_judge(job->status, job->answer.retry_after)
			   : kvr_engine_answer_judge(&job->answer);
}

static uint32_t verdict_flags(enum kvr_engine_verdict v)
{
	return v == KVR_ENGINE_FAILED	 ? KVR_AGENT_FAILED
	       : v == KVR_ENGINE_REFUSED ? KVR_AGENT_REFUSED
					 : 0;
}

/* Log the engine's message about a failure. */
static void log_failure(const struct app_job *job)
{
	char text[200] = "";

	kvr_engine_answer_error(&job->answer, text, sizeof(text));
	app_log(job->app,
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = job->app->o.engine, .reason = text),
		"the engine answered a request with an error: status %u%s", job->status,
		job->answer.stream && job->answer.usage.events == 0 ? ", empty stream" : "");
}

static void count_end(struct app_job *job)
{
	const enum kvr_engine_verdict v = judge_answer(job);
	struct app_stats *st = &job->app->st;

	if (v == KVR_ENGINE_FAILED && !job->failed)
		log_failure(job);
	kvr_cell_add(&st->hidden_errors,
		     v == KVR_ENGINE_FAILED && !job->failed && job->status < 400);
	kvr_cell_add(&st->overloaded, v == KVR_ENGINE_REFUSED);

	if (job->failed)
		kvr_cell_add(&st->failed, 1);
	else
		kvr_cell_add(&st->answered, 1);
	if (job->status >= 500)
		kvr_cell_add(&st->status_5xx, 1);
	else if (job->status >= 400)
		kvr_cell_add(&st->status_4xx, 1);
	kvr_cell_add(&st->bad_events, job->answer.usage.bad_events);
}

/* Compress a result that exceeds a message. @param packed memory of the result, to be freed, or
 * NULL. */
static void pack_result(struct app_job *job, struct kvr_agent_item *item, char **packed)
{
	int64_t n = 0;

	if (item->len > AGENT_RESULT_MOST) {
		*packed = malloc(AGENT_RESULT_MOST);
		n = *packed == NULL
			    ? -ENOMEM
			    : agent_result_pack(item->data, item->len, *packed, AGENT_RESULT_MOST);
	}
	if (n > 0) {
		item->data = *packed;
		item->len = (uint32_t)n;
	}
	if (n >= 0)
		return;
	kvr_cell_add(&job->app->st.results_large, 1);
	app_log(job->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"prefill: a transfer result of %u bytes does not fit a message, even compressed",
		item->len);
	app_job_set_error(job, "the transfer result has %u bytes; the limit of a message is %u",
			  item->len, AGENT_RESULT_MOST);
	item->status = 413;
}

/* Respond to a prefill leg: its only item is the transfer result. */
static int respond_prefill(struct app_job *job)
{
	struct kvr_json_value result = {0}, details;
	struct kvr_agent_item item;
	char *packed = NULL;
	const char *whole;
	const size_t len = kvr_engine_answer_whole(&job->answer, &whole);
	int rc;

	kvr_engine_count_answer(&job->answer.usage, whole, len, &result);
	item = item_of(job, result.p, result.len);
	item.flags = KVR_AGENT_LAST;
	if (kvr_engine_find_prompt_details(whole, len, &details) && details.len <= 512) {
		item.prompt_details = details.p;
		item.prompt_details_len = (uint32_t)details.len;
	}
	if (!job->failed && job->status >= 400) {
		app_log(job->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"prefill: the engine answered with status %u: %.*s", job->status,
			(int)(len < 200 ? len : 200), whole);
		kvr_engine_error_text(whole, len, job->words, sizeof(job->words));
		job->failed = true;
	} else if (!job->failed && !job->bootstrap && result.len == 0) {
		app_log(job->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"prefill: the engine's answer has no kv_transfer_params; it needs a KV connector (--kv-transfer-config)");
		app_job_set_error(job, "the engine's answer has no kv_transfer_params");
		item.status = 502;
		job->status = 502;
	} else if (!job->failed && !job->bootstrap) {
		pack_result(job, &item, &packed);
	}
	if (job->bootstrap) {
		item.data = NULL;
		item.len = 0;
	}
	if (job->failed) {
		item.flags |= KVR_AGENT_ERROR | verdict_flags(judge_answer(job));
		item.data = job->words;
		item.len = (uint32_t)strlen(job->words);
	}
	rc = kvr_agent_respond(job->app->agent, job->handle, &item);
	free(packed);
	return rc;
}

/* End a request with an error, because its item cannot be sent. */
static void end_badly(struct app_job *job, int rc)
{
	struct kvr_agent_item item = {.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR,
				      .status = rc == -EMSGSIZE ? 413 : 500,
				      .data = job->words,
				      .generated_tokens = job->answer.usage.generated};

	app_log(job->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"request %" PRIx64 ": an item was rejected: %s%s", job->handle, strerror(-rc),
		rc == -EMSGSIZE ? ": the transfer result is too large" : "");
	if (rc == -EMSGSIZE)
		kvr_cell_add(&job->app->st.results_large, 1);
	app_job_set_error(job, "the agent cannot send the engine's answer: %s", strerror(-rc));
	item.len = (uint32_t)strlen(job->words);
	if (rc != -ENOENT)
		kvr_agent_respond(job->app->agent, job->handle, &item);
}

/* All data were forwarded: send the failure. */
static int respond_failure(struct app_job *job)
{
	struct kvr_agent_item item = item_of(job, job->words, strlen(job->words));

	item.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR | verdict_flags(judge_answer(job));
	return kvr_agent_respond(job->app->agent, job->handle, &item);
}

/* Return true if tokens of a folded answer are to be reported without data: the first ones, and
 * then each output block. The client gets all data at the end. */
static bool has_progress(const struct app_job *job)
{
	const uint32_t n = job->answer.usage.generated, block = job->app->block_size;

	return job->answer.fold != NULL && n > 0 &&
	       (job->reported == 0 || n / block > job->reported / block);
}

/* Forward one item of the data that are ready. @return as respond_job(), or 1: more is ready. */
static int respond_item(struct app_job *job)
{
	struct kvr_agent_item item;
	const char *data;
	const size_t ready = kvr_engine_answer_ready(&job->answer, &data);
	const size_t n = ready < ITEM_MOST ? ready : ITEM_MOST;
	int rc;

	if (ready == 0 && !job->over && !has_progress(job))
		return 0;
	if (ready == 0 && job->over && job->failed)
		return respond_failure(job);
	item = item_of(job, data, n);
	if (job->over && !job->failed && n == ready)
		item.flags = KVR_AGENT_LAST | verdict_flags(judge_answer(job));
	if (ready == 0 && !job->over)
		item.status = 0; /* the head was not forwarded */
	rc = kvr_agent_respond(job->app->agent, job->handle, &item);
	if (rc < 0)
		return rc;
	job->reported = item.generated_tokens;
	kvr_engine_answer_take(&job->answer, n);
	return n < ready || (job->over && job->failed);
}

/* Forward received data. @return 0: all forwarded; -ENOBUFS: later; other errors: the request
 * ended. */
static int respond_job(struct app_job *job)
{
	int rc;

	if (job->prefill)
		return job->over ? respond_prefill(job) : 0;
	do
		rc = respond_item(job);
	while (rc > 0);
	return rc;
}

static void flush_job(struct app *app, struct app_job *job)
{
	const int rc = respond_job(job);

	unqueue_job(job);
	if (rc == -ENOBUFS) {
		enqueue_job(job, &app->blocked);
		return;
	}
	if (job->over || rc < 0) {
		if (rc < 0)
			end_badly(job, rc);
		count_end(job);
		app_job_release(job);
		return;
	}
	app_engine_resume(app, &job->ask);
}

void app_jobs_flush(struct app *app)
{
	struct app_jobs now;
	struct app_job *job;

	while (app_heads_due_us(app) <= app->now_us)
		app_job_mark_dirty(TAILQ_FIRST(&app->heads));
	/* Each blocked and each dirty job gets one attempt per turn; jobs added meanwhile wait. */
	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &app->blocked, queue);
	TAILQ_FOREACH (job, &now, queue)
		job->in = &app->dirty;
	TAILQ_CONCAT(&now, &app->dirty, queue);
	TAILQ_CONCAT(&app->dirty, &now, queue);
	for (struct app_job *last = TAILQ_LAST(&app->dirty, app_jobs); last != NULL;) {
		job = TAILQ_FIRST(&app->dirty);
		const bool end = job == last;

		flush_job(app, job);
		if (end)
			break;
	}
}

static const char *fold_error(int rc)
{
	switch (rc) {
	case -ENODATA:
		return "the stream is empty";
	case -EPIPE:
		return "the stream ends before the answer does";
	case -EBADMSG:
		return "the stream has an invalid event";
	case -EMSGSIZE:
	case -E2BIG:
		return "the answer is too large to be folded";
	default:
		return strerror(-rc);
	}
}

/* The engine has sent the whole answer. */
static void finish_answer(struct app_job *job)
{
	const int rc = kvr_engine_answer_finish(&job->answer);

	if (job->answer.usage.running_costs && job->app->o.type == AGENT_VLLM)
		job->app->running_costs = true;
	job->status = job->answer.status;
	if (rc == 0)
		return;
	app_job_set_error(job, "the engine failed: %s", fold_error(rc));
	job->status = 502;
	app_log(job->app,
		KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = job->app->o.engine,
			      .reason = fold_error(rc)),
		"a request failed at the engine");
}

void app_job_ended(void *arg, enum app_end how, const char *why)
{
	struct app_job *job = arg;
	struct app *app = job->app;

	job->over = true;
	if (how == APP_END_WELL) {
		finish_answer(job);
	} else {
		kvr_engine_answer_stop(&job->answer);
		app_job_set_error(job, "the engine failed: %s", why);
		job->status = how == APP_END_LATE && job->status == 0 ? 504 : 502;
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine, .reason = why),
			"a request failed at the engine");
	}
	app_job_mark_dirty(job);
}

/* ---- trials ---- */

void app_job_start_trial(struct app_job *job)
{
	struct app *app = job->app;

	if (app->trials_failed ==
	    TRIALS) { /* it may only be slow: one request gets the full time */
		app->trials_failed = 0;
		return;
	}
	job->trial_us = app->now_us + (TRIAL_US << app->trials_failed);
	TAILQ_INSERT_TAIL(&app->trials, job, trial);
}

void app_trials_turn(struct app *app)
{
	struct app_job *job, *next;

	for (job = TAILQ_FIRST(&app->trials); job != NULL; job = next) {
		next = TAILQ_NEXT(job, trial);
		if (job->answer.content || job->over) {
			app->trials_failed = 0;
			end_trial(job);
		} else if (job->trial_us <= app->now_us) {
			app->trials_failed++;
			end_trial(job);
			app_engine_drop(app, &job->ask);
			job->status = 0;
			app_job_ended(job, APP_END_LATE,
				      "its rank is on trial and sent nothing in time");
		}
	}
}

uint64_t app_trials_due_us(const struct app *app)
{
	const struct app_job *job;
	uint64_t due = UINT64_MAX;

	TAILQ_FOREACH (job, &app->trials, trial)
		due = job->trial_us < due ? job->trial_us : due;
	return due;
}

void app_job_abort(struct app *app, uint64_t handle)
{
	struct app_job *job = find_job(app, handle);

	if (job == NULL)
		return;
	kvr_cell_add(&app->st.aborted, 1);
	app_job_release(job);
}
