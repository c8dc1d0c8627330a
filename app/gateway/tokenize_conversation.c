/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions for a conversation: the whole prompt, or two parts that turn_cache.c combines. */
#include "tokenize_conversation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_log.h"
#include "turn_cache.h"

#define LINE_MS 1000u

enum { WHOLE, ONE, PART, QUESTIONS };

struct gw_conversations {
	struct gw_thread *thread;
	struct gw_turns turns;
	uint64_t logged_ms; /* time of the last log line */
	LIST_HEAD(, gw_conversation) list;
};

struct question {
	struct gw_conversation *conversation;
	struct gw_question *asked; /* questions in progress */
	char *text;		   /* not asked yet */
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

int gw_conversations_start(struct gw_thread *thread)
{
	if (thread->tokens == NULL)
		return 0;
	thread->talks = calloc(1, sizeof(*thread->talks));
	if (thread->talks == NULL)
		return -ENOMEM;
	thread->talks->thread = thread;
	LIST_INIT(&thread->talks->list);
	return 0;
}

static void release_conversation(struct gw_conversation *conversation)
{
	if (conversation->ended != NULL)
		*conversation->ended = true;
	LIST_REMOVE(conversation, link);
	for (unsigned int i = 0; i < QUESTIONS; i++) {
		if (conversation->questions[i].asked != NULL)
			gw_tokens_cancel(conversation->questions[i].asked);
		free(conversation->questions[i].text);
		free(conversation->questions[i].ids);
	}
	free(conversation->before);
	free(conversation);
}

void gw_conversation_cancel(struct gw_conversation *conversation)
{
	release_conversation(conversation);
}

void gw_conversations_stop(struct gw_thread *thread)
{
	if (thread->talks == NULL)
		return;
	while (!LIST_EMPTY(&thread->talks->list))
		release_conversation(LIST_FIRST(&thread->talks->list));
	free(thread->talks);
	thread->talks = NULL;
}

/* The receiver owns the ids. */
static void finish_conversation(struct gw_conversation *conversation, uint32_t *ids, uint32_t n)
{
	gw_tokens_fn *fn = conversation->fn;
	void *arg = conversation->arg;

	release_conversation(conversation);
	fn(arg, ids, n);
}

static void on_answer(void *arg, uint32_t *ids, uint32_t n);

/* Ask a question. The count of questions in progress is raised first, so that the talk cannot end
 * meanwhile. */
static void ask_question(struct gw_conversation *conversation, unsigned int i,
			 const struct gw_lru_key *key)
{
	struct question *q = &conversation->questions[i];
	char *text = q->text;

	q->text = NULL;
	conversation->under_way++;
	q->asked = gw_tokens_ask(conversation->ts->thread->tokens, text, q->len, key, on_answer, q);
}

static void compare_whole(struct gw_conversation *conversation, const uint32_t *ids, uint32_t n)
{
	const struct question *w = &conversation->questions[WHOLE];
	const bool same = ids != NULL && n == w->n && memcmp(ids, w->ids, n * sizeof(*ids)) == 0;
	struct gw_thread *thread = conversation->ts->thread;
	const uint64_t now = gw_now_ms();

	gw_turns_found(&conversation->ts->turns, &conversation->model, conversation->source,
		       same ? GW_TURNS_IS_RIGHT : GW_TURNS_IS_WRONG, now);
	GW_COUNT(thread, same ? GW_TURNS_RIGHT : GW_TURNS_WRONG);
	if (same || now < conversation->ts->logged_ms + LINE_MS)
		return; /* clients choose model names, so the counter covers all models */
	conversation->ts->logged_ms = now;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = "results differ"),
		     "conversations of model %s from one address are tokenised whole for %u s",
		     conversation->name, GW_TURNS_OFF_MS / 1000);
}

/* All questions were answered. */
static void combine_answers(struct gw_conversation *conversation)
{
	struct question *w = &conversation->questions[WHOLE], *one = &conversation->questions[ONE],
			*part = &conversation->questions[PART];
	struct gw_thread *thread = conversation->ts->thread;
	uint32_t *ids = NULL, n = 0;

	if (one->ids != NULL && part->ids != NULL)
		ids = gw_turns_join(conversation->before, conversation->n_before, one->ids, one->n,
				    part->ids, part->n, &n);
	if (w->text != NULL && ids != NULL) {
		GW_COUNT(thread, GW_TURNS);
		gw_lru_put(gw_tokens_cache(thread->tokens), &conversation->whole, ids, n);
		finish_conversation(conversation, ids, n);
		return;
	}
	if (w->text != NULL && gw_now_ms() < conversation->until_ms) {
		conversation->under_way = 1;
		ask_question(conversation, WHOLE, &conversation->whole);
		if (--conversation->under_way == 0)
			combine_answers(conversation);
		return;
	}
	if (conversation->way != GW_TURNS_WHOLE && (one->ids == NULL || part->ids == NULL))
		gw_turns_found(&conversation->ts->turns, &conversation->model, conversation->source,
			       GW_TURNS_IS_VAIN, gw_now_ms());
	else if (conversation->way != GW_TURNS_WHOLE && w->ids != NULL)
		compare_whole(conversation, ids, n);
	free(ids);
	ids = w->ids;
	w->ids = NULL;
	finish_conversation(conversation, ids, w->n);
}

static void on_answer(void *arg, uint32_t *ids, uint32_t n)
{
	struct question *q = arg;

	q->asked = NULL;
	q->ids = ids;
	q->n = ids != NULL ? n : 0;
	if (--q->conversation->under_way == 0)
		combine_answers(q->conversation);
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
static bool plan_questions(struct gw_conversation *conversation, const struct gw_ask *a)
{
	struct gw_lru *cache = gw_tokens_cache(conversation->ts->thread->tokens);
	struct question *one = &conversation->questions[ONE],
			*part = &conversation->questions[PART];
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
	conversation->whole = at.whole;
	if (at.from == NULL)
		return true;
	conversation->model = gw_lru_key(cache, a->model, strlen(a->model));
	memcpy(conversation->name, a->model, strnlen(a->model, sizeof(conversation->name) - 1));
	conversation->way = gw_turns_way(&conversation->ts->turns, &conversation->model,
					 conversation->source, gw_now_ms());
	if (conversation->way == GW_TURNS_WHOLE)
		return true;
	conversation->before = gw_lru_get(cache, &at.before, &conversation->n_before);
	one->text = make_partial(a, at.from, at.one, &one->len);
	part->text = make_partial(a, at.from, at.part, &part->len);
	if (one->text == NULL)
		return false;
	conversation->one = gw_lru_key(cache, one->text, one->len);
	return conversation->before != NULL && part->text != NULL;
}

struct gw_conversation *gw_conversation_ask(struct gw_conversations *ts, const struct gw_ask *a,
					    uint64_t source, gw_tokens_fn *fn, void *arg)
{
	struct gw_conversation *conversation = calloc(1, sizeof(*conversation));
	bool ended = false, fine;

	if (conversation == NULL) {
		fn(arg, NULL, 0);
		return NULL;
	}
	conversation->ts = ts;
	conversation->source = source;
	conversation->fn = fn;
	conversation->arg = arg;
	conversation->until_ms = gw_now_ms() + ts->thread->opt->tokenize_ms;
	LIST_INSERT_HEAD(&ts->list, conversation, link);
	for (unsigned int i = 0; i < QUESTIONS; i++)
		conversation->questions[i].conversation = conversation;
	conversation->questions[WHOLE].text =
		gw_ask_question(a, &conversation->questions[WHOLE].len);
	fine = conversation->questions[WHOLE].text != NULL;
	if (fine && a->form == GW_PROMPT_MESSAGES)
		fine = plan_questions(conversation, a);
	else if (fine)
		conversation->whole = gw_lru_key(gw_tokens_cache(ts->thread->tokens),
						 conversation->questions[WHOLE].text,
						 conversation->questions[WHOLE].len);
	if (!fine) {
		finish_conversation(conversation, NULL, 0);
		return NULL;
	}
	conversation->ended = &ended;
	conversation->under_way = 1;
	if (conversation->way != GW_TURNS_SHORT)
		ask_question(conversation, WHOLE, &conversation->whole);
	if (conversation->way != GW_TURNS_WHOLE) {
		ask_question(conversation, ONE, &conversation->one);
		ask_question(conversation, PART, NULL);
	}
	if (--conversation->under_way == 0)
		combine_answers(conversation);
	if (ended)
		return NULL;
	conversation->ended = NULL;
	return conversation;
}
