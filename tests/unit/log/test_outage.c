/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines about somebody who does not answer: when, how often, and when he does again. */
#include "kvr_outage.h"

#include "kvr_test.h"

#define START 1000000u /* ms: a clock that has run for a while */

static struct kvr_outage s;

static enum kvr_outage_line turn(uint64_t ms, bool heard)
{
	return kvr_outage_turn(&s, START + ms, heard, KVR_OUTAGE_MS);
}

static void begin(void)
{
	s = (struct kvr_outage){0};
	kvr_outage_begin(&s, START);
}

/* How many lines there are from @p from on, a turn each 100 ms. */
static unsigned int lines(uint64_t from, uint64_t until)
{
	unsigned int n = 0;

	for (uint64_t ms = from; ms < until; ms += 100)
		n += turn(ms, false) == KVR_OUTAGE_SILENT;
	return n;
}

static void silence_is_said_after_three_seconds(void)
{
	begin();
	CU_ASSERT_EQUAL(turn(0, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(turn(2999, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(turn(3000, false), KVR_OUTAGE_SILENT);
}

static void and_once_a_minute(void)
{
	begin();
	CU_ASSERT_EQUAL(lines(0, 63000), 1);
	CU_ASSERT_EQUAL(turn(63000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(lines(63100, 603100), 9);
}

static void the_first_answer_is_said_once(void)
{
	begin();
	CU_ASSERT_EQUAL(turn(3000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(turn(4000, true), KVR_OUTAGE_ANSWERS);
	CU_ASSERT_EQUAL(turn(4100, true), KVR_OUTAGE_NO_LINE);
}

static void who_answers_is_not_spoken_of(void)
{
	begin();
	for (uint64_t ms = 0; ms < 100000; ms += 2900)
		CU_ASSERT_EQUAL(turn(ms, true), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(turn(100000, false), KVR_OUTAGE_NO_LINE);
}

/* One who comes and goes does not fill the log. */
static void another_silence_waits_for_its_minute(void)
{
	begin();
	CU_ASSERT_EQUAL(turn(3000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(turn(4000, true), KVR_OUTAGE_ANSWERS);
	CU_ASSERT_EQUAL(turn(8000, false), KVR_OUTAGE_NO_LINE);
	/* Its end is not said, as it was not said itself. */
	CU_ASSERT_EQUAL(turn(9000, true), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(turn(63000, false), KVR_OUTAGE_SILENT);
}

/* Nobody was asked for an hour. */
static void time_before_the_question_is_no_silence(void)
{
	begin();
	CU_ASSERT_EQUAL(turn(3000, false), KVR_OUTAGE_SILENT);
	kvr_outage_begin(&s, START + 3600000);
	CU_ASSERT_EQUAL(turn(3602999, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(turn(3603000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(turn(3604000, true), KVR_OUTAGE_ANSWERS);
}

int main(void)
{
	CU_TestInfo tests[] = {{"after three seconds", silence_is_said_after_three_seconds},
			       {"once a minute", and_once_a_minute},
			       {"the first answer", the_first_answer_is_said_once},
			       {"who answers", who_answers_is_not_spoken_of},
			       {"another silence", another_silence_waits_for_its_minute},
			       {"before the question", time_before_the_question_is_no_silence},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("silence", tests);
}
