/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages that describe the engine, read before registration, and the options derived from them. */
#include "app.h"
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MOST 3u /* rounds with an unanswered page before it is skipped */

/* ---- pages ---- */

static void ask_page(struct app *app)
{
	struct app_describe *describe = &app->describe;

	agent_hang_probed(&app->hang, app->now_us);
	describe->kind = APP_PAGE;
	if (describe->easy == NULL)
		describe->easy = curl_easy_init();
	if (describe->easy == NULL)
		return;
	app_http_get(app, describe->easy, agent_pages[describe->page], &describe->body,
		     &describe->kind, APP_PROBE_MS);
	describe->busy = curl_multi_add_handle(app->multi, describe->easy) == CURLM_OK;
}

/* Only SGLang has the old page, if it lacks the new one. Only vLLM has the page of event
 * sources. */
static bool is_wanted(const struct app *app, enum agent_page page, bool found)
{
	if (page == AGENT_PAGE_SERVER_OLD)
		return !found && app->facts.kind == AGENT_SGLANG;
	return page != AGENT_PAGE_SOURCES || app->facts.kind != AGENT_SGLANG;
}

/* Request the next page. @return false: there is none. */
static bool ask_next(struct app *app, bool found)
{
	struct app_describe *describe = &app->describe;

	do
		describe->page++;
	while (describe->page < AGENT_PAGE_METRICS && !is_wanted(app, describe->page, found));
	if (describe->page < AGENT_PAGE_METRICS) {
		ask_page(app);
		return true;
	}
	free(describe->body.p);
	describe->body = (struct app_page){0};
	return false;
}

void app_describe_begin(struct app *app)
{
	agent_facts_clear(&app->facts, (enum agent_engine)app->given.type);
	app->describe.page = AGENT_PAGE_MODELS;
	ask_page(app);
}

/* ---- answers ---- */

static void log_page_failure(struct app *app, const char *why)
{
	struct app_describe *describe = &app->describe;

	if (*why != '\0')
		kvr_cell_add(&app->st.pages_failed, 1);
	if (app_is_news(app, &describe->news[describe->page], why))
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine, .reason = why),
			"cannot read %s of the engine; its values remain unknown",
			agent_pages[describe->page]);
}

static void log_bad_value(struct app *app)
{
	const struct agent_row *r = &agent_rows[app->facts.bad_row - 1];

	kvr_cell_add(&app->st.facts_bad, app->facts.bad);
	if (app_is_news(app, &app->describe.news[AGENT_PAGE_METRICS], r->where))
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine,
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

bool app_describe_ended(struct app *app, CURLcode result)
{
	struct app_describe *describe = &app->describe;
	char why[96] = "";
	long status = 0;

	curl_easy_getinfo(describe->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0)
		agent_hang_received(&app->hang, app->now_us);
	if (result != CURLE_OK)
		app_curl_error(app, describe->easy, result, why, sizeof(why));
	else if (status != 200 && !is_absent(status))
		snprintf(why, sizeof(why), "status %ld", status);
	else if (status == 200 && agent_facts_read(&app->facts, describe->page, describe->body.p,
						   describe->body.len) < 0)
		snprintf(why, sizeof(why), "not a JSON object");
	curl_multi_remove_handle(app->multi, describe->easy);
	describe->busy = false;
	log_page_failure(app, why);
	if (result == CURLE_OK || result == CURLE_WRITE_ERROR)
		return !ask_next(app, status == 200);
	/* An engine that did not answer is asked again after the next /health. */
	describe->attempts++;
	return describe->attempts >= ATTEMPTS_MOST && !ask_next(app, false);
}

void app_describe_forget(struct app *app)
{
	struct app_describe *describe = &app->describe;

	if (describe->busy)
		curl_multi_remove_handle(app->multi, describe->easy);
	describe->busy = false;
	describe->attempts = 0;
}

void app_describe_fini(struct app *app)
{
	if (app->describe.easy != NULL)
		curl_easy_cleanup(app->describe.easy);
	free(app->describe.body.p);
}

/* ---- options ---- */

static void log_missing(struct app *app, enum agent_value value, const char *option,
			const char *effect)
{
	const char *flag = agent_flag_of((enum agent_engine)app->o.type, value);

	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.engine),
		"unknown: %s; %s%sgive %s", effect, flag != NULL ? flag : "",
		flag != NULL ? ", or " : "", option);
}

/* Log unknown values and the flags that provide them, once per incarnation of the engine. */
static void log_all_missing(struct app *app)
{
	if (app->facts.kind == AGENT_AUTO && app->given.type == AGENT_AUTO)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.engine),
			"unknown: the kind of the engine, vLLM is assumed; give --type");
	if (app->o.events[0] == '\0' && strcmp(app->given.events, AGENT_AS_REPORTED) == 0)
		log_missing(
			app, AGENT_V_EVENTS, "--events",
			"the endpoint of KV events, so the router knows no block of this engine");
	else if (app->o.events[0] != '\0' && app->o.replay[0] == '\0' &&
		 strcmp(app->given.replay, AGENT_AS_REPORTED) == 0)
		log_missing(
			app, AGENT_V_REPLAY, "--replay",
			"the replay endpoint, so a lost event empties the rank's cache at the router");
	if (app->o.max_num_batched_tokens == 0)
		log_missing(
			app, AGENT_V_BATCH, "--max-num-batched-tokens",
			"the batch budget, so router_queue_threshold, the busy fractions and conditional disaggregation have no effect");
}

/* Ignore endpoints that lead to this agent. */
static void drop_own_endpoints(struct app *app)
{
	struct {
		char *text;
		const char *option;
	} const list[] = {{app->o.events, "--events"}, {app->o.replay, "--replay"}};

	for (unsigned int i = 0; i < 2; i++) {
		if (app->body_addr[0] == '\0' ||
		    !agent_endpoint_is(list[i].text, app->body_addr, app->facing))
			continue;
		kvr_cell_add(&app->st.facts_bad, 1);
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = list[i].text,
				      .reason = "it is the address of --bodies"),
			"ignoring an endpoint of the engine; correct its port at the engine, or give %s",
			list[i].option);
		list[i].text[0] = '\0';
	}
	if (app->o.events[0] == '\0')
		app->o.replay[0] = '\0';
}

static bool reject_engine(struct app *app, const char *why)
{
	if (app_is_news(app, &app->start, why))
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine),
			"the worker cannot be registered: %s", why);
	return false;
}

bool app_describe_apply(struct app *app)
{
	char line[480];

	agent_facts_metrics(&app->facts, &app->prom);
	agent_facts_apply(&app->facts, &app->given, &app->o);
	if (app->facts.bad > 0)
		log_bad_value(app);
	app->describe.attempts = 0;
	app->block_size = app->o.block_size;
	if (app->block_size == 0)
		return reject_engine(
			app,
			app->prom.kind != AGENT_AUTO && (int)app->prom.kind != app->o.type
				? "the engine is of another kind than --type"
				: "the engine does not report its block size: give --block-size, as the pool has it");
	if (app->o.type == AGENT_SGLANG && app->o.role == 1 && app->o.bootstrap[0] == '\0')
		return reject_engine(
			app,
			"--role prefill of SGLang needs --bootstrap HOST:PORT, where the engine waits for decode engines");
	if (app->o.first_rank + app->o.ranks > 65536)
		return reject_engine(app, "--first-rank + ranks must stay at or below 65536");
	drop_own_endpoints(app);
	app->blocks = agent_facts_blocks(&app->facts, app->block_size);
	app->described = app->prom;
	app->running_costs = false;
	agent_facts_line(&app->facts, &app->given, line, sizeof(line));
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = app->o.engine), "the engine: %s",
		line);
	log_all_missing(app);
	return true;
}
