/* SPDX-License-Identifier: BSD-3-Clause */
/* Classification of drain requests in heartbeats. */
#include "kvr_drain_request.h"
#include "kvr_test.h"

#define DRAIN(n)  ((uint32_t)(n) << 16 | KVR_BEAT_F_DRAIN)
#define RESUME(n) ((uint32_t)(n) << 16)

static void a_drain_is_requested_and_withdrawn(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(2), DRAIN(1), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_RESUME);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(2), DRAIN(1), KVR_WORKER_DRAINED),
			KVR_DRAIN_REQUEST_RESUME);
}

static void each_request_is_acted_on_once(void)
{
	/* The operator has resumed the worker; its request is unchanged. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), DRAIN(1), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	/* The operator has drained the worker; its last request was to resume. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(2), RESUME(2), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void a_delayed_heartbeat_has_an_older_request(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), RESUME(2), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(0xffff), DRAIN(0), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void numbers_wrap(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(0), RESUME(0xffff), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(3), RESUME(0xfff0), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(0xfff0), DRAIN(3), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
}

static void a_request_for_the_current_state_is_stored(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_DRAINED),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(5), DRAIN(4), KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_AS_IS);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(RESUME(1), 0, KVR_WORKER_SUSPECT),
			KVR_DRAIN_REQUEST_AS_IS);
}

static void an_incarnation_starts_without_a_request(void)
{
	CU_ASSERT_EQUAL(kvr_drain_request_classify(0, 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_OLD);
	CU_ASSERT_EQUAL(kvr_drain_request_classify(0, DRAIN(7), KVR_WORKER_DRAINING),
			KVR_DRAIN_REQUEST_OLD);
	/* An incarnation without a request accepts any number. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(0x9000), 0, KVR_WORKER_SERVING),
			KVR_DRAIN_REQUEST_DRAIN);
	/* A suspect worker: the request is new; whether it can be drained is decided elsewhere. */
	CU_ASSERT_EQUAL(kvr_drain_request_classify(DRAIN(1), 0, KVR_WORKER_SUSPECT),
			KVR_DRAIN_REQUEST_DRAIN);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_drain_is_requested_and_withdrawn),
			       KVR_CASE(each_request_is_acted_on_once),
			       KVR_CASE(a_delayed_heartbeat_has_an_older_request),
			       KVR_CASE(numbers_wrap),
			       KVR_CASE(a_request_for_the_current_state_is_stored),
			       KVR_CASE(an_incarnation_starts_without_a_request),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("drain_request", tests);
}
