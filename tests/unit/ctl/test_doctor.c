/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each rule of doctor with its fault and without it: a healthy router looked at twice, 10 s apart,
 * in which each case changes what its fault changes.
 */
#include "doctor.h"

#include <string.h>

#include "kvr_test.h"

/* Two looks at a router that works: one worker, requests, events, predictions that are right. */
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

/* What is not the same 10 s later. */
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
	const char *was, *is; /* what is different then; "" = nothing */
	const char *says;     /* part of the sentence: the thing and its number */
} faults[] = {
	{"no-events",
	 "{'pools': {'m': {'events': {'frames': 0, 'applied': 0, 'already_applied': 0}}}}",
	 "{'pools': {'m': {'events': {'frames': 0, 'applied': 0, 'already_applied': 0}}}}",
	 "190 requests have ended"},
	{"event-gap", "", "{'pools': {'m': {'events': {'gaps': 3}}}}", "3 frames"},
	{"event-life", "", "{'ingress': {'stale_epoch': 9}}", "8 heartbeats"},
	{"event-regression", "",
	 "{'pools': {'m': {'events': {'already_applied': 150, 'applied': 60}}}}", "149 frames"},
	{"event-unread", "", "{'events': {'m': {'ranks': {'1/0': {'unread': 7}}}}}",
	 "pool m: 5 KV events of its engine could not be read by the agent of rank 1/0"},
	{"event-block-size", "{'events': {'m': {'ranks': {'1/0': {'block_size': 32}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'block_size': 32}}}}}",
	 "KV events of rank 1/0 are about blocks of 32 tokens, the pool has 16"},
	{"event-eagle", "", "{'events': {'m': {'ranks': {'1/0': {'pairs': 1}}}}}",
	 "KV events of rank 1/0 name pairs of tokens (EAGLE), the pool has eagle = false"},
	{"event-eagle", "",
	 "{'pools': {'m': {'eagle': 1}}, 'events': {'m': {'ranks': {'1/0': {'pairs': 0}}}}}",
	 "KV events of rank 1/0 name single tokens, the pool has eagle = true"},
	{"canary-mismatch", "",
	 "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 3}, '1/1': {'canaries_missed': "
	 "3}}}}}",
	 "3 canary prompts in a row did not come back in its engine's events"},
	{"rank-range", "", "{'ingress': {'unknown_rank': 6}}", "6 heartbeats"},
	{"request-unknown", "{'events': {'m': {'ranks': {'1/0': {'engine_requests': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'engine_requests': 0}}}}}",
	 "request 0xa is at rank 1/0 for 60 s, whose engine has none"},
	{"request-stands", "",
	 "{'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'tokens': "
	 "30}}}}}",
	 "request 0xa at rank 1/0 is in flight for 60 s without progress"},
	{"orphan-blocks", "", "{'pools': {'m': {'prefix': {'orphans': 12}}}}", "12 blocks"},
	{"phantom-removals", "", "{'pools': {'m': {'prefix': {'unknown_removes': 300}}}}",
	 "300 blocks"},
	{"no-blocks", "", "{'pools': {'m': {'requests': {'no_blocks': 65}}}}",
	 "60 of 100 requests came without the hash of a whole block of 16 tokens"},
	/* What no engine has told of counts as predicted nowhere but in hits. */
	{"no-actual",
	 "{'pools': {'m': {'requests': {'predicted_cached': 0, 'actual_cached': 0}}},"
	 " 'hits': {'m': {'reported_predicted_tokens': 0}}}",
	 "{'pools': {'m': {'requests': {'predicted_cached': 0, 'actual_cached': 0}}},"
	 " 'hits': {'m': {'reported_predicted_tokens': 0}}}",
	 "39000 cached tokens"},
	{"overprediction", "", "{'pools': {'m': {'requests': {'actual_cached': 12000}}}}",
	 "10000 cached tokens were predicted, the engines found 3100"},
	{"far-from-best", "",
	 "{'hits': {'m': {'prompt_tokens': 60000, 'achieved_tokens': 11000, "
	 "'achievable_tokens': 41000}}}",
	 "20 % of the prompts were cached where they went, 80 % could have been"},
	{"other-hashes", "",
	 "{'hits': {'m': {'reported_predicted_tokens': 19000, 'short': {'nothing_shared': 5000}}}}",
	 "of 10000 cached tokens predicted, engines found none of 5000"},
	{"no-rank-events",
	 "{'events': {'m': {'ranks': {'1/0': {'next_event_id': 0, 'stored': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'next_event_id': 0, 'stored': 0, 'held': 0}}}}}",
	 "rank 1/0 has finished 190 requests and sent no KV event"},
	{"not-authoritative", "{'events': {'m': {'ranks': {'1/0': {'authoritative': 0}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'authoritative': 0}}}}}",
	 "KV events of rank 1/0 are missing for 10 s"},
	{"event-lag", "{'events': {'m': {'ranks': {'1/0': {'lag': 100}}}}}",
	 "{'events': {'m': {'ranks': {'1/0': {'lag': 500}}}}}", "500 KV events of rank 1/0"},
	{"useless-cache", "", "{'loads': {'m': {'ranks': {'1/0': {'predicted_tokens': 9000}}}}}",
	 "rank 1/0 holds 300 blocks, and none of 100 requests"},
	{"unused", "",
	 "{'pools': {'m': {'requests': {'routed': 400}}}, 'loads': {'m': {'ranks': {'1/0': "
	 "{'routed': "
	 "90, 'finished': 90}}}}}",
	 "rank 1/0 got none of 310 requests"},
	{"unheard", "", "{'loads': {'m': {'ranks': {'1/0': {'unacknowledged': 61}}}}}",
	 "rank 1/0 is not silent, but has not acknowledged 60 requests"},
	{"batch-unknown", "",
	 "{'pools': {'m': {'batch_key': 'router_queue_threshold'}}, 'loads': {'m': {'ranks': "
	 "{'1/0': {'max_num_batched_tokens': 0}}}}}",
	 "batch budget of rank 1/0 is unknown, so router_queue_threshold has no effect"},
	{"requests-fail", "",
	 "{'loads': {'m': {'ranks': {'1/0': {'failed': 31, 'unacknowledged': 1}}}}}",
	 "pool m: 30 of 130 requests failed at rank 1/0"},
	{"worker-lost", "{'workers': {'lost': 1, 'workers': {'9': {'state': 'serving'}}}}",
	 "{'workers': {'lost': 2}}",
	 "1 worker was lost in 10 s without a drain, not back: worker 9"},
	{"memory-low", "", "{'buffers': {'buffers': {'jobs_m': {'used': 60}}}}",
	 "jobs_m: 60 of 64 are used"},
	{"empty-pool", "", "{'workers': {'workers': {'1': {'state': 'draining', 'bookings': 0}}}}",
	 "100 requests came"},
	/* A gateway that knows of no worker answers by itself: no request comes. */
	{"empty-pool",
	 "{'workers': {'workers': {'1': {'pool': 'other'}}},"
	 " 'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'pool': 'other'}}}}",
	 "pool m has no worker: no kvroute-agent --pool m is attached"},
	{"expired", "", "{'pools': {'m': {'requests': {'expired': 2}}}}",
	 "pool m: 2 requests were in flight until the client fell silent"},
	{"expired", "", "{'pools': {'m': {'requests': {'expired': 3, 'released': 1}}}}",
	 "pool m: the load of 1 request was released, as no agent reported it for "
	 "active_request_expiry_secs; it goes on"},
	{"queue-stands", "{'pools': {'m': {'requests': {'waiting': 6}}}}",
	 "{'pools': {'m': {'requests': {'waiting': 9}}}}", "9 requests wait"},
	{"slots-full", "", "{'pools': {'m': {'slots_used': 950}}}", "940 of 1000"},
	{"buffers-held", "", "{'pools': {'m': {'frames_held': 460}}}", "460 of at most 500"},
	{"prefill-inactive", "", "{'pools': {'m': {'prefill': 'inactive'}}}", "pool m is inactive"},
	{"table-full", "", "{'pools': {'m': {'prefix': {'evicted_entries': 70}}}}", "70 entries"},
	{"drain-stuck", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'draining', 'state_ms': 45000, 'bookings': 3}}}}",
	 "worker 1 drains for 45 s, 3 requests are left there, the oldest of them 0xa for 60 s"},
	{"drain-stuck", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'draining', 'state_ms': 45000, 'bookings': 3}}},"
	 " 'oldest': {'m': {'requests': {'0x000000000000000a/0x0000000000000001': {'booked': 1, "
	 "'worker': 1}}}}}",
	 "the oldest of them 0xa for 60 s, run by its client (/pick)"},
	{"suspect", "{'pools': {'m': {'requests': {'routes': 200, 'no_blocks': 25}}}}",
	 "{'workers': {'workers': {'1': {'state': 'suspect', 'silent_ms': 700}}}}",
	 "worker 1 is silent for 700 ms"},
	{"refused", "",
	 "{'refused': {'workers': {'9': {'code': 'WorkerConfig', 'address': '10.0.0.3:7', "
	 "'age_ms': "
	 "30, 'text': 'block_size: got 32, pool m has 16'}}}}",
	 "worker 9 at 10.0.0.3:7 is refused (WorkerConfig): block_size: got 32, pool m has 16"},
	{"stall", "", "{'stages': {'lcore0': {'max_turn_cycles': 100000000}}}", "50 ms"},
	{"cpu-shared", "", "{'host': {'77': {'wait_ms': 3010.0}}}", "3000 of 10000 ms for its CPU"},
	{"cpu-shared", "",
	 "{'stages': {'lcore1': {'cpu': 2}}, 'host': {'77': {'wait_ms': 3010.0}}}",
	 "(rte-worker-1) has waited 3000 of 10000 ms for its CPU, which 2 polling lcores have"},
	{"cpu-shared", "",
	 "{'stages': {'lcore1': {'cpu': 2}},"
	 " 'host': {'77': {'name': 'dpdk-worker1', 'wait_ms': 3010.0}}}",
	 "(dpdk-worker1) has waited 3000 of 10000 ms for its CPU, which 2 polling lcores have"},
	{"buffers-low", "", "{'ports': {'p0': {'mbufs_free': 700}}}", "700 of 8000"},
	{"device-loses", "", "{'ports': {'p0': {'device': {'imissed': 10}}}}", "7 frames (full)"},
	{"xdp-off", "", "{'xdp': {'p0': {'redirect': 'off'}}}", "port p0 hears nobody"},
	{"xdp-no-socket", "", "{'xdp': {'p0': {'no_socket': 9}}}", "port p0: 5 frames"},
	{"link-down", "", "{'ports': {'p0': {'link_up': 0}}}", "port p0 has no link"},
	{"drops", "", "{'drops': {'reject_busy': 40, 'ingress_bad_magic': 10}}",
	 "50 frames or requests were refused or dropped in 10 s, most of them as reject_busy (40)"},
	{"unbalanced", "{'balance': {'balance': 'violated'}}",
	 "{'balance': {'balance': 'violated', 'violation': 'x = y, but 1 != 2'}}", "1 != 2"},
	{"clock", "", "{'info': {'uptime_ms': 52000}}", "2000 ms in 10000 ms"},
	{"log-lost", "", "{'log': {'buffer_full': 8}}", "8 lines"},
};

#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

/* JSON with ' for ". */
static json_t *parse(const char *text)
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

static void change(json_t *look, const char *text)
{
	json_t *by;

	if (*text == '\0')
		return;
	by = parse(text);
	CU_ASSERT_EQUAL(json_object_update_recursive(look, by), 0);
	json_decref(by);
}

static json_t *findings(const char *was_more, const char *is_more)
{
	json_t *was = parse(was_text), *is = parse(was_text), *found;

	change(was, was_more);
	change(is, is_text);
	change(is, is_more);
	found = doctor_findings(was, is, 30);
	json_decref(was);
	json_decref(is);
	return found;
}

static const char *member(const json_t *found, size_t i, const char *name)
{
	const char *s = json_string_value(json_object_get(json_array_get(found, i), name));

	return s != NULL ? s : "";
}

static void a_healthy_router_has_no_finding(void)
{
	json_t *found = findings("", "");

	for (size_t i = 0; i < json_array_size(found); i++)
		printf("%s: %s\n", member(found, i, "rule"), member(found, i, "says"));
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* The machine was busy elsewhere while doctor looked: nobody's clock is wrong. */
static void an_answer_may_take_long(void)
{
	json_t *found = findings("{'info_at': 103.0}", "");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = findings("", "{'info_at': 117.0, 'info': {'uptime_ms': 66900}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = findings("", "{'info': {'epoch': 8, 'uptime_ms': 900}}"); /* it was restarted */
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* Who says nothing at all is suspect, whatever it had. */
static void a_silent_worker_has_one_line(void)
{
	json_t *found = findings("", "{'loads': {'m': {'ranks': {'1/0': {'why': 'suspect', "
				     "'eligible': 0, 'unacknowledged': 61}}}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* It may come back, or has just gone, or the router has just started; a prefill pool has a line of
 * its own. */
static void a_pool_that_is_empty_for_now_is_no_fault(void)
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
		 "prefill-inactive"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *found = findings(cases[i].was, cases[i].is);

		CU_ASSERT_EQUAL(json_array_size(found), cases[i].rule != NULL);
		if (cases[i].rule != NULL)
			CU_ASSERT_STRING_EQUAL(member(found, 0, "rule"), cases[i].rule);
		json_decref(found);
	}
#undef QUIET
#undef NONE
}

/* Events that do not say whether they name pairs contradict no pool. */
static void an_unknown_form_of_events_is_no_fault(void)
{
	json_t *found = findings("", "{'pools': {'m': {'eagle': 1}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

/* It was found, and the next one came back; or it is another worker's; or it is the first. */
static void a_canary_that_comes_back_is_no_fault(void)
{
	json_t *found = findings("{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 3}}}}}",
				 "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 0}}}}}");

	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = findings("", "{'events': {'m': {'ranks': {'11/0': {'canaries_missed': 3}}}}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
	found = findings("", "{'events': {'m': {'ranks': {'1/0': {'canaries_missed': 1}}}}}");
	CU_ASSERT_EQUAL(json_array_size(found), 0);
	json_decref(found);
}

static void each_fault_has_its_line_and_no_other(void)
{
	for (size_t i = 0; i < N_FAULTS; i++) {
		json_t *found = findings(faults[i].was, faults[i].is);
		const bool good = json_array_size(found) == 1 &&
				  strcmp(member(found, 0, "rule"), faults[i].rule) == 0 &&
				  strstr(member(found, 0, "says"), faults[i].says) != NULL &&
				  *member(found, 0, "remedy") != '\0';

		CU_ASSERT_TRUE(good);
		for (size_t k = 0; k < json_array_size(found) && !good; k++)
			printf("%s: found %s: %s\n", faults[i].rule, member(found, k, "rule"),
			       member(found, k, "says"));
		if (json_array_size(found) == 0)
			printf("%s: nothing is found\n", faults[i].rule);
		json_decref(found);
	}
}

static void each_rule_has_a_fault_here(void)
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

/* A router that has just started, an older one that tells less, and nonsense. */
static void little_is_known_without_a_fault(void)
{
	static const char *const texts[] = {"{}", "{'at': 5, 'pools': {'m': {}}}",
					    "{'at': 'x', 'pools': 7, 'stages': {'lcore0': 3}}",
					    "{'pools': {'m': null}, 'workers': {'workers': []}}"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
			json_t *was = parse(texts[i]), *is = parse(texts[k]);
			json_t *found = doctor_findings(was, is, 30);

			CU_ASSERT_EQUAL(json_array_size(found), 0);
			json_decref(found);
			json_decref(was);
			json_decref(is);
		}
}

/* Its agent would have asked again: it has gone, unless that was while it was looked for. */
static void who_was_refused_before_is_no_fault(void)
{
	static const char text[] =
		"{'at': 110, 'refused': {'workers': {'9': {'code': 'WorkerConfig', "
		"'address': '10.0.0.3:7', 'age_ms': 12500}}}}";
	static const struct {
		const char *was;
		size_t found;
	} cases[] = {{"{'at': 100}", 0}, {"{'at': 97}", 1}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *was = parse(cases[i].was), *is = parse(text);
		json_t *found = doctor_findings(was, is, 30);

		CU_ASSERT_EQUAL(json_array_size(found), cases[i].found);
		json_decref(found);
		json_decref(was);
		json_decref(is);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"healthy", a_healthy_router_has_no_finding},
		{"faults", each_fault_has_its_line_and_no_other},
		{"rules", each_rule_has_a_fault_here},
		{"slow answers", an_answer_may_take_long},
		{"silent", a_silent_worker_has_one_line},
		{"empty for now", a_pool_that_is_empty_for_now_is_no_fault},
		{"canary comes back", a_canary_that_comes_back_is_no_fault},
		{"unknown form", an_unknown_form_of_events_is_no_fault},
		{"refused before", who_was_refused_before_is_no_fault},
		{"little", little_is_known_without_a_fault},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("doctor", tests);
}
