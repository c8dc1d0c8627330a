/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The canary as a sequence of transfers: model name, token ids, completion, and then the expected
 * event.
 */
#include "canary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"
#include "kvr_json.h"

#define ASK_MS	10000L		  /* time limit of an answer */
#define WAIT_US UINT64_C(5000000) /* time limit of the event after the answer */
#define AGAIN_S 10u		  /* interval after a missed canary, if --canary-s is longer */
#define WORDS	32u		  /* initial words of the prompt; doubles until it has two blocks */
#define MOST	8192u		  /* maximum words */
#define IDS	65536u

enum step { IDLE, MODELS, TOKENIZE, COMPLETE, WAIT };

struct app_canary {
	enum app_transfer kind;
	enum step step;
	CURL *easy;
	struct curl_slist *fields;
	uint64_t due_us; /* of the next canary; WAIT: end of waiting */
	uint64_t number; /* of this canary: makes its prompt unique */
	uint32_t words;
	char model[256];
	char *text; /* the prompt, as JSON */
	char *body;
	struct app_page page;
	uint64_t sh[2];	  /* of the last block: over tokens, and over EAGLE windows */
	uint64_t late[2]; /* sh of the previous canary, which was missed */
	uint32_t blocks;
	uint32_t missed; /* consecutive */
	bool seen;
};

/* End this canary; @p why: it failed. */
static void end_canary(struct app *app, const char *why)
{
	struct app_canary *canary = app->canary;

	if (why != NULL) {
		kvr_cell_add(&app->st.canaries_failed, 1);
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "canary: %s", why);
	}
	canary->step = IDLE;
	canary->due_us = app->now_us + app->o.canary_s * UINT64_C(1000000);
	free(canary->text);
	canary->text = NULL;
}

static void start_transfer(struct app *app, enum step step, const char *path, char *body)
{
	struct app_canary *canary = app->canary;

	free(canary->body);
	canary->body = body;
	canary->step = step;
	if (canary->easy == NULL)
		canary->easy = curl_easy_init();
	if (canary->easy == NULL) {
		end_canary(app, "no memory");
		return;
	}
	app_http_get(app, canary->easy, path, &canary->page, &canary->kind, ASK_MS);
	if (body != NULL) {
		curl_easy_setopt(canary->easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(canary->easy, CURLOPT_HTTPHEADER, canary->fields);
	}
	if (curl_multi_add_handle(app->multi, canary->easy) != CURLM_OK)
		end_canary(app, "no memory");
}

/* Create the prompt. It starts with a unique number, so that no block was seen before: a known
 * first block would hide all later ones. */
static char *make_text(const struct app *app, uint32_t words)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	fprintf(out, "\"%" PRIu64 " %" PRIu64 " kvroute canary:", app->canary->number,
		app->o.worker);
	for (uint32_t i = 0; i < words; i++)
		fprintf(out, " word %u", i);
	fprintf(out, "\"");
	fclose(out);
	return text;
}

static char *make_body(const struct app_canary *canary, const char *more)
{
	char *body = NULL;
	size_t len;
	FILE *out = open_memstream(&body, &len);

	if (out == NULL)
		return NULL;
	fprintf(out, "{\"model\":%s,\"prompt\":%s%s}", canary->model, canary->text, more);
	fclose(out);
	return body;
}

static void request_tokens(struct app *app)
{
	struct app_canary *canary = app->canary;
	char *body;

	free(canary->text);
	canary->text = make_text(app, canary->words);
	body = canary->text != NULL ? make_body(canary, "") : NULL;
	if (body == NULL)
		end_canary(app, "no memory");
	else
		start_transfer(app, TOKENIZE, "/tokenize", body);
}

/* Read the name of the first model, as JSON. */
static bool read_model(struct app_canary *canary, const struct kvr_json_value *root)
{
	struct kvr_json_value list, name, first, id;
	struct kvr_json_iter it;

	if (!kvr_json_get(root, "data", &list) || list.type != KVR_JSON_ARRAY)
		return false;
	it = kvr_json_begin(&list);
	if (!kvr_json_next(&it, &name, &first) || !kvr_json_get(&first, "id", &id) ||
	    id.type != KVR_JSON_STRING || id.len >= sizeof(canary->model))
		return false;
	snprintf(canary->model, sizeof(canary->model), "%.*s", (int)id.len, id.p);
	return true;
}

/* Compute the hash of the last block in both forms; events show which one the engine uses. @return
 * the number of blocks; -1: no token ids. */
static int name_blocks(const struct app *app, const struct kvr_json_value *root, uint64_t last[2])
{
	struct kvr_hash_params how = {.seed = kvr_hash_seed("", 0, "", 0),
				      .block_size = app->block_size};
	struct kvr_json_value list, name, v;
	struct kvr_json_iter it;
	uint32_t n = 0, *ids;
	uint64_t id, *sh;
	int blocks = -1;

	if (!kvr_json_get(root, "tokens", &list) || list.type != KVR_JSON_ARRAY)
		return -1;
	ids = malloc(IDS * sizeof(*ids));
	sh = malloc((IDS / app->block_size + 1) * sizeof(*sh));
	it = kvr_json_begin(&list);
	while (ids != NULL && n < IDS && kvr_json_next(&it, &name, &v) &&
	       kvr_json_u64(&v, &id) == 0)
		ids[n++] = (uint32_t)id;
	for (uint32_t i = 2; ids != NULL && sh != NULL && i-- > 0;) {
		how.eagle = i == 1;
		blocks = kvr_hash_tokens(&how, ids, n, NULL, sh, IDS / app->block_size + 1);
		last[i] = blocks > 0 ? sh[blocks - 1] : 0;
	}
	free(ids);
	free(sh);
	return blocks;
}

static void on_tokens(struct app *app, const struct kvr_json_value *root)
{
	struct app_canary *canary = app->canary;
	const int blocks = name_blocks(app, root, canary->sh);
	char *body;

	if (blocks < 0) {
		end_canary(app, "/tokenize of the engine returned no tokens");
	} else if (blocks < 2 && canary->words < MOST) {
		canary->words *= 2;
		request_tokens(app);
	} else {
		canary->blocks = (uint32_t)blocks;
		canary->seen = false;
		body = make_body(canary, ",\"max_tokens\":1");
		if (body == NULL)
			end_canary(app, "no memory");
		else
			start_transfer(app, COMPLETE, "/v1/completions", body);
	}
}

/* Read the answer; ends the canary after a failure. @return true: parsed. */
static bool read_answer(struct app *app, CURLcode result, struct kvr_json_value *root)
{
	static const char *const paths[] = {
		[MODELS] = "/v1/models", [TOKENIZE] = "/tokenize", [COMPLETE] = "/v1/completions"};
	const struct app_canary *canary = app->canary;
	char reason[96], why[128];
	long status = 0;
	size_t at;

	curl_easy_getinfo(canary->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		app_curl_error(app, canary->easy, result, reason, sizeof(reason));
	else if (status != 200)
		snprintf(reason, sizeof(reason), "status %ld", status);
	else if (canary->page.p == NULL ||
		 kvr_json_parse(canary->page.p, canary->page.len, root, &at) != 0)
		snprintf(reason, sizeof(reason), "not JSON");
	else
		return true;
	snprintf(why, sizeof(why), "%s of the engine: %s", paths[canary->step], reason);
	end_canary(app, why);
	return false;
}

void app_canary_ended(struct app *app, CURLcode result)
{
	struct app_canary *canary = app->canary;
	struct kvr_json_value root;
	bool good;

	if (app->state != APP_SERVING) { /* engine and block size are unknown in this state */
		curl_multi_remove_handle(app->multi, canary->easy);
		end_canary(app, NULL);
		return;
	}
	good = read_answer(app, result, &root);
	curl_multi_remove_handle(app->multi, canary->easy);
	if (!good)
		return;
	if (canary->step == MODELS && !read_model(canary, &root)) {
		end_canary(app, "/v1/models of the engine lists no model");
	} else if (canary->step == MODELS) {
		request_tokens(app);
	} else if (canary->step == TOKENIZE) {
		on_tokens(app, &root);
	} else {
		canary->step = WAIT;
		canary->due_us = app->now_us + WAIT_US;
	}
}

void app_canary_begin(struct app *app)
{
	struct app_canary *canary = app->canary;

	if (canary == NULL)
		return;
	canary->missed = 0;
	kvr_agent_canaries_missed(app->agent, 0);
	if (canary->step == WAIT) /* it waits for an event of the previous incarnation */
		end_canary(app, NULL);
	canary->due_us = app->now_us;
}

void app_canary_stored(struct app *app, const uint64_t sh[], uint32_t n)
{
	struct app_canary *canary = app->canary;
	bool late = false;

	/* The common case: nothing is expected. */
	if (canary == NULL ||
	    (canary->missed == 0 && canary->step != COMPLETE && canary->step != WAIT))
		return;
	for (uint32_t i = 0; i < n; i++) {
		canary->seen |= sh[i] == canary->sh[0] || sh[i] == canary->sh[1];
		late |= sh[i] == canary->late[0] || sh[i] == canary->late[1];
	}
	if (canary->missed == 0 || !late)
		return;
	canary->missed = 0; /* the event was late */
	kvr_agent_canaries_missed(app->agent, 0);
}

/* Report to the router, where operators see it. */
static void report_result(struct app *app, bool fine)
{
	struct app_canary *canary = app->canary;

	kvr_cell_add(fine ? &app->st.canaries : &app->st.canaries_bad, 1);
	canary->missed = fine ? 0 : canary->missed + 1;
	memcpy(canary->late, canary->sh, sizeof(canary->late));
	kvr_agent_canaries_missed(app->agent, canary->missed);
	end_canary(app, NULL);
	if (!fine && app->o.canary_s > AGAIN_S)
		canary->due_us = app->now_us + AGAIN_S * UINT64_C(1000000);
}

/* One miss may be a busy engine; two are a fault. */
static void report_miss(struct app *app)
{
	const struct app_canary *canary = app->canary;

	if (canary->missed == 0)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
			"canary: no event named the %u blocks of a test prompt within %u s; sending another one",
			canary->blocks, (unsigned int)(WAIT_US / 1000000));
	else
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"canary: the engine's events do not name the %u blocks of %u tokens of a test prompt that /tokenize of the engine tokenized, so requests cannot match its cache. Compare block size, tokenizer and cache salt",
			canary->blocks, app->block_size);
	report_result(app, false);
}

/* Not for a worker that is unknown to the router or rejected. SGLang with disaggregation rejects
 * requests without a bootstrap room. */
static bool can_begin(const struct app *app)
{
	return app->canary->step == IDLE && app->o.events[0] != '\0' &&
	       (app->o.type != AGENT_SGLANG || app->o.role == 0) &&
	       kvr_agent_state_now(app->agent) != KVR_AGENT_OFFLINE;
}

void app_canary_turn(struct app *app)
{
	struct app_canary *canary = app->canary;

	if (canary == NULL || app->state != APP_SERVING)
		return;
	/* Events wait for the router, perhaps including the expected one. */
	if (canary->step == WAIT && kvr_cell_get(&app->st.events_wait) > 0)
		canary->due_us = app->now_us + WAIT_US;
	if (canary->step == WAIT && canary->seen) {
		report_result(app, true);
	} else if (canary->step == WAIT && app->now_us >= canary->due_us) {
		report_miss(app);
	} else if (can_begin(app) && app->now_us >= canary->due_us) {
		canary->number = app->now_us;
		start_transfer(app, MODELS, "/v1/models", NULL);
	}
}

uint64_t app_canary_due_us(const struct app *app)
{
	const struct app_canary *canary = app->canary;

	if (canary == NULL || app->state != APP_SERVING ||
	    (canary->step != WAIT && !can_begin(app)))
		return UINT64_MAX;
	return canary->step == WAIT && canary->seen ? app->now_us : canary->due_us;
}

int app_canary_start(struct app *app)
{
	if (app->o.canary_s == 0)
		return 0;
	app->canary = calloc(1, sizeof(*app->canary));
	if (app->canary == NULL)
		return -1;
	app->canary->kind = APP_CANARY;
	app->canary->words = WORDS;
	app->canary->fields = curl_slist_append(NULL, "content-type: application/json");
	return app->canary->fields != NULL ? 0 : -1;
}

void app_canary_stop(struct app *app)
{
	struct app_canary *canary = app->canary;

	if (canary == NULL)
		return;
	if (canary->easy != NULL) {
		curl_multi_remove_handle(app->multi, canary->easy);
		curl_easy_cleanup(canary->easy);
	}
	curl_slist_free_all(canary->fields);
	free(canary->text);
	free(canary->body);
	free(canary->page.p);
	free(canary);
	app->canary = NULL;
}
