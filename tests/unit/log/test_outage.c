/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines about an unresponsive peer: when, how often, and when the peer answers again. */
#include "kvr_outage.h"

#include "kvr_test.h"

#define START 1000000u /* ms; the clock does not start at 0 */

static struct kvr_outage s;

static enum kvr_outage_line take_turn(uint64_t ms, bool answered)
{
	return kvr_outage_turn(&s, START + ms, answered, KVR_OUTAGE_MS);
}

static void begin_outage(void)
{
	s = (struct kvr_outage){0};
	kvr_outage_begin(&s, START);
}

/* Number of lines in [@p from, @p until) with a turn every 100 ms. */
static unsigned int count_lines(uint64_t from, uint64_t until)
{
	unsigned int n = 0;

	for (uint64_t ms = from; ms < until; ms += 100)
		n += take_turn(ms, false) == KVR_OUTAGE_SILENT;
	return n;
}

static void an_outage_is_logged_after_three_seconds(void)
{
	begin_outage();
	CU_ASSERT_EQUAL(take_turn(0, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(take_turn(2999, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(take_turn(3000, false), KVR_OUTAGE_SILENT);
}

static void an_outage_is_logged_once_a_minute(void)
{
	begin_outage();
	CU_ASSERT_EQUAL(count_lines(0, 63000), 1);
	CU_ASSERT_EQUAL(take_turn(63000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(count_lines(63100, 603100), 9);
}

static void the_first_answer_is_logged_once(void)
{
	begin_outage();
	CU_ASSERT_EQUAL(take_turn(3000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(take_turn(4000, true), KVR_OUTAGE_ANSWERS);
	CU_ASSERT_EQUAL(take_turn(4100, true), KVR_OUTAGE_NO_LINE);
}

static void a_responsive_peer_is_not_logged(void)
{
	begin_outage();
	for (uint64_t ms = 0; ms < 100000; ms += 2900)
		CU_ASSERT_EQUAL(take_turn(ms, true), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(take_turn(100000, false), KVR_OUTAGE_NO_LINE);
}

/* An intermittent peer does not fill the log. */
static void a_second_outage_waits_for_its_minute(void)
{
	begin_outage();
	CU_ASSERT_EQUAL(take_turn(3000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(take_turn(4000, true), KVR_OUTAGE_ANSWERS);
	CU_ASSERT_EQUAL(take_turn(8000, false), KVR_OUTAGE_NO_LINE);
	/* Not logged, because the outage was not. */
	CU_ASSERT_EQUAL(take_turn(9000, true), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(take_turn(63000, false), KVR_OUTAGE_SILENT);
}

/* An hour without a request. */
static void time_before_the_first_request_does_not_count(void)
{
	begin_outage();
	CU_ASSERT_EQUAL(take_turn(3000, false), KVR_OUTAGE_SILENT);
	kvr_outage_begin(&s, START + 3600000);
	CU_ASSERT_EQUAL(take_turn(3602999, false), KVR_OUTAGE_NO_LINE);
	CU_ASSERT_EQUAL(take_turn(3603000, false), KVR_OUTAGE_SILENT);
	CU_ASSERT_EQUAL(take_turn(3604000, true), KVR_OUTAGE_ANSWERS);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_outage_is_logged_after_three_seconds),
			       KVR_CASE(an_outage_is_logged_once_a_minute),
			       KVR_CASE(the_first_answer_is_logged_once),
			       KVR_CASE(a_responsive_peer_is_not_logged),
			       KVR_CASE(a_second_outage_waits_for_its_minute),
			       KVR_CASE(time_before_the_first_request_does_not_count),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("outage", tests);
}
