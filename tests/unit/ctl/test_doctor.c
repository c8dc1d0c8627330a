/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rule of the doctor, with and without its fault: two samples of a healthy router, 10 s apart;
 * each case changes the members that its fault changes. */
#include "doctor.h"

#include <string.h>

#include "kvr_test.h"

/* First sample of a healthy router: one worker, requests, events, correct predictions. */
static const char was_text[] =
	"{'at': 100.0, 'info_at': 100.01, 'info': {'epoch': 7, 'uptime_ms': 50000},"
	" 'workers': {'total': 1, 'workers': {'1': {'state': 'serving', 'pool': 'm', 'bookings': 3,"
	"   'silent_ms': 20, 'state_ms': 40000}}},"
	" 'pools': {'m': {'name': 'm', 'block_size': 16, 'eagle': 0, 'batch_key': '', 'slots': 1000, 'slots_used': "
	"30,"
	"   'slots_lingering': 10, 'frames_held': 5, 'frames_held_max': 500,"
	"   'requests': {'routes': 100, 'routed': 90, 'finished': 90, 'rejected': 0, 'no_blocks': "
	"5, 'waiting': 0, "
	"'admitted': 4,"
	"     'expired': 0, 'released': 0, 'predicted_cached': 9000, 'actual_cached': 8900},"
	"   'events': {'frames': 50, 'applied': 50, 'gaps': 0, 'already_applied': 1, 'stale_epoch': 0},"
	"   'prefix': {'blocks': 400, 'used_bytes': 1000, 'memory_bytes': 100000, 'orphans': 0,"
	"     'evicted_entries': 0, 'dropped': 0, 'removed': 7, 'unknown_removes': 0}}},"
	" 'hits': {'m': {'prompt_tokens': 10000, 'achieved_tokens': 1000, 'achievable_tokens': "
	"1000,"
	"   'reported_predicted_tokens': 9000, 'short': {'nothing_shared': 0}}},"
	" 'loads': {'m': {'total': 1, 'ranks': {'1/0': {'eligible': 1, 'why': 'open', "
	"'active_requests': 0, 'max_num_batched_tokens': 8192, 'unacknowledged': 1,"
	"   'routed': 90, 'finished': 90, 'failed': 1, 'predicted_tokens': 9000}}}},"
	" 'events': {'m': {'total': 1, 'ranks': {'1/0': {'next_event_id': 500, 'authoritative': 1,"
	"   'lag': 3, 'stored': 310, 'held': 300, 'gaps': 0, 'unread': 2, 'block_size': 16,"
	"   'engine_requests': 1}}}},"
	" 'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'age_ms': 50000,"
	"   'state': 'running', 'worker': 1, 'dp_rank': 0, 'booked': 0, 'tokens': 30}}}},"
	" 'ingress': {'unknown_rank': 0, 'stale_epoch': 1},"
	" 'buffers': {'buffers': {'jobs_m': {'size': 64, 'used': 7}, 'mbufs_p0': {'size': 10,"
	"   'used': 10}}},"
	" 'decisions': {'m': {'decisions': {}}},"
	" 'stages': {'tsc_hz': 2000000000, 'lcore0': {'cpu': 2, 'max_turn_cycles': 900000}},"
	" 'host': {'77': {'name': 'rte-worker-1', 'run_ms': 50000.0, 'wait_ms': 10.0}},"
	" 'ports': {'p0': {'link_up': 1, 'mbufs': 8000, 'mbufs_free': 7000,"
	"   'device': {'imissed': 3, 'rx_nombuf': 0, 'ierrors': 0}}},"
	" 'drops': {'p0_rx_other_mac': 5}, 'log': {'buffer_full': 0},"
	" 'refused': {'total': 0, 'workers': {}},"
	" 'xdp': {'p0': {'redirect': 'on', 'no_socket': 4}},"
	" 'balance': {'balance': 'ok', 'violation': ''}}";

/* Differences of the second sample, 10 s later. */
static const char is_text[] =
	"{'at': 110.0, 'info_at': 110.01, 'info': {'uptime_ms': 60000},"
	" 'pools': {'m': {"
	"   'requests': {'routes': 200, 'routed': 190, 'no_blocks': 25, 'finished': 190, "
	"'predicted_cached': 19000,"
	"     'actual_cached': 18500},"
	"   'events': {'frames': 150, 'applied': 149, 'already_applied': 2}}},"
	" 'hits': {'m': {'prompt_tokens': 60000, 'achieved_tokens': 39000,"
	"   'achievable_tokens': 41000, 'reported_predicted_tokens': 19000}},"
	" 'loads': {'m': {'ranks': {'1/0': {'routed': 190, 'finished': 190,"
	"   'predicted_tokens': 19000}}}},"
	" 'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'age_ms': 60000,"
	"   'tokens': 90}}}},"
	" 'host': {'77': {'run_ms': 60000.0, 'wait_ms': 25.0}},"
	" 'drops': {'p0_rx_other_mac': 5000, 'ingress_unknown_request': 100, 'reject_busy': 2}}";

static const struct fault {
	const char *rule;
	const char *was, *is; /* changes to the samples; "": none */
	const char *cause;    /* part of the sentence */
} faults[] = {
	{"no-kv-events",
	 "{'pools': {'m': {'events': {'frames': 0, 'applied': 0, 'already_applied': 0}}}}",
	 "{'pools': {'m': {'events': {'frames': 0, 'applied': 0, 'already_applied': 0}}}}",
	 "190 requests have ended, but no worker has sent KV events"},
	{"kv-event-gap", "", "{'pools': {'m': {'events': {'gaps': 3}}}}", "3 frames"},
	{"stale-epoch", "", "{'ingress': {'stale_epoch': 9}}", "8 heartbeats"},
	{"repeated-kv-events", "",
	 "{'pools': {'m': {'events': {'already_applied': 150, 'applied': 60}}}}", "149 frames"},
	{"unreadable-kv-events", "", "{'events': {'m': {'ranks': {'1/0': {'unread': 7}}}}}",
	 "pool m: the agent of rank 1/0 could not read 5 KV events of its engine"},
	{"block-size-mismatch", "{'events': {'m': {'ranks': {'1/0': {'block_size': 32}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'block_size': 32}}}}}",
	 "KV events of rank 1/0 have blocks of 32 tokens, but block_size is 16"},
	{"eagle-mismatch", "", "{'events': {'m': {'ranks': {'1/0': {'pairs': 1}}}}}",
	 "KV events of rank 1/0 hash pairs of tokens (EAGLE), but the pool has eagle = false"},
	{"eagle-mismatch", "",
	 "{'pools': {'m': {'eagle': 1}}, 'events': {'m': {'ranks': {'1/0': {'pairs': 0}}}}}",
	 "KV events of rank 1/0 hash single tokens, but the pool has eagle = true"},
	{"canary-mismatch", "",
	 "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 3}, '1/1': {'canaries_missed': "
	 "3}}}}}",
	 "requests cannot find blocks of worker 1: 3 canary prompts in a row"},
	{"unknown-rank", "", "{'ingress': {'unknown_rank': 6}}", "6 heartbeats"},
	{"request-unknown-to-engine",
	 "{'events': {'m': {'ranks': {'1/0': {'engine_requests': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'engine_requests': 0}}}}}",
	 "request 0xa has been at rank 1/0 for 60 s, but the engine has no requests"},
	{"stuck-request", "",
	 "{'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'tokens': "
	 "30}}}}}",
	 "request 0xa at rank 1/0 has been in flight for 60 s without progress"},
	{"orphan-blocks", "", "{'pools': {'m': {'prefix': {'orphans': 12}}}}", "12 blocks"},
	{"unknown-block-removals", "", "{'pools': {'m': {'prefix': {'unknown_removes': 300}}}}",
	 "300 blocks"},
	{"requests-without-hashes", "", "{'pools': {'m': {'requests': {'no_blocks': 65}}}}",
	 "60 of 100 requests had neither block hashes nor a block of 16 tokens"},
	/* Without a report of the engine, predicted tokens are counted in hits only. */
	{"no-cached-token-reports",
	 "{'pools': {'m': {'requests': {'predicted_cached': 0, 'actual_cached': 0}}},"
	 " 'hits': {'m': {'reported_predicted_tokens': 0}}}",
	 "{'pools': {'m': {'requests': {'predicted_cached': 0, 'actual_cached': 0}}},"
	 " 'hits': {'m': {'reported_predicted_tokens': 0}}}",
	 "39000 cached tokens"},
	{"overprediction", "", "{'pools': {'m': {'requests': {'actual_cached': 12000}}}}",
	 "10000 cached tokens were predicted, but the engines found 3100"},
	{"missed-cache", "",
	 "{'hits': {'m': {'prompt_tokens': 60000, 'achieved_tokens': 11000, "
	 "'achievable_tokens': 41000}}}",
	 "20 % of the prompt tokens were cached at the chosen ranks, 80 % at the best eligible ranks"},
	{"hash-mismatch", "",
	 "{'hits': {'m': {'reported_predicted_tokens': 19000, 'short': {'nothing_shared': 5000}}}}",
	 "of 10000 cached tokens predicted, 5000 are of requests for which the engine found none"},
	{"rank-without-kv-events",
	 "{'events': {'m': {'ranks': {'1/0': {'next_event_id': 0, 'stored': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'next_event_id': 0, 'stored': 0, 'held': 0}}}}}",
	 "rank 1/0 finished 190 requests without a KV event"},
	{"missing-kv-events", "{'events': {'m': {'ranks': {'1/0': {'authoritative': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'authoritative': 0}}}}}",
	 "KV events of rank 1/0 have been missing for 10 s"},
	{"kv-event-lag", "{'events': {'m': {'ranks': {'1/0': {'lag': 100}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'lag': 500}}}}}",
	 "rank 1/0 is 500 KV events behind its agent"},
	{"no-cache-hits", "", "{'loads': {'m': {'ranks': {'1/0': {'predicted_tokens': 9000}}}}}",
	 "rank 1/0 holds 300 blocks, but 100 requests routed there had no overlap"},
	{"idle-rank", "",
	 "{'pools': {'m': {'requests': {'routed': 400}}}, 'loads': {'m': {'ranks': {'1/0': "
	 "{'routed': "
	 "90, 'finished': 90}}}}}",
	 "rank 1/0 received none of 310 requests"},
	{"unacknowledged-dispatch", "",
	 "{'loads': {'m': {'ranks': {'1/0': {'unacknowledged': 61}}}}}",
	 "rank 1/0 sends heartbeats, but did not acknowledge 60 requests, rerouted to other ranks"},
	{"unknown-batch-budget", "",
	 "{'pools': {'m': {'batch_key': 'router_queue_threshold'}}, 'loads': {'m': {'ranks': {'1/0': {'max_num_batched_tokens': 0}}}}}",
	 "batch budget of rank 1/0 is unknown, so router_queue_threshold has no effect"},
	{"failing-requests", "",
	 "{'loads': {'m': {'ranks': {'1/0': {'failed': 31, 'unacknowledged': 1}}}}}",
	 "pool m: 30 of 130 requests failed at rank 1/0"},
	{"lost-worker", "{'workers': {'lost': 1, 'workers': {'9': {'state': 'serving'}}}}",
	 "{'workers': {'lost': 2}}",
	 "1 worker was lost in 10 s without a drain; still missing: worker 9"},
	{"buffer-shortage", "", "{'buffers': {'buffers': {'jobs_m': {'used': 60}}}}",
	 "jobs_m: 60 of 64 are used"},
	{"empty-pool", "", "{'workers': {'workers': {'1': {'state': 'draining', 'bookings': 0}}}}",
	 "100 requests arrived, but no worker serves the pool"},
	/* A gateway without a worker rejects requests itself: none arrives. */
	{"empty-pool",
	 "{'workers': {'workers': {'1': {'pool': 'other'}}},"
	 " 'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'pool': 'other'}}}}",
	 "pool m has no worker: no kvroute-agent --pool m is attached"},
	{"released-bookings", "", "{'pools': {'m': {'requests': {'expired': 3, 'released': 3}}}}",
	 "the load of 3 requests was released"},
	{"expired-requests", "", "{'pools': {'m': {'requests': {'expired': 2}}}}",
	 "2 requests ended because the client was silent"},
	{"stuck-queue", "{'pools': {'m': {'requests': {'waiting': 6}}}}",
	 "{'pools': {'m': {'requests': {'waiting': 9}}}}", "9 requests wait"},
	{"request-slot-shortage", "", "{'pools': {'m': {'slots_used': 950}}}", "940 of 1000"},
	{"held-frames-limit", "", "{'pools': {'m': {'frames_held': 460}}}", "460 of at most 500"},
	{"inactive-prefill-pool", "", "{'pools': {'m': {'prefill': 'inactive'}}}",
	 "pool m is inactive"},
	{"prefix-table-full", "", "{'pools': {'m': {'prefix': {'evicted_entries': 70}}}}",
	 "70 entries"},
	{"stuck-drain", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'draining', 'state_ms': 45000, 'bookings': 3}}}}",
	 "worker 1 has been draining for 45 s, 3 requests are left, the oldest 0xa for 60 s"},
	{"stuck-drain", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'draining', 'state_ms': 45000, 'bookings': 3}}},"
	 " 'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'booked': 1, "
	 "'worker': 1}}}}}",
	 "the oldest 0xa for 60 s, a booking (/pick) that its client has not ended"},
	{"suspect-worker", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'suspect', 'silent_ms': 700}}}}",
	 "worker 1 has sent no heartbeat for 700 ms"},
	{"rejected-worker", "",
	 "{'refused': {'workers': {'9': {'code': 'WorkerConfig', 'address': '10.0.0.3:7', "
	 "'age_ms': "
	 "30, 'text': 'block_size: got 32, pool m has 16'}}}}",
	 "worker 9 at 10.0.0.3:7 is rejected (WorkerConfig): block_size: got 32, pool m has 16"},
	{"lcore-stall", "", "{'stages': {'lcore0': {'max_turn_cycles': 100000000}}}", "50 ms"},
	{"shared-cpu", "", "{'host': {'77': {'wait_ms': 3010.0}}}", "3000 of 10000 ms for its CPU"},
	{"shared-cpu", "",
	 "{'stages': {'lcore1': {'cpu': 2}}, 'host': {'77': {'wait_ms': 3010.0}}}",
	 "(rte-worker-1) waited 3000 of 10000 ms for its CPU, shared by 2 polling lcores"},
	{"shared-cpu", "",
	 "{'stages': {'lcore1': {'cpu': 2}},"
	 " 'host': {'77': {'name': 'dpdk-worker1', 'wait_ms': 3010.0}}}",
	 "(dpdk-worker1) waited 3000 of 10000 ms for its CPU, shared by 2 polling lcores"},
	{"packet-buffer-shortage", "", "{'ports': {'p0': {'mbufs_free': 700}}}", "700 of 8000"},
	{"device-frame-loss", "", "{'ports': {'p0': {'device': {'imissed': 10}}}}", "7 queue full"},
	{"xdp-redirect-off", "", "{'xdp': {'p0': {'redirect': 'off'}}}",
	 "port p0 receives nothing"},
	{"xdp-queue-without-socket", "", "{'xdp': {'p0': {'no_socket': 9}}}", "port p0: 5 frames"},
	{"link-down", "", "{'ports': {'p0': {'link_up': 0}}}", "port p0 has no link"},
	{"frame-drops", "", "{'drops': {'reject_busy': 40, 'ingress_bad_magic': 10}}",
	 "50 frames or requests were rejected or dropped in 10 s, mostly reject_busy (40)"},
	{"counter-mismatch", "{'balance': {'balance': 'violated'}}",
	 "{'balance': {'balance': 'violated', 'violation': 'x = y, but 1 != 2'}}", "1 != 2"},
	{"clock-drift", "", "{'info': {'uptime_ms': 52000}}", "2000 ms in 10000 ms"},
	{"log-line-loss", "", "{'log': {'buffer_full': 8}}", "8 log lines"},
};

#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

/* Parse JSON with ' in place of ". */
static json_t *parse_json(const char *text)
{
	char buf[4096];
	json_error_t err;
	json_t *v;

	snprintf(buf, sizeof(buf), "%s", text);
	for (char *p = buf; *p != '\0'; p++)
		if (*p == '\'')
			*p = '"';
	v = json_loads(buf, 0, &err);
	if (v == NULL)
		printf("%s: %s\n", err.text, buf);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	return v;
}

static void change_sample(json_t *sample, const char *text)
{
	json_t *by;

	if (*text == '\0')
		return;
	by = parse_json(text);
	CU_ASSERT_EQUAL(json_object_update_recursive(sample, by), 0);
	json_decref(by);
}

static json_t *find_faults(const char *was_more, const char *is_more)
{
	json_t *was = parse_json(was_text), *is = parse_json(was_text), *found;

	change_sample(was, was_more);
	change_sample(is, is_text);
	change_sample(is, is_more);
	found = doctor_find(was, is, 30);
	json_decref(was);
	json_decref(is);
	return found;
}

static const char *get_member(const json_t *found, size_t i, const char *name)
{
	const char *s = json_string_value(json_object_get(json_array_get(found, i), name));

	return s != NULL ? s : "";
}

static void a_healthy_router_has_no_finding(void)
{
	json_t *found = find_faults("", "");

	for (size_t i = 0; i < json_array_size(found); i++)
		printf("%s: %s\n", get_member(found, i, "rule"), get_member(found, i, "cause"));
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* The machine was busy during a sample: the clock of the router is right. */
static void slow_answers_are_no_clock_drift(void)
{
	json_t *found = find_faults("{'info_at': 103.0}", "");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = find_faults("", "{'info_at': 117.0, 'info': {'uptime_ms': 66900}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = find_faults("", "{'info': {'epoch': 8, 'uptime_ms': 900}}"); /* router restarted */
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* A worker without heartbeats is suspect; its unacknowledged requests are no further finding. */
static void an_unresponsive_worker_has_one_finding(void)
{
	json_t *found = find_faults("", "{'loads': {'m': {'ranks': {'1/0': {'why': 'suspect', "
					"'eligible': 0, 'unacknowledged': 61}}}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* The worker may return, has just left, or the router has just started. A prefill pool has its own
 * rule. */
static void a_pool_that_is_empty_for_a_moment_is_no_fault(void)
{
#define QUIET "'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}"
#define NONE  "'workers': {'workers': {'1': {'pool': 'other'}}}"
	static const struct {
		const char *was, *is, *rule;
	} cases[] = {
		{"{" QUIET "}", "{'workers': {'workers': {'1': {'state': 'drained'}}}}", NULL},
		{"{" QUIET "}", "{" NONE "}", NULL},
		{"{" QUIET ", " NONE "}", "{'workers': {'workers': {'1': {'pool': 'm'}}}}", NULL},
		{"{" QUIET ", " NONE "}", "{" NONE ", 'info': {'epoch': 8, 'uptime_ms': 4900}}",
		 NULL},
		{"{" QUIET ", " NONE "}", "{" NONE ", 'info': {'epoch': 8, 'uptime_ms': 5000}}",
		 "empty-pool"},
		{"{" QUIET ", " NONE "}", "{" NONE ", 'pools': {'m': {'prefill': 'active'}}}",
		 "empty-pool"},
		{"{" QUIET ", " NONE "}", "{" NONE ", 'pools': {'m': {'prefill': 'inactive'}}}",
		 "inactive-prefill-pool"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *found = find_faults(cases[i].was, cases[i].is);

		CU_ASSERT_EQUAL(json_array_size(found), cases[i].rule != NULL);
		if (cases[i].rule != NULL)
			CU_ASSERT_STRING_EQUAL(get_member(found, 0, "rule"), cases[i].rule);
		json_decref(found);
	}
#undef QUIET
#undef NONE
}

/* Events without the member "pairs" contradict no pool. */
static void unknown_units_of_events_are_no_fault(void)
{
	json_t *found = find_faults("", "{'pools': {'m': {'eagle': 1}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* Found again; of another worker; the first miss. */
static void a_canary_that_was_found_is_no_fault(void)
{
	json_t *found =
		find_faults("{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 3}}}}}",
			    "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 0}}}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = find_faults("", "{'events': {'m': {'ranks': {'11/0': {'canaries_missed': 3}}}}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = find_faults("", "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 1}}}}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

static void each_fault_has_one_finding_and_no_other(void)
{
	for (size_t i = 0; i < N_FAULTS; i++) {
		json_t *found = find_faults(faults[i].was, faults[i].is);
		const bool good = json_array_size(found) == 1 &&
				  strcmp(get_member(found, 0, "rule"), faults[i].rule) == 0 &&
				  strstr(get_member(found, 0, "cause"), faults[i].cause) != NULL &&
				  *get_member(found, 0, "remedy") != '\0';

		CU_ASSERT_TRUE(good);
		for (size_t k = 0; k < json_array_size(found) && !good; k++)
			printf("%s: found %s: %s\n", faults[i].rule, get_member(found, k, "rule"),
			       get_member(found, k, "cause"));
		if (json_array_size(found) == 0)
			printf("%s: no finding\n", faults[i].rule);
		json_decref(found);
	}
}

static void each_rule_has_a_test(void)
{
	for (const struct doctor_rule *r = doctor_rules; r->name != NULL; r++) {
		bool here = false;

		for (size_t i = 0; i < N_FAULTS; i++)
			here = here || strcmp(faults[i].rule, r->name) == 0;
		if (!here)
			printf("%s has no test\n", r->name);
		CU_ASSERT_TRUE(here);
		CU_ASSERT_TRUE(r->reads != NULL && *r->reads != '\0');
	}
}

/* A router that has just started, an older version with fewer members, and invalid types. */
static void incomplete_samples_have_no_finding(void)
{
	static const char *const texts[] = {"{}", "{'at': 5, 'pools': {'m': {}}}",
					    "{'at': 'x', 'pools': 7, 'stages': {'lcore0': 3}}",
					    "{'pools': {'m': null}, 'workers': {'workers': []}}"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
			json_t *was = parse_json(texts[i]), *is = parse_json(texts[k]);
			json_t *found = doctor_find(was, is, 30);

			CU_ASSERT_EQUAL(json_array_size(found), 0);
			json_decref(found);
			json_decref(was);
			json_decref(is);
		}
}

/* A rejected agent tries again. Without a new rejection it has gone, unless it left between the
 * samples. */
static void an_old_rejection_is_no_fault(void)
{
	static const char text[] =
		"{'at': 110, 'refused': {'workers': {'9': {'code': 'WorkerConfig', "
		"'address': '10.0.0.3:7', 'age_ms': 12500}}}}";
	static const struct {
		const char *was;
		size_t found;
	} cases[] = {{"{'at': 100}", 0}, {"{'at': 97}", 1}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *was = parse_json(cases[i].was), *is = parse_json(text);
		json_t *found = doctor_find(was, is, 30);

		CU_ASSERT_EQUAL(json_array_size(found), cases[i].found);
		json_decref(found);
		json_decref(was);
		json_decref(is);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_healthy_router_has_no_finding),
		KVR_CASE(each_fault_has_one_finding_and_no_other),
		KVR_CASE(each_rule_has_a_test),
		KVR_CASE(slow_answers_are_no_clock_drift),
		KVR_CASE(an_unresponsive_worker_has_one_finding),
		KVR_CASE(a_pool_that_is_empty_for_a_moment_is_no_fault),
		KVR_CASE(a_canary_that_was_found_is_no_fault),
		KVR_CASE(unknown_units_of_events_are_no_fault),
		KVR_CASE(an_old_rejection_is_no_fault),
		KVR_CASE(incomplete_samples_have_no_finding),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("doctor", tests);
}
