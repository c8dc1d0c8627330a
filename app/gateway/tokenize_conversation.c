/* SPDX-License-Identifier: BSD-3-Clause */
#include "tokenize_conversation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_log.h"
#include "turn_cache.h"

#define LINE_MS 1000u

enum { WHOLE, ONE, PART, QUESTIONS };

struct gw_conversations {
	struct gw_thread *t;
	struct gw_turns turns;
	uint64_t logged_ms; /* time of the last log line */
	LIST_HEAD(, gw_conversation) list;
};

struct question {
	struct gw_conversation *k;
	struct gw_question *q; /* questions in progress */
	char *text;	       /* not asked yet */
	size_t len;
	uint32_t *ids, n;
};

struct gw_conversation {
	struct gw_conversations *ts;
	LIST_ENTRY(gw_conversation) link;
	struct question questions[QUESTIONS];
	struct gw_lru_key whole, one, model;
	char name[64]; /* of the model, for the log */
	uint64_t source;
	uint32_t *before; /* ids of the previous turn */
	uint32_t n_before;
	enum gw_turns_way way;
	uint32_t under_way;
	uint64_t until_ms; /* latest start of the whole question */
	gw_tokens_fn *fn;
	void *arg;
	bool *ended; /* set if it ends before gw_conversation_ask() returns */
};

int gw_conversations_start(struct gw_thread *t)
{
	if (t->tokens == NULL)
		return 0;
	t->talks = calloc(1, sizeof(*t->talks));
	if (t->talks == NULL)
		return -ENOMEM;
	t->talks->t = t;
	LIST_INIT(&t->talks->list);
	return 0;
}

static void release_talk(struct gw_conversation *k)
{
	if (k->ended != NULL)
		*k->ended = true;
	LIST_REMOVE(k, link);
	for (unsigned int i = 0; i < QUESTIONS; i++) {
		if (k->questions[i].q != NULL)
			gw_tokens_cancel(k->questions[i].q);
		free(k->questions[i].text);
		free(k->questions[i].ids);
	}
	free(k->before);
	free(k);
}

void gw_conversation_cancel(struct gw_conversation *k)
{
	release_talk(k);
}

void gw_conversations_stop(struct gw_thread *t)
{
	if (t->talks == NULL)
		return;
	while (!LIST_EMPTY(&t->talks->list))
		release_talk(LIST_FIRST(&t->talks->list));
	free(t->talks);
	t->talks = NULL;
}

/* The receiver owns the ids. */
static void finish_talk(struct gw_conversation *k, uint32_t *ids, uint32_t n)
{
	gw_tokens_fn *fn = k->fn;
	void *arg = k->arg;

	release_talk(k);
	fn(arg, ids, n);
}

static void on_answer(void *arg, uint32_t *ids, uint32_t n);

/* Ask a question. The count of questions in progress is raised first, so that the talk cannot end
 * meanwhile. */
static void ask_question(struct gw_conversation *k, unsigned int i, const struct gw_lru_key *key)
{
	struct question *q = &k->questions[i];
	char *text = q->text;

	q->text = NULL;
	k->under_way++;
	q->q = gw_tokens_ask(k->ts->t->tokens, text, q->len, key, on_answer, q);
}

static void compare_whole(struct gw_conversation *k, const uint32_t *ids, uint32_t n)
{
	const struct question *w = &k->questions[WHOLE];
	const bool same = ids != NULL && n == w->n && memcmp(ids, w->ids, n * sizeof(*ids)) == 0;
	struct gw_thread *t = k->ts->t;
	const uint64_t now = gw_now_ms();

	gw_turns_found(&k->ts->turns, &k->model, k->source,
		       same ? GW_TURNS_IS_RIGHT : GW_TURNS_IS_WRONG, now);
	GW_COUNT(t, same ? GW_TURNS_RIGHT : GW_TURNS_WRONG);
	if (same || now < k->ts->logged_ms + LINE_MS)
		return; /* clients choose model names, so the counter covers all models */
	k->ts->logged_ms = now;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = "results differ"),
		     "conversations of model %s from one address are tokenised whole for %u s",
		     k->name, GW_TURNS_OFF_MS / 1000);
}

/* All questions were answered. */
static void combine_answers(struct gw_conversation *k)
{
	struct question *w = &k->questions[WHOLE], *one = &k->questions[ONE],
			*part = &k->questions[PART];
	struct gw_thread *t = k->ts->t;
	uint32_t *ids = NULL, n = 0;

	if (one->ids != NULL && part->ids != NULL)
		ids = gw_turns_join(k->before, k->n_before, one->ids, one->n, part->ids, part->n,
				    &n);
	if (w->text != NULL && ids != NULL) {
		GW_COUNT(t, GW_TURNS);
		gw_lru_put(gw_tokens_cache(t->tokens), &k->whole, ids, n);
		finish_talk(k, ids, n);
		return;
	}
	if (w->text != NULL && gw_now_ms() < k->until_ms) {
		k->under_way = 1;
		ask_question(k, WHOLE, &k->whole);
		if (--k->under_way == 0)
			combine_answers(k);
		return;
	}
	if (k->way != GW_TURNS_WHOLE && (one->ids == NULL || part->ids == NULL))
		gw_turns_found(&k->ts->turns, &k->model, k->source, GW_TURNS_IS_VAIN, gw_now_ms());
	else if (k->way != GW_TURNS_WHOLE && w->ids != NULL)
		compare_whole(k, ids, n);
	free(ids);
	ids = w->ids;
	w->ids = NULL;
	finish_talk(k, ids, w->n);
}

static void on_answer(void *arg, uint32_t *ids, uint32_t n)
{
	struct question *q = arg;

	q->q = NULL;
	q->ids = ids;
	q->n = ids != NULL ? n : 0;
	if (--q->k->under_way == 0)
		combine_answers(q->k);
}

/* Question for some of the messages, which are consecutive from @p from on. */
static char *make_partial(const struct gw_ask *a, const char *from, size_t bytes, size_t *len)
{
	struct gw_ask some = *a;
	char *list = malloc(bytes + 2), *text;

	if (list == NULL)
		return NULL;
	list[0] = '[';
	memcpy(list + 1, from, bytes);
	list[bytes + 1] = ']';
	some.messages = (struct kvr_json_value){list, bytes + 2, KVR_JSON_ARRAY};
	text = gw_ask_question(&some, len);
	free(list);
	return text;
}

/* Plan the questions of a conversation; false: out of memory. */
static bool plan_questions(struct gw_conversation *k, const struct gw_ask *a)
{
	struct gw_lru *cache = gw_tokens_cache(k->ts->t->tokens);
	struct question *one = &k->questions[ONE], *part = &k->questions[PART];
	struct gw_ask none = *a;
	struct gw_turns_cut at;
	size_t len;
	char *others;

	none.messages = (struct kvr_json_value){0};
	others = gw_ask_question(&none, &len);
	if (others == NULL)
		return false;
	gw_turns_cut(a, cache, others, len, &at);
	free(others);
	k->whole = at.whole;
	if (at.from == NULL)
		return true;
	k->model = gw_lru_key(cache, a->model, strlen(a->model));
	memcpy(k->name, a->model, strnlen(a->model, sizeof(k->name) - 1));
	k->way = gw_turns_way(&k->ts->turns, &k->model, k->source, gw_now_ms());
	if (k->way == GW_TURNS_WHOLE)
		return true;
	k->before = gw_lru_get(cache, &at.before, &k->n_before);
	one->text = make_partial(a, at.from, at.one, &one->len);
	part->text = make_partial(a, at.from, at.part, &part->len);
	if (one->text == NULL)
		return false;
	k->one = gw_lru_key(cache, one->text, one->len);
	return k->before != NULL && part->text != NULL;
}

struct gw_conversation *gw_conversation_ask(struct gw_conversations *ts, const struct gw_ask *a,
					    uint64_t source, gw_tokens_fn *fn, void *arg)
{
	struct gw_conversation *k = calloc(1, sizeof(*k));
	bool ended = false, fine;

	if (k == NULL) {
		fn(arg, NULL, 0);
		return NULL;
	}
	k->ts = ts;
	k->source = source;
	k->fn = fn;
	k->arg = arg;
	k->until_ms = gw_now_ms() + ts->t->opt->tokenize_ms;
	LIST_INSERT_HEAD(&ts->list, k, link);
	for (unsigned int i = 0; i < QUESTIONS; i++)
		k->questions[i].k = k;
	k->questions[WHOLE].text = gw_ask_question(a, &k->questions[WHOLE].len);
	fine = k->questions[WHOLE].text != NULL;
	if (fine && a->form == GW_PROMPT_MESSAGES)
		fine = plan_questions(k, a);
	else if (fine)
		k->whole = gw_lru_key(gw_tokens_cache(ts->t->tokens), k->questions[WHOLE].text,
				      k->questions[WHOLE].len);
	if (!fine) {
		finish_talk(k, NULL, 0);
		return NULL;
	}
	k->ended = &ended;
	k->under_way = 1;
	if (k->way != GW_TURNS_SHORT)
		ask_question(k, WHOLE, &k->whole);
	if (k->way != GW_TURNS_WHOLE) {
		ask_question(k, ONE, &k->one);
		ask_question(k, PART, NULL);
	}
	if (--k->under_way == 0)
		combine_answers(k);
	if (ended)
		return NULL;
	k->ended = NULL;
	return k;
}
