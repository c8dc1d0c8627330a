/* SPDX-License-Identifier: BSD-3-Clause */
/* Every event in every state of a request. */
#include "kvr_life.h"

#include "kvr_test.h"
#include <stdio.h>

/* Rows: states. Columns: hold send fail release | opened taken refused item fin abort_acked |
 * cancel fin_acked. A letter: the next state (Free Queued Held Dispatched Running Ended), lower
 * case where it stays the same; ~ late; . never. */
static const char *const picture[KVR_RQ_STATES] = {
	[KVR_RQ_FREE] = "............",	   [KVR_RQ_QUEUED] = "HDEF......E.",
	[KVR_RQ_HELD] = ".DE.h.....E.",	   [KVR_RQ_DISPATCHED] = ".dE.~RERE.E.",
	[KVR_RQ_RUNNING] = "..E.~~.rE.E.", [KVR_RQ_ENDED] = "..~F~~~~~e~F",
};
static const char letters[] = "FQHDRE";

static void every_event_in_every_state(void)
{
	for (unsigned int s = 0; s < KVR_RQ_STATES; s++)
		for (unsigned int e = 0; e < KVR_LIFE_EVENTS; e++) {
			const char want = picture[s][e];
			enum kvr_flight_state next = KVR_RQ_STATES;
			enum kvr_life_verdict v = kvr_life(s, e, &next);
			char got = '.';

			if (v == KVR_LIFE_LATE)
				got = '~';
			else if (v == KVR_LIFE_GO)
				got = next == s ? (char)(letters[next] + 'a' - 'A') : letters[next];
			if (got != want)
				fprintf(stderr, "%s: %s: got %c, want %c\n", kvr_life_state_name(s),
					kvr_life_event_name(e), got, want);
			CU_ASSERT_EQUAL(got, want);
			if (v != KVR_LIFE_GO)
				CU_ASSERT_EQUAL(next, s);
		}
}

/* What peers say never brings a request back to life, and never makes it wait. */
static void peers_only_move_it_forward(void)
{
	for (unsigned int s = 0; s < KVR_RQ_STATES; s++)
		for (unsigned int e = KVR_LIFE_OPENED; e < KVR_LIFE_EVENTS; e++) {
			enum kvr_flight_state next;

			if (kvr_life(s, e, &next) == KVR_LIFE_GO && next != KVR_RQ_FREE)
				CU_ASSERT_TRUE(next >= s);
		}
}

static void what_is_no_state_or_event_is_never_allowed(void)
{
	enum kvr_flight_state next;

	CU_ASSERT_EQUAL(kvr_life(KVR_RQ_STATES, KVR_LIFE_FAIL, &next), KVR_LIFE_NEVER);
	CU_ASSERT_EQUAL(kvr_life(KVR_RQ_QUEUED, KVR_LIFE_EVENTS, NULL), KVR_LIFE_NEVER);
	CU_ASSERT_EQUAL(kvr_life_state_name(KVR_RQ_STATES)[0], '?');
	CU_ASSERT_EQUAL(kvr_life_event_name(KVR_LIFE_EVENTS)[0], '?');
	for (unsigned int e = 0; e < KVR_LIFE_EVENTS; e++)
		CU_ASSERT_NOT_EQUAL(kvr_life_event_name(e)[0], '?');
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"table", every_event_in_every_state},
		{"forward", peers_only_move_it_forward},
		{"range", what_is_no_state_or_event_is_never_allowed},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("life", tests);
}
