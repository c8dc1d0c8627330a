/* SPDX-License-Identifier: BSD-3-Clause */
#include "turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

#define MAX 4096

/* --- templates, of a tokenizer whose ids are bytes, special tokens, and one pair of bytes ----- */

enum { BOS = 1000, START, STOP, INST, INST_END, TWO_NEWLINES };

struct message {
	const char *role, *text, *thought;
};

struct ids {
	uint32_t p[MAX], n;
};

static const char *tools;

static void special(struct ids *out, uint32_t id)
{
	out->p[out->n++] = id;
}

static void text(struct ids *out, const char *s)
{
	for (; *s != '\0'; s++) {
		if (*s == '\n' && out->n > 0 && out->p[out->n - 1] == '\n')
			out->p[out->n - 1] = TWO_NEWLINES;
		else
			out->p[out->n++] = (unsigned char)*s;
	}
}

static bool is(const struct message *m, const char *role)
{
	return strcmp(m->role, role) == 0;
}

static void chatml_turn(struct ids *out, const char *role, const char *s)
{
	special(out, START);
	text(out, role);
	text(out, "\n");
	text(out, s);
	special(out, STOP);
	text(out, "\n");
}

static uint32_t last_user(const struct message m[], uint32_t n)
{
	while (n > 0 && !is(&m[n - 1], "user"))
		n--;
	return n;
}

/* A default system text, tools behind it, and thoughts of this turn only. */
static void qwen(const struct message m[], uint32_t n, struct ids *out)
{
	const uint32_t last = last_user(m, n);
	char s[512];

	if (!is(&m[0], "system") || tools != NULL) {
		snprintf(s, sizeof(s), "%s%s", is(&m[0], "system") ? m[0].text : "You are helpful.",
			 tools != NULL ? tools : "");
		chatml_turn(out, "system", s);
	}
	for (uint32_t i = tools != NULL && is(&m[0], "system"); i < n; i++) {
		snprintf(s, sizeof(s), "%s%s%s",
			 m[i].thought != NULL && i >= last ? m[i].thought : "",
			 m[i].thought != NULL && i >= last ? "</think>\n\n" : "", m[i].text);
		chatml_turn(out, m[i].role, s);
	}
	special(out, START);
	text(out, "assistant\n");
}

/* Thinking switched off: the generation prompt is no beginning of what an answer is rendered to. */
static void qwen_without_thoughts(const struct message m[], uint32_t n, struct ids *out)
{
	qwen(m, n, out);
	text(out, "<think>\n\n</think>\n\n");
}

static void llama3(const struct message m[], uint32_t n, struct ids *out)
{
	special(out, BOS);
	special(out, START);
	text(out, "system");
	special(out, STOP);
	text(out, "\n\nToday Date: 26 Jul 2024\n\n");
	text(out, is(&m[0], "system") ? m[0].text : "");
	for (uint32_t i = is(&m[0], "system"); i <= n; i++) {
		special(out, START);
		text(out, i < n ? m[i].role : "assistant");
		special(out, STOP);
		text(out, "\n\n");
		if (i < n)
			text(out, m[i].text);
	}
}

/* Tools and system text stand before the first user message or (@p at_last) before the last. */
static void inst(const struct message m[], uint32_t n, struct ids *out, bool at_last)
{
	const uint32_t first = is(&m[0], "system"), at = at_last ? last_user(m, n) - 1 : first;

	special(out, BOS);
	for (uint32_t i = first; i < n; i++) {
		if (!is(&m[i], "user")) {
			text(out, m[i].text);
			special(out, STOP);
			continue;
		}
		if (i == at && tools != NULL)
			text(out, tools);
		special(out, INST);
		if (i == at && first)
			text(out, m[0].text);
		text(out, m[i].text);
		special(out, INST_END);
	}
}

static void llama2(const struct message m[], uint32_t n, struct ids *out)
{
	inst(m, n, out, false);
}

static void mistral(const struct message m[], uint32_t n, struct ids *out)
{
	inst(m, n, out, true);
}

/* What cannot be cut: a message's number, the number of all, and a checksum at the end. */
static void numbered(const struct message m[], uint32_t n, struct ids *out)
{
	for (uint32_t i = 0; i < n; i++) {
		special(out, START + 100 + i);
		text(out, m[i].text);
	}
}

static void counted(const struct message m[], uint32_t n, struct ids *out)
{
	special(out, 2000 + n);
	qwen(m, n, out);
}

static void summed(const struct message m[], uint32_t n, struct ids *out)
{
	qwen(m, n, out);
	special(out, 5000 + out->n);
}

/* --- putting turns together ------------------------------------------------------------------- */

typedef void template(const struct message m[], uint32_t n, struct ids *out);

static const struct message TALK[] = {
	{"system", "Answer briefly, and in the language of the question.", NULL},
	{"user", "x", NULL},
	{"assistant", "\nYes: x is a letter.", "Is it a letter?"},
	{"user", "And the one behind it?", NULL},
	{"assistant", "", "I must look."},
	{"tool", "{\"next\": \"y\"}", NULL},
	{"assistant", "<think>y", "The tool says so."},
	{"user", "x", NULL},
	{"assistant", "Yes, still.", NULL},
	{"user", "Good.\n\n", NULL},
};

enum found { NOTHING, RIGHT, WRONG };

/* The ids of messages 1..n out of those of 1..k. */
static enum found joined(template *render, const struct message m[], uint32_t k, uint32_t n)
{
	static struct ids t, b, s, whole;
	uint32_t made_n = 0, *made;
	bool same;

	t.n = b.n = s.n = whole.n = 0;
	render(m, k, &t);
	render(m + k - 1, 1, &b);
	render(m + k - 1, n - k + 1, &s);
	render(m, n, &whole);
	made = gw_turns_join(t.p, t.n, b.p, b.n, s.p, s.n, &made_n);
	if (made == NULL)
		return NOTHING;
	same = made_n == whole.n && memcmp(made, whole.p, made_n * sizeof(*made)) == 0;
	free(made);
	return same ? RIGHT : WRONG;
}

/* How many cuts of the conversation came out like this. */
static uint32_t cuts(template *render, bool system, enum found what)
{
	const uint32_t first = system ? 0 : 1, all = sizeof(TALK) / sizeof(TALK[0]);
	uint32_t found = 0;

	for (uint32_t k = 2; k < all; k++)
		for (uint32_t n = k + 2; is(&TALK[k - 1], "user") && n <= all; n++)
			if (k - first >= 1 && !is(&TALK[n - 1], "assistant"))
				found += joined(render, TALK + first, k - first, n - first) == what;
	return found;
}

#define CUTS 8u /* from a user's message to a later one of a user or tool */

static void common_templates_add_up(void)
{
	template *const all[] = {qwen, qwen_without_thoughts, llama3, llama2};

	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int how = 0; how < 4; how++) {
			tools = how & 1 ? "\n# Tools\n{\"name\": \"next\"}\n" : NULL;
			CU_ASSERT_EQUAL(cuts(all[i], how & 2, RIGHT), CUTS);
			CU_ASSERT_EQUAL(cuts(all[i], how & 2, WRONG), 0);
		}
	tools = NULL;
	CU_ASSERT_EQUAL(cuts(mistral, false, RIGHT), CUTS);
}

static void templates_that_look_at_the_place_do_not(void)
{
	template *const all[] = {numbered, counted, summed};

	for (unsigned int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(cuts(all[i], true, RIGHT), 0);
		CU_ASSERT_EQUAL(cuts(all[i], true, NOTHING) + cuts(all[i], true, WRONG), CUTS);
	}
	CU_ASSERT_EQUAL(cuts(mistral, true, WRONG), CUTS - 1); /* the system text moves */
	CU_ASSERT_EQUAL(cuts(mistral, true, RIGHT), 1);	       /* but stays when a tool answers */
}

static void odd_answers_give_nothing(void)
{
	static const uint32_t t[] = {1, 2, 3, 4}, other[] = {9, 3, 4}, s[] = {1, 2, 3, 5};
	uint32_t n;

	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 0, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 1, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 4, s, 0, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 0, t, 4, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, other, 3, s, 4, &n)); /* no common head */
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 3, t, 4, s, 4, &n));     /* T does not end so */
}

/* No more than a question of its own may have: a conversation would grow without end. */
static void no_more_ids_than_a_prompt_may_have(void)
{
	static uint32_t t[GW_TURNS_MOST], s[8];
	const uint32_t b[] = {1, 2, 3};
	uint32_t n = 0, *ids;

	memcpy(&t[GW_TURNS_MOST - 3], b, sizeof(b));
	memcpy(s, b, sizeof(b));
	ids = gw_turns_join(&t[5], GW_TURNS_MOST - 5, b, 3, s, 8, &n);
	CU_ASSERT_PTR_NOT_NULL(ids);
	CU_ASSERT_EQUAL(n, GW_TURNS_MOST);
	free(ids);
	CU_ASSERT_PTR_NULL(gw_turns_join(&t[4], GW_TURNS_MOST - 4, b, 3, s, 8, &n));
}

/* --- where to cut ----------------------------------------------------------------------------- */

static struct gw_lru *l;
static char body[MAX];
static const char LONG[] =
	"a system text that is longer than all that is behind it together, for "
	"else nothing would be saved by leaving it out of the questions that are "
	"asked, and the whole would be asked for as it always has been";

/* @p rest of the messages, behind system text and a first question. */
static struct gw_turns_cut cut(const char *rest, const char *more, const char *others)
{
	struct gw_turns_cut out;
	struct gw_hints hints = {0};
	struct gw_ask a;
	char err[256];

	snprintf(body, sizeof(body),
		 "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"%s\"}, "
		 "{\"role\":\"user\",\"content\":\"q\"}%s]%s}",
		 LONG, rest, more);
	CU_ASSERT_EQUAL_FATAL(
		gw_ask_read(&a, GW_CHAT, body, strlen(body), &hints, err, sizeof(err)), 0);
	gw_turns_cut(&a, l, others, strlen(others), &out);
	return out;
}

#define ANSWER ",{\"role\":\"assistant\",\"content\":\"a\"}"
#define AGAIN  ",{\"role\":\"user\",\"content\":\"q2\"}"

static void the_longest_known_beginning_is_found(void)
{
	static const uint32_t ids[] = {1, 2, 3};
	struct gw_turns_cut first, second, third;

	l = gw_lru_create(1 << 20, 7);
	first = cut("", "", "{}");
	CU_ASSERT_PTR_NULL(first.from);
	CU_ASSERT_PTR_NULL(cut(ANSWER AGAIN, "", "{}").from); /* nothing is known */
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NULL(cut("", "", "{}").from); /* all is known */
	second = cut(ANSWER AGAIN, "", "{}");
	CU_ASSERT_PTR_NOT_NULL_FATAL(second.from);
	CU_ASSERT_EQUAL(memcmp(&second.before, &first.whole, sizeof(first.whole)), 0);
	CU_ASSERT_EQUAL(memcmp(second.from, "{\"role\":\"user\",\"content\":\"q\"}", 29), 0);
	CU_ASSERT_EQUAL(second.one, 29);
	CU_ASSERT_EQUAL(second.part, 29 + strlen(ANSWER AGAIN));
	gw_lru_put(l, &second.whole, ids, 3);
	third = cut(ANSWER AGAIN ANSWER, "", "{}");
	CU_ASSERT_EQUAL(memcmp(&third.before, &second.whole, sizeof(third.before)), 0);
	CU_ASSERT_EQUAL(third.one, strlen(AGAIN) - 1);
	gw_lru_put(l, &third.whole, ids, 3);
	CU_ASSERT_PTR_NULL(cut(ANSWER AGAIN ANSWER, "", "{}").from);
	/* An answer is no place to cut at. */
	third = cut(ANSWER AGAIN ANSWER AGAIN, "", "{}");
	CU_ASSERT_EQUAL(memcmp(&third.before, &second.whole, sizeof(third.before)), 0);
	gw_lru_destroy(l);
}

static void what_must_not_be_cut_is_not(void)
{
	static const uint32_t ids[] = {1, 2, 3};
	struct gw_turns_cut first;
	char twice[2 * sizeof(LONG)];

	snprintf(twice, sizeof(twice), "%s%s", LONG, LONG);
	l = gw_lru_create(1 << 20, 7);
	first = cut("", "", "{}");
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NOT_NULL(cut(ANSWER AGAIN, "", "{}").from);
	CU_ASSERT_PTR_NOT_NULL(cut(ANSWER, ",\"continue_final_message\":false", "{}").from);
	CU_ASSERT_PTR_NULL(cut(ANSWER, ",\"continue_final_message\":true", "{}").from);
	CU_ASSERT_PTR_NULL(cut(ANSWER AGAIN, ",\"chat_template\":\"x\"", "{}").from);
	CU_ASSERT_PTR_NULL(cut(ANSWER AGAIN, "", "{\"tools\":[]}").from); /* another question */
	first = cut("", "", twice);
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NULL(cut(ANSWER AGAIN, "", twice).from); /* the rest is asked twice */
	gw_lru_destroy(l);
}

/* --- when it is believed ---------------------------------------------------------------------- */

static struct gw_lru_key model(uint64_t number)
{
	return (struct gw_lru_key){{number, ~number}};
}

#define US   1u /* sources */
#define THEM 2u

static enum gw_turns_way way(struct gw_turns *ts, const struct gw_lru_key *m, uint64_t now)
{
	return gw_turns_way(ts, m, US, now);
}

/* As often as it takes to be believed. */
static void all_right(struct gw_turns *ts, const struct gw_lru_key *m)
{
	for (unsigned int i = 0; i < GW_TURNS_FIRST; i++)
		gw_turns_found(ts, m, US, GW_TURNS_IS_RIGHT, 5);
	CU_ASSERT_EQUAL(way(ts, m, 5), GW_TURNS_SHORT);
}

static void first_turns_and_some_later_are_compared(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1);
	uint32_t both = 0;

	for (unsigned int i = 0; i < GW_TURNS_FIRST; i++) {
		CU_ASSERT_EQUAL(way(&ts, &m, 5), GW_TURNS_BOTH);
		CU_ASSERT_EQUAL(way(&ts, &m, 5), GW_TURNS_BOTH); /* not answered yet */
		gw_turns_found(&ts, &m, i % 2 != 0 ? US : THEM, GW_TURNS_IS_RIGHT, 5);
	}
	for (unsigned int i = 0; i < 10 * GW_TURNS_EVERY; i++)
		both += way(&ts, &m, 5) == GW_TURNS_BOTH;
	CU_ASSERT_EQUAL(both, 10);
}

static void one_that_is_wrong_switches_it_off(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1), good = model(2);

	all_right(&ts, &m);
	all_right(&ts, &good);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_WRONG, 100);
	CU_ASSERT_EQUAL(way(&ts, &m, 100), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &good, 100), GW_TURNS_SHORT);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_VAIN, 101); /* no sooner for that */
	CU_ASSERT_EQUAL(way(&ts, &m, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &m, 100 + GW_TURNS_OFF_MS), GW_TURNS_BOTH);
}

/* What a client writes can make a turn wrong. It is not asked more often than once in a while. */
static void a_source_switches_off_its_own(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1);

	all_right(&ts, &m);
	for (unsigned int i = 0; i < 100; i++)
		gw_turns_found(&ts, &m, THEM, GW_TURNS_IS_WRONG, 100);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 100), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &m, 100), GW_TURNS_BOTH); /* it may be the template */
	all_right(&ts, &m);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 100 + GW_TURNS_OFF_MS), GW_TURNS_SHORT);
}

static void several_sources_switch_off_the_model(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1), good = model(2);

	for (uint64_t i = 0; i < GW_TURNS_SOURCES; i++) {
		CU_ASSERT_EQUAL(way(&ts, &m, 100 + i), GW_TURNS_BOTH);
		gw_turns_found(&ts, &m, 100 + i, GW_TURNS_IS_WRONG, 100 + i);
	}
	CU_ASSERT_EQUAL(way(&ts, &m, 200), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &good, 200), GW_TURNS_BOTH);
	CU_ASSERT_EQUAL(way(&ts, &m, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &m, 100 + GW_TURNS_OFF_MS), GW_TURNS_BOTH);
	/* Those that are off still are. */
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, 101, 100 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
}

/* A tokenizer that was too slow, or does not take a part: no word about what is believed. */
static void in_vain_is_not_wrong(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1);

	all_right(&ts, &m);
	for (uint64_t i = 0; i < 2 * GW_TURNS_SOURCES; i++)
		gw_turns_found(&ts, &m, 100 + i, GW_TURNS_IS_VAIN, 100);
	CU_ASSERT_EQUAL(way(&ts, &m, 100), GW_TURNS_SHORT);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_VAIN, 101);
	CU_ASSERT_EQUAL(way(&ts, &m, 100 + GW_TURNS_VAIN_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(way(&ts, &m, 101 + GW_TURNS_VAIN_MS), GW_TURNS_SHORT);
}

static void many_models_push_out_the_least_used(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model(1), other = model(2);

	all_right(&ts, &m);
	all_right(&ts, &other);
	for (uint64_t i = 0; i < GW_TURNS_MODELS - 1; i++) {
		const struct gw_lru_key more = model(100 + i);

		CU_ASSERT_EQUAL(way(&ts, &more, 5), GW_TURNS_BOTH);
		CU_ASSERT_EQUAL(way(&ts, &m, 5), GW_TURNS_SHORT);
	}
	CU_ASSERT_EQUAL(way(&ts, &other, 5), GW_TURNS_BOTH); /* forgotten */
}

int main(void)
{
	CU_TestInfo tests[] = {{"common templates", common_templates_add_up},
			       {"templates by place", templates_that_look_at_the_place_do_not},
			       {"odd answers", odd_answers_give_nothing},
			       {"most", no_more_ids_than_a_prompt_may_have},
			       {"longest beginning", the_longest_known_beginning_is_found},
			       {"not cut", what_must_not_be_cut_is_not},
			       {"compared", first_turns_and_some_later_are_compared},
			       {"wrong", one_that_is_wrong_switches_it_off},
			       {"own", a_source_switches_off_its_own},
			       {"several", several_sources_switch_off_the_model},
			       {"in vain", in_vain_is_not_wrong},
			       {"many models", many_models_push_out_the_least_used},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway turns", tests);
}
