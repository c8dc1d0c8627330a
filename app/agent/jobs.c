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
#include <strings.h>

#include "job.h"
#include "result_pack.h"

#define TRIAL_US  UINT64_C(2000000) /* doubles with each consecutive failure ... */
#define TRIALS	  4u		    /* ... and there is no limit after this number */
#define BUCKETS	  4096u
#define HOLD_MOST 16384u /* bytes of a stream whose first event is incomplete or an error */
#define HEAD_US	  1000u	 /* wait for content: an engine with a token sends both almost at once */

struct app_bucket *app_job_bucket(struct app *a, uint64_t handle)
{
	return &a->buckets[(handle * UINT64_C(0x9e3779b97f4a7c15)) >> 52];
}

static struct app_job *find_job(struct app *a, uint64_t handle)
{
	struct app_job *j;

	LIST_FOREACH (j, app_job_bucket(a, handle), hash)
		if (j->handle == handle)
			return j;
	return NULL;
}

uint32_t app_jobs_running(const struct app *a)
{
	return (uint32_t)kvr_cell_get(&a->st.running);
}

static void enqueue_job(struct app_job *j, struct app_jobs *in)
{
	TAILQ_INSERT_TAIL(in, j, queue);
	j->in = in;
}

static void unqueue_job(struct app_job *j)
{
	if (j->in != NULL)
		TAILQ_REMOVE(j->in, j, queue);
	j->in = NULL;
}

static void end_trial(struct app_job *j)
{
	if (j->trial_us != 0)
		TAILQ_REMOVE(&j->app->trials, j, trial);
	j->trial_us = 0;
}

void app_job_release(struct app_job *j)
{
	app_engine_drop(j->app, &j->ask);
	end_trial(j);
	unqueue_job(j);
	LIST_REMOVE(j, hash);
	j->app->live[j->rank]--;
	kvr_cell_sub(&j->app->st.running, 1);
	app_body_drop(j->app, j->body);
	free(j->ask.head);
	free(j->ask.content);
	free(j->out);
	free(j->whole);
	free(j->sse_buf);
	free(j);
}

void app_job_mark_dirty(struct app_job *j)
{
	if (j->in == &j->app->heads)
		unqueue_job(j);
	if (j->in == NULL)
		enqueue_job(j, &j->app->dirty);
}

void app_job_hold_head(struct app_job *j)
{
	if (j->in != NULL)
		return;
	j->head_us = j->app->now_us;
	enqueue_job(j, &j->app->heads);
}

uint64_t app_heads_due_us(const struct app *a)
{
	const struct app_job *j = TAILQ_FIRST(&a->heads);

	return j != NULL ? j->head_us + HEAD_US : UINT64_MAX;
}

void app_job_set_error(struct app_job *j, const char *format, ...)
{
	va_list args;

	j->failed = true;
	if (j->words[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(j->words, sizeof(j->words), format, args);
	va_end(args);
}

/* ---- forwarding ---- */

static struct kvr_agent_item item_of(const struct app_job *j, const void *data, size_t len)
{
	return (struct kvr_agent_item){.data = data,
				       .len = (uint32_t)len,
				       .status = j->status,
				       .generated_tokens = j->usage.generated,
				       .trace_link = j->link,
				       .trace_link_len = (uint32_t)strlen(j->link),
				       .cached_known = j->usage.cached_known,
				       .cached_tokens = j->usage.cached};
}

/* Judge the engine by the end of the answer. */
static enum agent_verdict judge_answer(const struct app_job *j)
{
	const bool fine = !j->failed && j->status < 400;

	if (fine && j->stream && j->usage.events == 0)
		return AGENT_FAILED; /* an empty stream is a failure */
	return agent_judge(fine ? j->usage.error : j->status, j->retry_after);
}

static uint32_t verdict_flags(enum agent_verdict v)
{
	return v == AGENT_FAILED ? KVR_AGENT_FAILED : v == AGENT_REFUSED ? KVR_AGENT_REFUSED : 0;
}

/* Log the engine's message about a failure. */
static void log_failure(const struct app_job *j)
{
	char text[200] = "";

	agent_error_text(j->whole != NULL ? j->whole : "", j->whole_len, text, sizeof(text));
	app_log(j->app,
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = j->app->o.engine, .reason = text),
		"the engine answered a request with an error: status %u%s", j->status,
		j->stream && j->usage.events == 0 ? ", empty stream" : "");
}

static void count_end(struct app_job *j)
{
	const enum agent_verdict v = judge_answer(j);
	struct app_stats *st = &j->app->st;

	if (v == AGENT_FAILED && !j->failed)
		log_failure(j);
	kvr_cell_add(&st->hidden_errors, v == AGENT_FAILED && !j->failed && j->status < 400);
	kvr_cell_add(&st->overloaded, v == AGENT_REFUSED);

	if (j->failed)
		kvr_cell_add(&st->failed, 1);
	else
		kvr_cell_add(&st->answered, 1);
	if (j->status >= 500)
		kvr_cell_add(&st->status_5xx, 1);
	else if (j->status >= 400)
		kvr_cell_add(&st->status_4xx, 1);
	kvr_cell_add(&st->bad_events, j->usage.bad_events);
}

/* Compress a result that exceeds a message. @param packed memory of the result, to be freed, or
 * NULL. */
static void pack_result(struct app_job *j, struct kvr_agent_item *item, char **packed)
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
	kvr_cell_add(&j->app->st.results_large, 1);
	app_log(j->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"prefill: a transfer result of %u bytes does not fit a message, even compressed",
		item->len);
	app_job_set_error(j, "the transfer result has %u bytes; the limit of a message is %u",
			  item->len, AGENT_RESULT_MOST);
	item->status = 413;
}

/* Respond to a prefill leg: its only item is the transfer result. */
static int respond_prefill(struct app_job *j)
{
	struct kvr_json_value result = {0}, details;
	struct kvr_agent_item item;
	char *packed = NULL;
	int rc;

	agent_usage_whole(&j->usage, j->whole != NULL ? j->whole : "", j->whole_len, &result);
	item = item_of(j, result.p, result.len);
	item.flags = KVR_AGENT_LAST;
	if (agent_prompt_details(j->whole != NULL ? j->whole : "", j->whole_len, &details) &&
	    details.len <= 512) {
		item.prompt_details = details.p;
		item.prompt_details_len = (uint32_t)details.len;
	}
	if (!j->failed && j->status >= 400) {
		app_log(j->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"prefill: the engine answered with status %u: %.*s", j->status,
			(int)(j->whole_len < 200 ? j->whole_len : 200), j->whole);
		agent_error_text(j->whole != NULL ? j->whole : "", j->whole_len, j->words,
				 sizeof(j->words));
		j->failed = true;
	} else if (!j->failed && !j->bootstrap && result.len == 0) {
		app_log(j->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"prefill: the engine's answer has no kv_transfer_params; it needs a KV connector (--kv-transfer-config)");
		app_job_set_error(j, "the engine's answer has no kv_transfer_params");
		item.status = 502;
		j->status = 502;
	} else if (!j->failed && !j->bootstrap) {
		pack_result(j, &item, &packed);
	}
	if (j->bootstrap) {
		item.data = NULL;
		item.len = 0;
	}
	if (j->failed) {
		item.flags |= KVR_AGENT_ERROR | verdict_flags(judge_answer(j));
		item.data = j->words;
		item.len = (uint32_t)strlen(j->words);
	}
	rc = kvr_agent_respond(j->app->agent, j->handle, &item);
	free(packed);
	return rc;
}

/* End a request with an error, because its item cannot be sent. */
static void end_badly(struct app_job *j, int rc)
{
	struct kvr_agent_item item = {.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR,
				      .status = rc == -EMSGSIZE ? 413 : 500,
				      .data = j->words,
				      .generated_tokens = j->usage.generated};

	app_log(j->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"request %" PRIx64 ": an item was rejected: %s%s", j->handle, strerror(-rc),
		rc == -EMSGSIZE ? ": the transfer result is too large" : "");
	if (rc == -EMSGSIZE)
		kvr_cell_add(&j->app->st.results_large, 1);
	app_job_set_error(j, "the agent cannot send the engine's answer: %s", strerror(-rc));
	item.len = (uint32_t)strlen(j->words);
	if (rc != -ENOENT)
		kvr_agent_respond(j->app->agent, j->handle, &item);
}

/* All data were forwarded: send the failure. */
static int respond_failure(struct app_job *j)
{
	struct kvr_agent_item item = item_of(j, j->words, strlen(j->words));

	item.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR | verdict_flags(judge_answer(j));
	return kvr_agent_respond(j->app->agent, j->handle, &item);
}

/* Return true if a stream is held back: until its first event is complete, and to its end if that
 * event is an error, because a client without data can retry elsewhere. The limit ensures that
 * reading continues. */
static bool is_held_back(const struct app_job *j)
{
	return j->stream && !j->begun && !j->over && j->content && j->len <= HOLD_MOST &&
	       (j->usage.events == 0 || j->usage.error != 0);
}

/* Forward received data. @return 0: all forwarded; -ENOBUFS: later; other errors: the request
 * ended. */
static int respond_item(struct app_job *j)
{
	struct kvr_agent_item item;
	int rc;

	if (j->prefill)
		return j->over ? respond_prefill(j) : 0;
	if (j->over && !j->stream && j->whole_len > 0)
		agent_usage_whole(&j->usage, j->whole, j->whole_len, NULL);
	if ((j->len == 0 && !j->over) || is_held_back(j))
		return 0;
	if (j->over && j->failed && j->len == 0)
		return respond_failure(j);
	item = item_of(j, j->out, j->len);
	if (j->over && !j->failed)
		item.flags = KVR_AGENT_LAST | verdict_flags(judge_answer(j));
	rc = kvr_agent_respond(j->app->agent, j->handle, &item);
	if (rc < 0)
		return rc;
	j->len = 0;
	j->begun |= j->content;
	return j->over && j->failed ? respond_failure(j) : 0;
}

static void flush_job(struct app *a, struct app_job *j)
{
	const int rc = respond_item(j);

	unqueue_job(j);
	if (rc == -ENOBUFS) {
		enqueue_job(j, &a->blocked);
		return;
	}
	if (j->over || rc < 0) {
		if (rc < 0)
			end_badly(j, rc);
		count_end(j);
		app_job_release(j);
		return;
	}
	app_engine_resume(a, &j->ask);
}

void app_jobs_flush(struct app *a)
{
	struct app_jobs now;
	struct app_job *j;

	while (app_heads_due_us(a) <= a->now_us)
		app_job_mark_dirty(TAILQ_FIRST(&a->heads));
	/* Each blocked and each dirty job gets one attempt per turn; jobs added meanwhile wait. */
	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &a->blocked, queue);
	TAILQ_FOREACH (j, &now, queue)
		j->in = &a->dirty;
	TAILQ_CONCAT(&now, &a->dirty, queue);
	TAILQ_CONCAT(&a->dirty, &now, queue);
	for (struct app_job *last = TAILQ_LAST(&a->dirty, app_jobs); last != NULL;) {
		j = TAILQ_FIRST(&a->dirty);
		const bool end = j == last;

		flush_job(a, j);
		if (end)
			break;
	}
}

void app_job_ended(void *job, enum app_end how, const char *why)
{
	struct app_job *j = job;
	struct app *a = j->app;

	j->over = true;
	if (how != APP_END_WELL) {
		app_job_set_error(j, "the engine failed: %s", why);
		j->status = how == APP_END_LATE && j->status == 0 ? 504 : 502;
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine, .reason = why),
			"a request failed at the engine");
	}
	app_job_mark_dirty(j);
}

/* ---- trials ---- */

void app_job_start_trial(struct app_job *j)
{
	struct app *a = j->app;

	if (a->trials_failed == TRIALS) { /* it may only be slow: one request gets the full time */
		a->trials_failed = 0;
		return;
	}
	j->trial_us = a->now_us + (TRIAL_US << a->trials_failed);
	TAILQ_INSERT_TAIL(&a->trials, j, trial);
}

void app_trials_turn(struct app *a)
{
	struct app_job *j, *next;

	for (j = TAILQ_FIRST(&a->trials); j != NULL; j = next) {
		next = TAILQ_NEXT(j, trial);
		if (j->content || j->over) {
			a->trials_failed = 0;
			end_trial(j);
		} else if (j->trial_us <= a->now_us) {
			a->trials_failed++;
			end_trial(j);
			app_engine_drop(a, &j->ask);
			j->status = 0;
			app_job_ended(j, APP_END_LATE,
				      "its rank is on trial and sent nothing in time");
		}
	}
}

uint64_t app_trials_due_us(const struct app *a)
{
	const struct app_job *j;
	uint64_t due = UINT64_MAX;

	TAILQ_FOREACH (j, &a->trials, trial)
		due = j->trial_us < due ? j->trial_us : due;
	return due;
}

void app_job_abort(struct app *a, uint64_t handle)
{
	struct app_job *j = find_job(a, handle);

	if (j == NULL)
		return;
	kvr_cell_add(&a->st.aborted, 1);
	app_job_release(j);
}
