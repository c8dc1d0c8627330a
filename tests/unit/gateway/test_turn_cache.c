/* SPDX-License-Identifier: BSD-3-Clause */
#include "turn_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

#define MAX 4096

/* --- templates of a tokenizer whose ids are bytes, special tokens, and one pair of bytes
 * ------- */

enum { BOS = 1000, START, STOP, INST, INST_END, TWO_NEWLINES };

struct message {
	const char *role, *text, *thought;
};

struct ids {
	uint32_t p[MAX], n;
};

static const char *tools;

static void put_special(struct ids *out, uint32_t id)
{
	out->p[out->n++] = id;
}

static void put_text(struct ids *out, const char *s)
{
	for (; *s != '\0'; s++) {
		if (*s == '\n' && out->n > 0 && out->p[out->n - 1] == '\n')
			out->p[out->n - 1] = TWO_NEWLINES;
		else
			out->p[out->n++] = (unsigned char)*s;
	}
}

static bool is_role(const struct message *m, const char *role)
{
	return strcmp(m->role, role) == 0;
}

static void chatml_turn(struct ids *out, const char *role, const char *s)
{
	put_special(out, START);
	put_text(out, role);
	put_text(out, "\n");
	put_text(out, s);
	put_special(out, STOP);
	put_text(out, "\n");
}

static uint32_t last_user(const struct message m[], uint32_t n)
{
	while (n > 0 && !is_role(&m[n - 1], "user"))
		n--;
	return n;
}

/* A default system text, followed by tools, and reasoning of this turn only. */
static void render_qwen(const struct message m[], uint32_t n, struct ids *out)
{
	const uint32_t last = last_user(m, n);
	char s[512];

	if (!is_role(&m[0], "system") || tools != NULL) {
		snprintf(s, sizeof(s), "%s%s",
			 is_role(&m[0], "system") ? m[0].text : "You are helpful.",
			 tools != NULL ? tools : "");
		chatml_turn(out, "system", s);
	}
	for (uint32_t i = tools != NULL && is_role(&m[0], "system"); i < n; i++) {
		snprintf(s, sizeof(s), "%s%s%s",
			 m[i].thought != NULL && i >= last ? m[i].thought : "",
			 m[i].thought != NULL && i >= last ? "</think>\n\n" : "", m[i].text);
		chatml_turn(out, m[i].role, s);
	}
	put_special(out, START);
	put_text(out, "assistant\n");
}

/* Reasoning off: the generation prompt is not the beginning of a rendered answer. */
static void render_qwen_without_reasoning(const struct message m[], uint32_t n, struct ids *out)
{
	render_qwen(m, n, out);
	put_text(out, "<think>\n\n</think>\n\n");
}

static void render_llama3(const struct message m[], uint32_t n, struct ids *out)
{
	put_special(out, BOS);
	put_special(out, START);
	put_text(out, "system");
	put_special(out, STOP);
	put_text(out, "\n\nToday Date: 26 Jul 2024\n\n");
	put_text(out, is_role(&m[0], "system") ? m[0].text : "");
	for (uint32_t i = is_role(&m[0], "system"); i <= n; i++) {
		put_special(out, START);
		put_text(out, i < n ? m[i].role : "assistant");
		put_special(out, STOP);
		put_text(out, "\n\n");
		if (i < n)
			put_text(out, m[i].text);
	}
}

/* Tools and system text precede the first user message or (@p at_last) the last. */
static void render_inst(const struct message m[], uint32_t n, struct ids *out, bool at_last)
{
	const uint32_t first = is_role(&m[0], "system"), at = at_last ? last_user(m, n) - 1 : first;

	put_special(out, BOS);
	for (uint32_t i = first; i < n; i++) {
		if (!is_role(&m[i], "user")) {
			put_text(out, m[i].text);
			put_special(out, STOP);
			continue;
		}
		if (i == at && tools != NULL)
			put_text(out, tools);
		put_special(out, INST);
		if (i == at && first)
			put_text(out, m[0].text);
		put_text(out, m[i].text);
		put_special(out, INST_END);
	}
}

static void render_llama2(const struct message m[], uint32_t n, struct ids *out)
{
	render_inst(m, n, out, false);
}

static void render_mistral(const struct message m[], uint32_t n, struct ids *out)
{
	render_inst(m, n, out, true);
}

/* Templates that cannot be split: message numbers, a total, or a checksum at the end. */
static void render_numbered(const struct message m[], uint32_t n, struct ids *out)
{
	for (uint32_t i = 0; i < n; i++) {
		put_special(out, START + 100 + i);
		put_text(out, m[i].text);
	}
}

static void render_counted(const struct message m[], uint32_t n, struct ids *out)
{
	put_special(out, 2000 + n);
	render_qwen(m, n, out);
}

static void render_summed(const struct message m[], uint32_t n, struct ids *out)
{
	render_qwen(m, n, out);
	put_special(out, 5000 + out->n);
}

/* --- combining turns -------------------------------------------------------------------------- */

typedef void template(const struct message m[], uint32_t n, struct ids *out);

static const struct message TALK[] = {
	{"system", "Answer briefly, and in the language of the question.", NULL},
	{"user", "x", NULL},
	{"assistant", "\nYes: x is a letter.", "Is it a letter?"},
	{"user", "And the one behind it?", NULL},
	{"assistant", "", "I must look."},
	{"tool", "{\"next\": \"y\"}", NULL},
	{"assistant", "<think>y", "The tool agrees."},
	{"user", "x", NULL},
	{"assistant", "Yes, still.", NULL},
	{"user", "Good.\n\n", NULL},
};

enum found { NOTHING, RIGHT, WRONG };

/* Combine the ids of messages 1..n from those of 1..k. */
static enum found join_turn(template *render, const struct message m[], uint32_t k, uint32_t n)
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

/* Count the splits of the conversation with this result. */
static uint32_t try_cuts(template *render, bool system, enum found what)
{
	const uint32_t first = system ? 0 : 1, all = sizeof(TALK) / sizeof(TALK[0]);
	uint32_t found = 0;

	for (uint32_t k = 2; k < all; k++)
		for (uint32_t n = k + 2; is_role(&TALK[k - 1], "user") && n <= all; n++)
			if (k - first >= 1 && !is_role(&TALK[n - 1], "assistant"))
				found += join_turn(render, TALK + first, k - first, n - first) ==
					 what;
	return found;
}

#define CUTS 8u /* from a user's message to a later one of a user or tool */

static void common_templates_combine(void)
{
	template *const all[] = {render_qwen, render_qwen_without_reasoning, render_llama3,
				 render_llama2};

	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int how = 0; how < 4; how++) {
			tools = how & 1 ? "\n# Tools\n{\"name\": \"next\"}\n" : NULL;
			CU_ASSERT_EQUAL(try_cuts(all[i], how & 2, RIGHT), CUTS);
			CU_ASSERT_EQUAL(try_cuts(all[i], how & 2, WRONG), 0);
		}
	tools = NULL;
	CU_ASSERT_EQUAL(try_cuts(render_mistral, false, RIGHT), CUTS);
}

static void position_dependent_templates_do_not_combine(void)
{
	template *const all[] = {render_numbered, render_counted, render_summed};

	for (unsigned int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(try_cuts(all[i], true, RIGHT), 0);
		CU_ASSERT_EQUAL(try_cuts(all[i], true, NOTHING) + try_cuts(all[i], true, WRONG),
				CUTS);
	}
	CU_ASSERT_EQUAL(try_cuts(render_mistral, true, WRONG),
			CUTS - 1);				   /* the system text moves */
	CU_ASSERT_EQUAL(try_cuts(render_mistral, true, RIGHT), 1); /* but stays if a tool answers */
}

static void inconsistent_answers_do_not_combine(void)
{
	static const uint32_t t[] = {1, 2, 3, 4}, other[] = {9, 3, 4}, s[] = {1, 2, 3, 5};
	uint32_t n;

	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 0, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 1, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, t, 4, s, 0, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 0, t, 4, s, 4, &n));
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 4, other, 3, s, 4, &n)); /* no common head */
	CU_ASSERT_PTR_NULL(gw_turns_join(t, 3, t, 4, s, 4, &n));     /* T ends differently */
}

/* No more ids than a single question may have; otherwise a conversation would grow without
 * limit. */
static void combined_ids_are_limited(void)
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

/* --- where to split
 * ---------------------------------------------------------------------------- */

static struct gw_lru *l;
static char body[MAX];
static const char LONG[] =
	"a system text that is longer than all that is behind it together, for else nothing would be saved by leaving it out of the questions that are asked, and the whole would be asked for as it always has been";

/* The messages @p rest, after a system text and a first question. */
static struct gw_turns_cut find_cut(const char *rest, const char *more, const char *others)
{
	struct gw_turns_cut out;
	struct gw_hints hints = {0};
	struct gw_ask a;
	char err[256];

	snprintf(
		body, sizeof(body),
		"{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"%s\"}, {\"role\":\"user\",\"content\":\"q\"}%s]%s}",
		LONG, rest, more);
	CU_ASSERT_EQUAL_FATAL(
		gw_ask_read(&a, GW_CHAT, body, strlen(body), &hints, err, sizeof(err)), 0);
	gw_turns_cut(&a, l, others, strlen(others), &out);
	return out;
}

#define ANSWER ",{\"role\":\"assistant\",\"content\":\"a\"}"
#define AGAIN  ",{\"role\":\"user\",\"content\":\"q2\"}"

static void the_longest_known_prefix_is_found(void)
{
	static const uint32_t ids[] = {1, 2, 3};
	struct gw_turns_cut first, second, third;

	l = gw_lru_create(1 << 20, 7);
	first = find_cut("", "", "{}");
	CU_ASSERT_PTR_NULL(first.from);
	CU_ASSERT_PTR_NULL(find_cut(ANSWER AGAIN, "", "{}").from); /* nothing is known */
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NULL(find_cut("", "", "{}").from); /* everything is known */
	second = find_cut(ANSWER AGAIN, "", "{}");
	CU_ASSERT_PTR_NOT_NULL_FATAL(second.from);
	CU_ASSERT_EQUAL(memcmp(&second.before, &first.whole, sizeof(first.whole)), 0);
	CU_ASSERT_EQUAL(memcmp(second.from, "{\"role\":\"user\",\"content\":\"q\"}", 29), 0);
	CU_ASSERT_EQUAL(second.one, 29);
	CU_ASSERT_EQUAL(second.part, 29 + strlen(ANSWER AGAIN));
	gw_lru_put(l, &second.whole, ids, 3);
	third = find_cut(ANSWER AGAIN ANSWER, "", "{}");
	CU_ASSERT_EQUAL(memcmp(&third.before, &second.whole, sizeof(third.before)), 0);
	CU_ASSERT_EQUAL(third.one, strlen(AGAIN) - 1);
	gw_lru_put(l, &third.whole, ids, 3);
	CU_ASSERT_PTR_NULL(find_cut(ANSWER AGAIN ANSWER, "", "{}").from);
	/* An answer is no place to split. */
	third = find_cut(ANSWER AGAIN ANSWER AGAIN, "", "{}");
	CU_ASSERT_EQUAL(memcmp(&third.before, &second.whole, sizeof(third.before)), 0);
	gw_lru_destroy(l);
}

static void unsplittable_questions_are_asked_whole(void)
{
	static const uint32_t ids[] = {1, 2, 3};
	struct gw_turns_cut first;
	char twice[2 * sizeof(LONG)];

	snprintf(twice, sizeof(twice), "%s%s", LONG, LONG);
	l = gw_lru_create(1 << 20, 7);
	first = find_cut("", "", "{}");
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NOT_NULL(find_cut(ANSWER AGAIN, "", "{}").from);
	CU_ASSERT_PTR_NOT_NULL(find_cut(ANSWER, ",\"continue_final_message\":false", "{}").from);
	CU_ASSERT_PTR_NULL(find_cut(ANSWER, ",\"continue_final_message\":true", "{}").from);
	CU_ASSERT_PTR_NULL(find_cut(ANSWER AGAIN, ",\"chat_template\":\"x\"", "{}").from);
	CU_ASSERT_PTR_NULL(
		find_cut(ANSWER AGAIN, "", "{\"tools\":[]}").from); /* another question */
	first = find_cut("", "", twice);
	gw_lru_put(l, &first.whole, ids, 3);
	CU_ASSERT_PTR_NULL(find_cut(ANSWER AGAIN, "", twice).from); /* the rest is asked twice */
	gw_lru_destroy(l);
}

/* --- when results are trusted
 * ------------------------------------------------------------------ */

static struct gw_lru_key model_key(uint64_t number)
{
	return (struct gw_lru_key){{number, ~number}};
}

#define US   1u /* sources */
#define THEM 2u

static enum gw_turns_way next_way(struct gw_turns *ts, const struct gw_lru_key *m, uint64_t now)
{
	return gw_turns_way(ts, m, US, now);
}

/* Compare turns until results are trusted. */
static void check_right_turns(struct gw_turns *ts, const struct gw_lru_key *m)
{
	for (unsigned int i = 0; i < GW_TURNS_FIRST; i++)
		gw_turns_found(ts, m, US, GW_TURNS_IS_RIGHT, 5);
	CU_ASSERT_EQUAL(next_way(ts, m, 5), GW_TURNS_SHORT);
}

static void first_turns_and_some_later_are_compared(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1);
	uint32_t both = 0;

	for (unsigned int i = 0; i < GW_TURNS_FIRST; i++) {
		CU_ASSERT_EQUAL(next_way(&ts, &m, 5), GW_TURNS_BOTH);
		CU_ASSERT_EQUAL(next_way(&ts, &m, 5), GW_TURNS_BOTH); /* not answered yet */
		gw_turns_found(&ts, &m, i % 2 != 0 ? US : THEM, GW_TURNS_IS_RIGHT, 5);
	}
	for (unsigned int i = 0; i < 10 * GW_TURNS_EVERY; i++)
		both += next_way(&ts, &m, 5) == GW_TURNS_BOTH;
	CU_ASSERT_EQUAL(both, 10);
}

static void one_difference_switches_a_source_off(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1), good = model_key(2);

	check_right_turns(&ts, &m);
	check_right_turns(&ts, &good);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_WRONG, 100);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &good, 100), GW_TURNS_SHORT);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_VAIN, 101); /* not earlier because of that */
	CU_ASSERT_EQUAL(next_way(&ts, &m, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100 + GW_TURNS_OFF_MS), GW_TURNS_BOTH);
}

/* A client's text can cause differences. They are tested again at intervals only. */
static void a_source_switches_off_its_own_turns(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1);

	check_right_turns(&ts, &m);
	for (unsigned int i = 0; i < 100; i++)
		gw_turns_found(&ts, &m, THEM, GW_TURNS_IS_WRONG, 100);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 100), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100), GW_TURNS_BOTH); /* it may be the template */
	check_right_turns(&ts, &m);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, THEM, 100 + GW_TURNS_OFF_MS), GW_TURNS_SHORT);
}

static void several_sources_switch_off_the_model(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1), good = model_key(2);

	for (uint64_t i = 0; i < GW_TURNS_SOURCES; i++) {
		CU_ASSERT_EQUAL(next_way(&ts, &m, 100 + i), GW_TURNS_BOTH);
		gw_turns_found(&ts, &m, 100 + i, GW_TURNS_IS_WRONG, 100 + i);
	}
	CU_ASSERT_EQUAL(next_way(&ts, &m, 200), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &good, 200), GW_TURNS_BOTH);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 99 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100 + GW_TURNS_OFF_MS), GW_TURNS_BOTH);
	/* Sources that are off remain off. */
	CU_ASSERT_EQUAL(gw_turns_way(&ts, &m, 101, 100 + GW_TURNS_OFF_MS), GW_TURNS_WHOLE);
}

/* A tokenizer that was too slow, or rejected a part, does not affect trust. */
static void an_unanswered_turn_is_not_wrong(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1);

	check_right_turns(&ts, &m);
	for (uint64_t i = 0; i < 2 * GW_TURNS_SOURCES; i++)
		gw_turns_found(&ts, &m, 100 + i, GW_TURNS_IS_VAIN, 100);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100), GW_TURNS_SHORT);
	gw_turns_found(&ts, &m, US, GW_TURNS_IS_VAIN, 101);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 100 + GW_TURNS_VAIN_MS), GW_TURNS_WHOLE);
	CU_ASSERT_EQUAL(next_way(&ts, &m, 101 + GW_TURNS_VAIN_MS), GW_TURNS_SHORT);
}

static void many_models_evict_the_least_recently_used(void)
{
	struct gw_turns ts = {0};
	const struct gw_lru_key m = model_key(1), other = model_key(2);

	check_right_turns(&ts, &m);
	check_right_turns(&ts, &other);
	for (uint64_t i = 0; i < GW_TURNS_MODELS - 1; i++) {
		const struct gw_lru_key more = model_key(100 + i);

		CU_ASSERT_EQUAL(next_way(&ts, &more, 5), GW_TURNS_BOTH);
		CU_ASSERT_EQUAL(next_way(&ts, &m, 5), GW_TURNS_SHORT);
	}
	CU_ASSERT_EQUAL(next_way(&ts, &other, 5), GW_TURNS_BOTH); /* forgotten */
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(common_templates_combine),
			       KVR_CASE(position_dependent_templates_do_not_combine),
			       KVR_CASE(inconsistent_answers_do_not_combine),
			       KVR_CASE(combined_ids_are_limited),
			       KVR_CASE(the_longest_known_prefix_is_found),
			       KVR_CASE(unsplittable_questions_are_asked_whole),
			       KVR_CASE(first_turns_and_some_later_are_compared),
			       KVR_CASE(one_difference_switches_a_source_off),
			       KVR_CASE(a_source_switches_off_its_own_turns),
			       KVR_CASE(several_sources_switch_off_the_model),
			       KVR_CASE(an_unanswered_turn_is_not_wrong),
			       KVR_CASE(many_models_evict_the_least_recently_used),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway turns", tests);
}
