/* SPDX-License-Identifier: BSD-3-Clause */
/* What the router does about the wishes of heartbeats. */
#include "kvr_drain_request.h"
#include "kvr_test.h"

#define DRAIN(n) ((uint32_t)(n) << 16 | KVR_BEAT_F_DRAIN)
#define GO_ON(n) ((uint32_t)(n) << 16)

static void a_drain_is_asked_for_and_taken_back(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(2), DRAIN(1), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_RESUME);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(2), DRAIN(1), KVR_WORKER_DRAINED),
			KVR_DRAIN_REQUEST_RESUME);
}

static void each_is_acted_on_once(void)
{
	/* The operator has resumed it, and it still says the same. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), DRAIN(1), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	/* The operator has drained it, and its word before was to go on. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(2), GO_ON(2), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void a_late_heartbeat_has_an_older_one(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), GO_ON(2), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(0xffff), DRAIN(0), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void numbers_wrap(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(0), GO_ON(0xffff), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(3), GO_ON(0xfff0), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(0xfff0), DRAIN(3), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void what_is_so_already_is_remembered(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_DRAINED),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(5), DRAIN(4), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(GO_ON(1), 0, KVR_WORKER_SUSPECT),
			KVR_DRAIN_REQUEST_AS_IS);
}

static void a_life_begins_without_one(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(0, 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(0, DRAIN(7), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
	/* Any number is new to it. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(0x9000), 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	/* Suspect, it is told; whether it may be drained now is another matter. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_SUSPECT),
			KVR_DRAIN_REQUEST_DRAIN);
}

int main(void)
{
	CU_TestInfo tests[] = {{"back and forth", a_drain_is_asked_for_and_taken_back},
			       {"once", each_is_acted_on_once},
			       {"late", a_late_heartbeat_has_an_older_one},
			       {"wrap", numbers_wrap},
			       {"already", what_is_so_already_is_remembered},
			       {"begin", a_life_begins_without_one},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("wish", tests);
}
