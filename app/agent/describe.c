/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages that describe the engine, read before registration, and the options derived from them. */
#include "app.h"
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MOST 3u /* rounds with an unanswered page before it is skipped */

/* ---- pages ---- */

static void ask_page(struct app *a)
{
	struct app_describe *d = &a->describe;

	agent_hang_probed(&a->hang, a->now_us);
	d->kind = APP_PAGE;
	if (d->easy == NULL)
		d->easy = curl_easy_init();
	if (d->easy == NULL)
		return;
	app_http_get(a, d->easy, agent_pages[d->page], &d->body, &d->kind, APP_PROBE_MS);
	d->busy = curl_multi_add_handle(a->multi, d->easy) == CURLM_OK;
}

/* Only SGLang has the old page, if it lacks the new one. Only vLLM has the page of event
 * sources. */
static bool is_wanted(const struct app *a, enum agent_page page, bool found)
{
	if (page == AGENT_PAGE_SERVER_OLD)
		return !found && a->facts.kind == AGENT_SGLANG;
	return page != AGENT_PAGE_SOURCES || a->facts.kind != AGENT_SGLANG;
}

/* Request the next page. @return false: there is none. */
static bool ask_next(struct app *a, bool found)
{
	struct app_describe *d = &a->describe;

	do
		d->page++;
	while (d->page < AGENT_PAGE_METRICS && !is_wanted(a, d->page, found));
	if (d->page < AGENT_PAGE_METRICS) {
		ask_page(a);
		return true;
	}
	free(d->body.p);
	d->body = (struct app_page){0};
	return false;
}

void app_describe_begin(struct app *a)
{
	agent_facts_clear(&a->facts, (enum agent_engine)a->given.type);
	a->describe.page = AGENT_PAGE_MODELS;
	ask_page(a);
}

/* ---- answers ---- */

static void log_page_failure(struct app *a, const char *why)
{
	struct app_describe *d = &a->describe;

	if (*why != '\0')
		kvr_cell_add(&a->st.pages_failed, 1);
	if (app_is_news(a, &d->news[d->page], why))
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine, .reason = why),
			"cannot read %s of the engine; its values remain unknown",
			agent_pages[d->page]);
}

static void log_bad_value(struct app *a)
{
	const struct agent_row *r = &agent_rows[a->facts.bad_row - 1];

	kvr_cell_add(&a->st.facts_bad, a->facts.bad);
	if (app_is_news(a, &a->describe.news[AGENT_PAGE_METRICS], r->where))
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine,
				      .reason = "out of range, or of the wrong type"),
			"%s of the engine: the value at \"%s\"%s%s is ignored",
			agent_pages[r->page], r->where, r->inside != NULL ? ", " : "",
			r->inside != NULL ? r->inside : "");
}

/* 404, 405 and 501: the engine has another kind or version. */
static bool is_absent(long status)
{
	return status == 404 || status == 405 || status == 501;
}

bool app_describe_ended(struct app *a, CURLcode result)
{
	struct app_describe *d = &a->describe;
	char why[96] = "";
	long status = 0;

	curl_easy_getinfo(d->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0)
		agent_hang_received(&a->hang, a->now_us);
	if (result != CURLE_OK)
		app_curl_error(a, d->easy, result, why, sizeof(why));
	else if (status != 200 && !is_absent(status))
		snprintf(why, sizeof(why), "status %ld", status);
	else if (status == 200 && agent_facts_read(&a->facts, d->page, d->body.p, d->body.len) < 0)
		snprintf(why, sizeof(why), "not a JSON object");
	curl_multi_remove_handle(a->multi, d->easy);
	d->busy = false;
	log_page_failure(a, why);
	if (result == CURLE_OK || result == CURLE_WRITE_ERROR)
		return !ask_next(a, status == 200);
	/* An engine that did not answer is asked again after the next /health. */
	d->attempts++;
	return d->attempts >= ATTEMPTS_MOST && !ask_next(a, false);
}

void app_describe_forget(struct app *a)
{
	struct app_describe *d = &a->describe;

	if (d->busy)
		curl_multi_remove_handle(a->multi, d->easy);
	d->busy = false;
	d->attempts = 0;
}

void app_describe_fini(struct app *a)
{
	if (a->describe.easy != NULL)
		curl_easy_cleanup(a->describe.easy);
	free(a->describe.body.p);
}

/* ---- options ---- */

static void log_missing(struct app *a, enum agent_value value, const char *option,
			const char *effect)
{
	const char *flag = agent_flag_of((enum agent_engine)a->o.type, value);

	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.engine),
		"unknown: %s; %s%sgive %s", effect, flag != NULL ? flag : "",
		flag != NULL ? ", or " : "", option);
}

/* Log unknown values and the flags that provide them, once per incarnation of the engine. */
static void log_all_missing(struct app *a)
{
	if (a->facts.kind == AGENT_AUTO && a->given.type == AGENT_AUTO)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.engine),
			"unknown: the kind of the engine, vLLM is assumed; give --type");
	if (a->o.events[0] == '\0' && strcmp(a->given.events, AGENT_AS_REPORTED) == 0)
		log_missing(
			a, AGENT_V_EVENTS, "--events",
			"the endpoint of KV events, so the router knows no block of this engine");
	else if (a->o.events[0] != '\0' && a->o.replay[0] == '\0' &&
		 strcmp(a->given.replay, AGENT_AS_REPORTED) == 0)
		log_missing(
			a, AGENT_V_REPLAY, "--replay",
			"the replay endpoint, so a lost event empties the rank's cache at the router");
	if (a->o.max_num_batched_tokens == 0)
		log_missing(
			a, AGENT_V_BATCH, "--max-num-batched-tokens",
			"the batch budget, so router_queue_threshold, the busy fractions and conditional disaggregation have no effect");
}

/* Ignore endpoints that lead to this agent. */
static void drop_own_endpoints(struct app *a)
{
	struct {
		char *text;
		const char *option;
	} const list[] = {{a->o.events, "--events"}, {a->o.replay, "--replay"}};

	for (unsigned int i = 0; i < 2; i++) {
		if (a->body_addr[0] == '\0' ||
		    !agent_endpoint_is(list[i].text, a->body_addr, a->facing))
			continue;
		kvr_cell_add(&a->st.facts_bad, 1);
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = list[i].text,
				      .reason = "it is the address of --bodies"),
			"ignoring an endpoint of the engine; correct its port at the engine, or give %s",
			list[i].option);
		list[i].text[0] = '\0';
	}
	if (a->o.events[0] == '\0')
		a->o.replay[0] = '\0';
}

static bool reject_engine(struct app *a, const char *why)
{
	if (app_is_news(a, &a->start, why))
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine),
			"the worker cannot be registered: %s", why);
	return false;
}

bool app_describe_apply(struct app *a)
{
	char line[480];

	agent_facts_metrics(&a->facts, &a->prom);
	agent_facts_apply(&a->facts, &a->given, &a->o);
	if (a->facts.bad > 0)
		log_bad_value(a);
	a->describe.attempts = 0;
	a->block_size = a->o.block_size;
	if (a->block_size == 0)
		return reject_engine(
			a,
			a->prom.kind != AGENT_AUTO && (int)a->prom.kind != a->o.type
				? "the engine is of another kind than --type"
				: "the engine does not report its block size: give --block-size, as the pool has it");
	if (a->o.type == AGENT_SGLANG && a->o.role == 1 && a->o.bootstrap[0] == '\0')
		return reject_engine(
			a,
			"--role prefill of SGLang needs --bootstrap HOST:PORT, where the engine waits for decode engines");
	if (a->o.first_rank + a->o.ranks > 65536)
		return reject_engine(a, "--first-rank + ranks must stay at or below 65536");
	drop_own_endpoints(a);
	a->blocks = agent_facts_blocks(&a->facts, a->block_size);
	a->described = a->prom;
	agent_facts_line(&a->facts, &a->given, line, sizeof(line));
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.engine), "the engine: %s",
		line);
	log_all_missing(a);
	return true;
}
