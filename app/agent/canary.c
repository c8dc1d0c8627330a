/* SPDX-License-Identifier: BSD-3-Clause */
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
static void end_canary(struct app *a, const char *why)
{
	struct app_canary *c = a->canary;

	if (why != NULL) {
		kvr_cell_add(&a->st.canaries_failed, 1);
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "canary: %s", why);
	}
	c->step = IDLE;
	c->due_us = a->now_us + a->o.canary_s * UINT64_C(1000000);
	free(c->text);
	c->text = NULL;
}

static void start_transfer(struct app *a, enum step step, const char *path, char *body)
{
	struct app_canary *c = a->canary;

	free(c->body);
	c->body = body;
	c->step = step;
	if (c->easy == NULL)
		c->easy = curl_easy_init();
	if (c->easy == NULL) {
		end_canary(a, "no memory");
		return;
	}
	app_http_get(a, c->easy, path, &c->page, &c->kind, ASK_MS);
	if (body != NULL) {
		curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->fields);
	}
	if (curl_multi_add_handle(a->multi, c->easy) != CURLM_OK)
		end_canary(a, "no memory");
}

/* Create the prompt. It starts with a unique number, so that no block was seen before: a known
 * first block would hide all later ones. */
static char *make_text(const struct app *a, uint32_t words)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	fprintf(out, "\"%" PRIu64 " %" PRIu64 " kvroute canary:", a->canary->number, a->o.worker);
	for (uint32_t i = 0; i < words; i++)
		fprintf(out, " word %u", i);
	fprintf(out, "\"");
	fclose(out);
	return text;
}

static char *make_body(const struct app_canary *c, const char *more)
{
	char *body = NULL;
	size_t len;
	FILE *out = open_memstream(&body, &len);

	if (out == NULL)
		return NULL;
	fprintf(out, "{\"model\":%s,\"prompt\":%s%s}", c->model, c->text, more);
	fclose(out);
	return body;
}

static void request_tokens(struct app *a)
{
	struct app_canary *c = a->canary;
	char *body;

	free(c->text);
	c->text = make_text(a, c->words);
	body = c->text != NULL ? make_body(c, "") : NULL;
	if (body == NULL)
		end_canary(a, "no memory");
	else
		start_transfer(a, TOKENIZE, "/tokenize", body);
}

/* Read the name of the first model, as JSON. */
static bool read_model(struct app_canary *c, const struct kvr_json_value *root)
{
	struct kvr_json_value list, name, first, id;
	struct kvr_json_iter it;

	if (!kvr_json_get(root, "data", &list) || list.type != KVR_JSON_ARRAY)
		return false;
	it = kvr_json_begin(&list);
	if (!kvr_json_next(&it, &name, &first) || !kvr_json_get(&first, "id", &id) ||
	    id.type != KVR_JSON_STRING || id.len >= sizeof(c->model))
		return false;
	snprintf(c->model, sizeof(c->model), "%.*s", (int)id.len, id.p);
	return true;
}

/* Compute the hash of the last block in both forms; events show which one the engine uses. @return
 * the number of blocks; -1: no token ids. */
static int name_blocks(const struct app *a, const struct kvr_json_value *root, uint64_t last[2])
{
	struct kvr_hash_params how = {.seed = kvr_hash_seed("", 0, "", 0),
				      .block_size = a->block_size};
	struct kvr_json_value list, name, v;
	struct kvr_json_iter it;
	uint32_t n = 0, *ids;
	uint64_t id, *sh;
	int blocks = -1;

	if (!kvr_json_get(root, "tokens", &list) || list.type != KVR_JSON_ARRAY)
		return -1;
	ids = malloc(IDS * sizeof(*ids));
	sh = malloc((IDS / a->block_size + 1) * sizeof(*sh));
	it = kvr_json_begin(&list);
	while (ids != NULL && n < IDS && kvr_json_next(&it, &name, &v) &&
	       kvr_json_u64(&v, &id) == 0)
		ids[n++] = (uint32_t)id;
	for (uint32_t i = 2; ids != NULL && sh != NULL && i-- > 0;) {
		how.eagle = i == 1;
		blocks = kvr_hash_tokens(&how, ids, n, NULL, sh, IDS / a->block_size + 1);
		last[i] = blocks > 0 ? sh[blocks - 1] : 0;
	}
	free(ids);
	free(sh);
	return blocks;
}

static void on_tokens(struct app *a, const struct kvr_json_value *root)
{
	struct app_canary *c = a->canary;
	const int blocks = name_blocks(a, root, c->sh);
	char *body;

	if (blocks < 0) {
		end_canary(a, "/tokenize of the engine returned no tokens");
	} else if (blocks < 2 && c->words < MOST) {
		c->words *= 2;
		request_tokens(a);
	} else {
		c->blocks = (uint32_t)blocks;
		c->seen = false;
		body = make_body(c, ",\"max_tokens\":1");
		if (body == NULL)
			end_canary(a, "no memory");
		else
			start_transfer(a, COMPLETE, "/v1/completions", body);
	}
}

/* Read the answer; ends the canary after a failure. @return true: parsed. */
static bool read_answer(struct app *a, CURLcode result, struct kvr_json_value *root)
{
	static const char *const paths[] = {
		[MODELS] = "/v1/models", [TOKENIZE] = "/tokenize", [COMPLETE] = "/v1/completions"};
	const struct app_canary *c = a->canary;
	char reason[96], why[128];
	long status = 0;
	size_t at;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		app_curl_error(a, c->easy, result, reason, sizeof(reason));
	else if (status != 200)
		snprintf(reason, sizeof(reason), "status %ld", status);
	else if (c->page.p == NULL || kvr_json_parse(c->page.p, c->page.len, root, &at) != 0)
		snprintf(reason, sizeof(reason), "not JSON");
	else
		return true;
	snprintf(why, sizeof(why), "%s of the engine: %s", paths[c->step], reason);
	end_canary(a, why);
	return false;
}

void app_canary_ended(struct app *a, CURLcode result)
{
	struct app_canary *c = a->canary;
	struct kvr_json_value root;
	bool good;

	if (a->state != APP_SERVING) { /* engine and block size are unknown in this state */
		curl_multi_remove_handle(a->multi, c->easy);
		end_canary(a, NULL);
		return;
	}
	good = read_answer(a, result, &root);
	curl_multi_remove_handle(a->multi, c->easy);
	if (!good)
		return;
	if (c->step == MODELS && !read_model(c, &root)) {
		end_canary(a, "/v1/models of the engine lists no model");
	} else if (c->step == MODELS) {
		request_tokens(a);
	} else if (c->step == TOKENIZE) {
		on_tokens(a, &root);
	} else {
		c->step = WAIT;
		c->due_us = a->now_us + WAIT_US;
	}
}

void app_canary_begin(struct app *a)
{
	struct app_canary *c = a->canary;

	if (c == NULL)
		return;
	c->missed = 0;
	kvr_agent_canaries_missed(a->agent, 0);
	if (c->step == WAIT) /* it waits for an event of the previous incarnation */
		end_canary(a, NULL);
	c->due_us = a->now_us;
}

void app_canary_stored(struct app *a, const uint64_t sh[], uint32_t n)
{
	struct app_canary *c = a->canary;
	bool late = false;

	/* The common case: nothing is expected. */
	if (c == NULL || (c->missed == 0 && c->step != COMPLETE && c->step != WAIT))
		return;
	for (uint32_t i = 0; i < n; i++) {
		c->seen |= sh[i] == c->sh[0] || sh[i] == c->sh[1];
		late |= sh[i] == c->late[0] || sh[i] == c->late[1];
	}
	if (c->missed == 0 || !late)
		return;
	c->missed = 0; /* the event was late */
	kvr_agent_canaries_missed(a->agent, 0);
}

/* Report to the router, where operators see it. */
static void report_result(struct app *a, bool fine)
{
	struct app_canary *c = a->canary;

	kvr_cell_add(fine ? &a->st.canaries : &a->st.canaries_bad, 1);
	c->missed = fine ? 0 : c->missed + 1;
	memcpy(c->late, c->sh, sizeof(c->late));
	kvr_agent_canaries_missed(a->agent, c->missed);
	end_canary(a, NULL);
	if (!fine && a->o.canary_s > AGAIN_S)
		c->due_us = a->now_us + AGAIN_S * UINT64_C(1000000);
}

/* One miss may be a busy engine; two are a fault. */
static void report_miss(struct app *a)
{
	const struct app_canary *c = a->canary;

	if (c->missed == 0)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
			"canary: no event named the %u blocks of a test prompt within %u s; sending another one",
			c->blocks, (unsigned int)(WAIT_US / 1000000));
	else
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"canary: the engine's events do not name the %u blocks of %u tokens of a test prompt that /tokenize of the engine tokenized, so requests cannot match its cache. Compare block size, tokenizer and cache salt",
			c->blocks, a->block_size);
	report_result(a, false);
}

/* Not for a worker that is unknown to the router or rejected. SGLang with disaggregation rejects
 * requests without a bootstrap room. */
static bool can_begin(const struct app *a)
{
	return a->canary->step == IDLE && a->o.events[0] != '\0' &&
	       (a->o.type != AGENT_SGLANG || a->o.role == 0) &&
	       kvr_agent_state_now(a->agent) != KVR_AGENT_OFFLINE;
}

void app_canary_turn(struct app *a)
{
	struct app_canary *c = a->canary;

	if (c == NULL || a->state != APP_SERVING)
		return;
	/* Events wait for the router, perhaps including the expected one. */
	if (c->step == WAIT && kvr_cell_get(&a->st.events_wait) > 0)
		c->due_us = a->now_us + WAIT_US;
	if (c->step == WAIT && c->seen) {
		report_result(a, true);
	} else if (c->step == WAIT && a->now_us >= c->due_us) {
		report_miss(a);
	} else if (can_begin(a) && a->now_us >= c->due_us) {
		c->number = a->now_us;
		start_transfer(a, MODELS, "/v1/models", NULL);
	}
}

uint64_t app_canary_due_us(const struct app *a)
{
	const struct app_canary *c = a->canary;

	if (c == NULL || a->state != APP_SERVING || (c->step != WAIT && !can_begin(a)))
		return UINT64_MAX;
	return c->step == WAIT && c->seen ? a->now_us : c->due_us;
}

int app_canary_start(struct app *a)
{
	if (a->o.canary_s == 0)
		return 0;
	a->canary = calloc(1, sizeof(*a->canary));
	if (a->canary == NULL)
		return -1;
	a->canary->kind = APP_CANARY;
	a->canary->words = WORDS;
	a->canary->fields = curl_slist_append(NULL, "content-type: application/json");
	return a->canary->fields != NULL ? 0 : -1;
}

void app_canary_stop(struct app *a)
{
	struct app_canary *c = a->canary;

	if (c == NULL)
		return;
	if (c->easy != NULL) {
		curl_multi_remove_handle(a->multi, c->easy);
		curl_easy_cleanup(c->easy);
	}
	curl_slist_free_all(c->fields);
	free(c->text);
	free(c->body);
	free(c->page.p);
	free(c);
	a->canary = NULL;
}
