/* SPDX-License-Identifier: BSD-3-Clause */
/* The language of scenarios, with an executor that logs its calls. */
#include "kvr_sc_out.h"
#include "kvr_scenario.h"

#include "kvr_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char calls[4096]; /* calls of the executor, a word each */
static struct kvr_sc_req last;
static uint32_t n_polls;

#define TELL(...) snprintf(calls + strlen(calls), sizeof(calls) - strlen(calls), __VA_ARGS__)

static bool start_pool(struct kvr_sc_pool *p, struct kvr_sc_problem *problem)
{
	(void)problem;
	TELL("pool:%s/%u/%g ", p->conf.name, p->conf.block_size, p->conf.queue_threshold);
	return true;
}

static int note_worker(struct kvr_sc_pool *p, const struct kvr_sched_worker *c, const json_t *obj)
{
	(void)p;
	(void)obj;
	TELL("worker:%llu+%u ", (unsigned long long)c->id, c->dp_size);
	for (uint32_t i = 0; i < c->n_taints; i++)
		TELL("%.*s ", (int)c->taints[i].len, c->taints[i].p);
	return c->dp_size == 0 ? -22 : 0;
}

static void note_joined(struct kvr_sc_worker *k)
{
	kvr_sc_line_state(k, KVR_WORKER_SERVING);
}

static void note_arrive(struct kvr_sc_req *r)
{
	TELL("arrive:%s/%u/%u ", r->id, r->msg.req.n, r->msg.req.isl);
	last = *r;
	kvr_sc_req_enter(r);
}

static void note_event(struct kvr_sc_req *r, struct kvr_rq_event e)
{
	TELL("%s:%s ", kvr_request_event_name(e.kind), r->id);
	if (e.kind == KVR_RQE_CANCEL)
		kvr_sc_req_over(r);
}

static void note_poll(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	n_polls++;
	while ((r = TAILQ_FIRST(&w->dead)) != NULL) {
		TAILQ_REMOVE(&w->dead, r, link);
		kvr_sc_line_free(r->line);
	}
}

static void note_expire(struct kvr_sc_world *w)
{
	TELL("expire@%llu ", (unsigned long long)w->now);
}

static uint64_t next_timer(const struct kvr_sc_world *w)
{
	return w->now < 5000000 ? 5000000 : UINT64_MAX;
}

static const struct kvr_sc_executor notes = {.pool = start_pool,
					     .worker = note_worker,
					     .joined = note_joined,
					     .arrive = note_arrive,
					     .event = note_event,
					     .poll = note_poll,
					     .expire = note_expire,
					     .timer = next_timer};

/* Run lines in a world of their own. @return the output, freed by the next call. */
static const char *run_lines(const char *lines, int status)
{
	static struct kvr_sc_world *w;
	static char *out;
	FILE *to, *in = fmemopen((void *)(uintptr_t)lines, strlen(lines), "r");
	size_t len;

	free(out);
	free(w);
	w = calloc(1, sizeof(*w));
	calls[0] = '\0';
	n_polls = 0;
	to = open_memstream(&out, &len);
	kvr_sc_world_init(w, &notes, to);
	CU_ASSERT_EQUAL(kvr_sc_script(w, in), status);
	fclose(in);
	fclose(to);
	return out;
}

#define POOL "{\"op\":\"pool\",\"name\":\"m\",\"block_size\":4}\n"

/* The line must be rejected for this reason, without an effect. */
static void check_rejected(const char *line, const char *why)
{
	char text[1024], want[400];
	const char *out;

	snprintf(text, sizeof(text), POOL "\n%s\n", line);
	out = run_lines(text, 1);
	snprintf(want, sizeof(want), "\"line\":3,\"error\":\"BadOp\",\"message\":\"%s\"}\n", why);
	CU_ASSERT(strstr(out, want) != NULL);
	CU_ASSERT_STRING_EQUAL(calls, "pool:m/4/nan ");
	CU_ASSERT_EQUAL(n_polls, 1);
	if (strstr(out, want) == NULL)
		printf("\nof %s\nwanted %s, got %s", line, want, out);
}

static void a_rejected_line_changes_nothing(void)
{
	check_rejected("{\"op\":\"finish\"}", "missing field 'id'");
	check_rejected("{\"op\":\"finish\",\"id\":null}", "missing field 'id'");
	check_rejected("{\"op\":\"finish\",\"id\":7}", "'id' must be a string");
	check_rejected("{\"op\":\"finish\",\"id\":\"a\"}", "unknown id 'a'");
	check_rejected("{\"op\":\"finish\",\"id\":\"a\",\"x\":1}", "unknown field 'x'");
	check_rejected("{\"op\":\"end\",\"id\":\"a\"}", "unknown op");
	check_rejected("{\"id\":\"a\"}", "no 'op'");
	check_rejected("[]", "not a JSON object");
	check_rejected("{\"op\":\"advance\",\"ms\":-1}", "'ms' must be a number not below 0");
	check_rejected("{\"op\":\"drain\",\"worker\":18446744073709551615}",
		       "unknown worker 18446744073709551615");
	check_rejected("{\"op\":\"drain\",\"worker\":18446744073709551616}",
		       "malformed JSON: too big integer near '18446744073709551616'");
	check_rejected(
		"{\"op\":\"route\",\"id\":\"a\",\"tokens\":[1,2],\"sequence_hashes\":[1],\"isl\":"
		"4}",
		"give either 'tokens' or 'sequence_hashes'");
	check_rejected("{\"op\":\"route\",\"id\":\"a\",\"tokens\":[4294967296]}",
		       "'tokens' must be an array of integers from 0 to 2^32-1");
	check_rejected(
		"{\"op\":\"route\",\"id\":\"a\",\"tokens\":[1],\"routing\":{\"session_control\":{}}"
		"}",
		"missing field 'session_id'");
	check_rejected("{\"op\":\"pool\",\"name\":\"m\",\"block_size\":4}", "pool 'm' exists");
	check_rejected(
		"{\"op\":\"pool\",\"name\":\"n\",\"block_size\":4,\"config\":{\"role\":\"decode\"}"
		"}",
		"configuration key 'role' is unknown");
	check_rejected("{\"op\":\"pool\",\"name\":\"n\",\"block_size\":4,"
		       "\"config\":{\"use_kv_events\":\"true\"}}",
		       "configuration key 'use_kv_events' has a wrong type");
}

static void output_reads_back_unchanged(void)
{
	const char *out = run_lines(
		POOL "{\"op\":\"worker\",\"worker\":9223372036854775808,"
		     "\"dp_size\":2,\"taints\":[\"a\"],\"topology\":{\"zone\":\"z\"}}\n"
		     "{\"op\":\"route\",\"id\":\"a\",\"sequence_hashes\":"
		     "[18446744073709551615,1],\"isl\":9,\"routing\":"
		     "{\"backend_instance_id\":9223372036854775809,\"priority_jump\":0.5}}\n"
		     "{\"op\":\"cancel\",\"id\":\"a\"}\n"
		     "{\"op\":\"cancel\",\"id\":\"a\"}\n",
		0);

	CU_ASSERT_STRING_EQUAL(out, "{\"op\":\"state\",\"worker\":9223372036854775808,"
				    "\"from\":\"joining\",\"to\":\"serving\"}\n");
	CU_ASSERT_STRING_EQUAL(calls, "pool:m/4/nan worker:9223372036854775808+2 a "
				      "dynamo.topology/zone=z arrive:a/2/9 cancel:a ");
	CU_ASSERT_EQUAL(last.msg.hints.backend_worker, UINT64_C(9223372036854775809));
	CU_ASSERT_EQUAL(last.msg.hints.present,
			KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_PRIORITY_JUMP));
	CU_ASSERT_DOUBLE_EQUAL(last.msg.hints.priority_jump, 0.5, 0);
	CU_ASSERT_EQUAL(n_polls, 5);
}

/* Timers that become due run at their time. */
static void due_timers_run_on_the_way(void)
{
	run_lines(POOL "{\"op\":\"advance\",\"ms\":4.9}\n{\"op\":\"advance\",\"ms\":0.2}\n"
		       "{\"op\":\"advance\",\"ms\":1e12}\n",
		  0);
	CU_ASSERT_STRING_EQUAL(calls, "pool:m/4/nan expire@5000000 ");
	CU_ASSERT_STRING_EQUAL(run_lines(POOL "{\"op\":\"advance\",\"ms\":1e13}\n", 1),
			       "{\"op\":\"advance\",\"line\":2,\"error\":\"BadOp\","
			       "\"message\":\"'ms' is too large\"}\n");
}

static void pool_lines_can_be_read_alone(void)
{
	char lines[] = POOL "{\"op\":\"pool\",\"name\":\"m\",\"block_size\":4}\n"
			    "{\"op\":\"worker\",\"worker\":1}\nno line\n"
			    "{\"op\":\"pool\",\"name\":\"n\",\"block_size\":8,"
			    "\"config\":{\"router_queue_threshold\":2}}\n";
	static struct kvr_sc_world w;
	FILE *in = fmemopen(lines, sizeof(lines) - 1, "r");

	calls[0] = '\0';
	kvr_sc_world_init(&w, &notes, NULL);
	kvr_sc_pools(&w, in);
	fclose(in);
	CU_ASSERT_STRING_EQUAL(calls, "pool:m/4/nan pool:n/8/2 ");
	CU_ASSERT_EQUAL(w.n_pools, 2);
}

static void lines_are_json(void)
{
	struct kvr_sc_out o = {0};
	char *text;
	size_t len;

	o.to = open_memstream(&text, &len);
	kvr_sc_out(&o, "{ a:s b:[", "x\"\\\n\x7f");
	kvr_sc_out(&o, "u U", UINT32_MAX, UINT64_MAX);
	kvr_sc_out(&o, "{ c:f d:f } [ ]", 1.0, 0.1);
	kvr_sc_out(&o, "] e:b f:S }", true, "long", 2u);
	kvr_sc_out(&o, "{ }");
	fclose(o.to);
	CU_ASSERT_STRING_EQUAL(text, "{\"a\":\"x\\\"\\\\\\u000a\\u007f\",\"b\":[4294967295,"
				     "18446744073709551615,{\"c\":1.0,\"d\":0.1},[]],\"e\":true,"
				     "\"f\":\"lo\"}\n{}\n");
	free(text);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_rejected_line_changes_nothing),
		KVR_CASE(output_reads_back_unchanged),
		KVR_CASE(due_timers_run_on_the_way),
		KVR_CASE(pool_lines_can_be_read_alone),
		KVR_CASE(lines_are_json),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("scenario", tests);
}
