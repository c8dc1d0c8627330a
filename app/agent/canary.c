/* SPDX-License-Identifier: BSD-3-Clause */
#include "canary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"
#include "kvr_json.h"

#define ASK_MS	10000L		  /* for an answer */
#define WAIT_US UINT64_C(5000000) /* the event after the answer */
#define AGAIN_S 10u		  /* behind one that was missed, if --canary-s is longer */
#define WORDS	32u		  /* of the text at first; doubled until it has two blocks */
#define MOST	8192u		  /* words */
#define IDS	65536u

enum step { IDLE, MODELS, TOKENIZE, COMPLETE, WAIT };

struct app_canary {
	enum app_transfer kind;
	enum step step;
	CURL *easy;
	struct curl_slist *fields;
	uint64_t due_us; /* of the next one; WAIT: when it is given up */
	uint64_t number; /* of this one: its prompt is nobody else's */
	uint32_t words;
	char model[256];
	char *text; /* the prompt, as JSON */
	char *body;
	struct app_page page;
	uint64_t sh[2];	  /* of its last block: as it is, and in eagle windows */
	uint64_t late[2]; /* sh of the one before, which was missed */
	uint32_t blocks;
	uint32_t missed; /* in a row */
	bool seen;
};

/* Not this time. */
static void rest(struct app *a, const char *why)
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

static void ask(struct app *a, enum step step, const char *path, char *body)
{
	struct app_canary *c = a->canary;

	free(c->body);
	c->body = body;
	c->step = step;
	if (c->easy == NULL)
		c->easy = curl_easy_init();
	if (c->easy == NULL) {
		rest(a, "no memory");
		return;
	}
	app_page_get(a, c->easy, path, &c->page, &c->kind, ASK_MS);
	if (body != NULL) {
		curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->fields);
	}
	if (curl_multi_add_handle(a->multi, c->easy) != CURLM_OK)
		rest(a, "no memory");
}

/* The prompt: its number first, so that no block of it was ever seen: one that the engine has and
 * we do not know would hide all that follow. */
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

static void tokenize(struct app *a)
{
	struct app_canary *c = a->canary;
	char *body;

	free(c->text);
	c->text = make_text(a, c->words);
	body = c->text != NULL ? make_body(c, "") : NULL;
	if (body == NULL)
		rest(a, "no memory");
	else
		ask(a, TOKENIZE, "/tokenize", body);
}

/* The first model's name, as JSON. */
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

/* The name of the last of its blocks, in both ways: events will tell which is the engine's.
 * @return how many; -1: no ids. */
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

static void tokenized(struct app *a, const struct kvr_json_value *root)
{
	struct app_canary *c = a->canary;
	const int blocks = name_blocks(a, root, c->sh);
	char *body;

	if (blocks < 0) {
		rest(a, "the engine's /tokenize answers no tokens");
	} else if (blocks < 2 && c->words < MOST) {
		c->words *= 2;
		tokenize(a);
	} else {
		c->blocks = (uint32_t)blocks;
		c->seen = false;
		body = make_body(c, ",\"max_tokens\":1");
		if (body == NULL)
			rest(a, "no memory");
		else
			ask(a, COMPLETE, "/v1/completions", body);
	}
}

/* The answer, or not this time. @return whether there is one. */
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
		app_http_why(a, c->easy, result, reason, sizeof(reason));
	else if (status != 200)
		snprintf(reason, sizeof(reason), "status %ld", status);
	else if (c->page.p == NULL || kvr_json_parse(c->page.p, c->page.len, root, &at) != 0)
		snprintf(reason, sizeof(reason), "no JSON");
	else
		return true;
	snprintf(why, sizeof(why), "%s of the engine: %s", paths[c->step], reason);
	rest(a, why);
	return false;
}

void app_canary_ended(struct app *a, CURLcode result)
{
	struct app_canary *c = a->canary;
	struct kvr_json_value root;
	bool good;

	if (a->state != APP_SERVING) { /* nothing is known of the engine now, nor its block size */
		curl_multi_remove_handle(a->multi, c->easy);
		rest(a, NULL);
		return;
	}
	good = read_answer(a, result, &root);
	curl_multi_remove_handle(a->multi, c->easy);
	if (!good)
		return;
	if (c->step == MODELS && !read_model(c, &root)) {
		rest(a, "the engine's /v1/models names none");
	} else if (c->step == MODELS) {
		tokenize(a);
	} else if (c->step == TOKENIZE) {
		tokenized(a, &root);
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
	if (c->step == WAIT) /* for an event of the life before */
		rest(a, NULL);
	c->due_us = a->now_us;
}

void app_canary_stored(struct app *a, const uint64_t sh[], uint32_t n)
{
	struct app_canary *c = a->canary;
	bool late = false;

	/* Nearly always nothing is waited for. */
	if (c == NULL || (c->missed == 0 && c->step != COMPLETE && c->step != WAIT))
		return;
	for (uint32_t i = 0; i < n; i++) {
		c->seen |= sh[i] == c->sh[0] || sh[i] == c->sh[1];
		late |= sh[i] == c->late[0] || sh[i] == c->late[1];
	}
	if (c->missed == 0 || !late)
		return;
	c->missed = 0; /* the engine took its time to tell */
	kvr_agent_canaries_missed(a->agent, 0);
}

/* The router's operators look there, not at our standard error. */
static void found(struct app *a, bool fine)
{
	struct app_canary *c = a->canary;

	kvr_cell_add(fine ? &a->st.canaries : &a->st.canaries_bad, 1);
	c->missed = fine ? 0 : c->missed + 1;
	memcpy(c->late, c->sh, sizeof(c->late));
	kvr_agent_canaries_missed(a->agent, c->missed);
	rest(a, NULL);
	if (!fine && a->o.canary_s > AGAIN_S)
		c->due_us = a->now_us + AGAIN_S * UINT64_C(1000000);
}

/* One may be an engine that was busy for a moment; two are none. */
static void missed(struct app *a)
{
	const struct app_canary *c = a->canary;

	if (c->missed == 0)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
			"canary: no event has named the %u blocks of a prompt in %u s; another one "
			"will be sent",
			c->blocks, (unsigned int)(WAIT_US / 1000000));
	else
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"canary: the engine's events do not name the %u blocks of %u tokens that "
			"its "
			"/tokenize makes of a prompt: requests find no cache here. Compare block "
			"size, tokenizer and cache salt",
			c->blocks, a->block_size);
	found(a, false);
}

/* One for a worker that the router does not have, or refuses, would only cost the engine. One half
 * of SGLang's refuses a request that does not name a room where the other half waits. */
static bool begins(const struct app *a)
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
	/* Events wait for the router, and what names it may be among them. */
	if (c->step == WAIT && kvr_cell_get(&a->st.events_wait) > 0)
		c->due_us = a->now_us + WAIT_US;
	if (c->step == WAIT && c->seen) {
		found(a, true);
	} else if (c->step == WAIT && a->now_us >= c->due_us) {
		missed(a);
	} else if (begins(a) && a->now_us >= c->due_us) {
		c->number = a->now_us;
		ask(a, MODELS, "/v1/models", NULL);
	}
}

uint64_t app_canary_due_us(const struct app *a)
{
	const struct app_canary *c = a->canary;

	if (c == NULL || a->state != APP_SERVING || (c->step != WAIT && !begins(a)))
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
