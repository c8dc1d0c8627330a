/* SPDX-License-Identifier: BSD-3-Clause */
#include "kinds.h"
#include "options.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

#define MOST 24

static struct agent_options o;
static char err[400];

/* Arguments after four options; the last of two equal options counts. */
static int parse_options(const char *const words[])
{
	char *argv[MOST] = {"kvroute-agent", "--engine", "http://e:8000/", "--router", "r",
			    "--pool",	     "m",	 "--worker",	   "7"};
	int argc = 9;

	for (unsigned int i = 0; words[i] != NULL; i++)
		argv[argc++] = (char *)words[i];
	return agent_options_parse(&o, argc, argv, err, sizeof(err));
}

static void given_options_are_parsed(void)
{
	static const char *const words[] = {"--type",	     "sglang", "--role",  "prefill",
					    "--bootstrap",   "h:8998", "--ranks", "4",
					    "--local-ranks", NULL};

	CU_ASSERT_EQUAL(parse_options(words), 1);
	CU_ASSERT_STRING_EQUAL(o.engine, "http://e:8000");
	CU_ASSERT(o.worker == 7 && o.ranks == 4 && o.type == 1 && o.role == 1 && o.local_ranks);
	CU_ASSERT_STRING_EQUAL(o.bootstrap_host, "h");
	CU_ASSERT_EQUAL(o.bootstrap_port, 8998);
	CU_ASSERT(o.block_size == 0 && o.max_requests == 4096);
}

static void each_mistake_is_one_line_with_a_remedy(void)
{
	static const struct {
		const char *words[5];
		const char *says;
	} row[] = {
		{{"--engine", ""}, "--engine is missing"},
		{{"--engine", "https://e"}, "http://HOST:PORT"},
		{{"--engine", "http://user:word@e"}, "http://HOST:PORT"},
		{{"--router", ""}, "--router is missing"},
		{{"--pool", ""}, "--pool is missing"},
		{{"--worker", "0"}, "--worker takes auto"},
		{{"--worker", "x"}, "--worker takes auto"},
		{{"--worker", "-1"}, "--worker takes auto"},
		{{"--worker", "18446744073709551616"}, "--worker takes auto"},
		{{"--type", "other"}, "vllm"},
		{{"--ranks", "257"}, "--ranks"},
		{{"--ranks"}, "missing value"},
		{{"--nonsense"}, "unknown option"},
		{{"stray"}, "unexpected"},
		{{"--replay", "tcp://a:1", "--events", ""}, "--replay needs --events"},
		{{"--kv-transfer", "required"}, "--kv-transfer is for --role prefill"},
		{{"--kv-transfer", "preferred", "--role", "prefill"},
		 "--kv-transfer needs --kv-transfer-domain"},
		{{"--kv-transfer-domain", "zone"}, "needs --kv-transfer preferred"},
		{{"--kv-transfer-weight", "-1"}, "--kv-transfer-weight"},
		{{"--events", "a:1"}, "--events takes tcp://HOST:PORT"},
		{{"--events", "tcp://a"}, "--events takes tcp://HOST:PORT"},
		{{"--events", "tcp://a:1", "--replay", "tcp://a:70000"},
		 "--replay takes tcp://HOST:PORT"},
		{{"--bootstrap", "h:1"}, "--role prefill"},
		{{"--paths", "v1"}, "--paths takes paths"},
		{{"--role", "prefill", "--bootstrap", "h"}, "HOST:PORT"},
		{{"--role", "prefill", "--bootstrap", "h:70000"}, "HOST:PORT"},
		{{"--role", "prefill", "--type", "sglang"}, "needs --bootstrap"},
		{{"--first-rank", "65535", "--ranks", "2"}, "65536"},
	};

	for (unsigned int i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		err[0] = 0;
		CU_ASSERT_EQUAL(parse_options(row[i].words), -EINVAL);
		CU_ASSERT(strstr(err, row[i].says) != NULL && strchr(err, '\n') == NULL);
		if (strstr(err, row[i].says) == NULL)
			fprintf(stderr, "\n%s: %s\n", row[i].says, err);
	}
}

static void three_options_are_enough(void)
{
	char *argv[] = {"kvroute-agent", "--engine", "http://e:8000", "--router", "r",
			"--pool",	 "m"};

	CU_ASSERT_EQUAL(agent_options_parse(&o, 7, argv, err, sizeof(err)), 1);
	CU_ASSERT(o.worker == 0 && o.ranks == 0 && o.block_size == 0);
	CU_ASSERT_EQUAL(o.type, AGENT_AUTO);
	CU_ASSERT_STRING_EQUAL(o.events, AGENT_AS_REPORTED);
	CU_ASSERT_STRING_EQUAL(o.replay, AGENT_AS_REPORTED);
}

static void kv_transfer_options_are_parsed(void)
{
	static const char *const words[] = {"--role",
					    "prefill",
					    "--kv-transfer",
					    "preferred",
					    "--kv-transfer-domain",
					    "zone",
					    "--kv-transfer-weight",
					    "0.5",
					    "--cpu",
					    "--max-num-batched-tokens",
					    "8192",
					    NULL};

	CU_ASSERT_EQUAL(parse_options(words), 1);
	CU_ASSERT(o.kv_transfer == 1 && o.kv_transfer_weight == 0.5 && o.cpu);
	CU_ASSERT_STRING_EQUAL(o.kv_transfer_domain, "zone");
	CU_ASSERT_EQUAL(o.max_num_batched_tokens, 8192);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(given_options_are_parsed),
		KVR_CASE(three_options_are_enough),
		KVR_CASE(kv_transfer_options_are_parsed),
		KVR_CASE(each_mistake_is_one_line_with_a_remedy),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("agent_options", tests);
}
