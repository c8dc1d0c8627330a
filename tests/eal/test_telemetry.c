/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_telemetry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_telemetry.h>

#include "kvr_stats.h"
#include "kvr_test.h"

static char reply[16384 + 1];
static char prefix[64];

static int reply_hello(void *arg, const char *params, struct rte_tel_data *d)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "who", arg);
	rte_tel_data_add_dict_string(d, "params", params);
	kvr_telemetry_dict_f64(d, "share", 2.0 / 3.0, 3);
	return 0;
}

static int reply_error(void *arg, const char *params, struct rte_tel_data *d)
{
	(void)arg;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "half", "done");
	return kvr_telemetry_error(d, -ENOENT, "no pool \"%s\"", params);
}

static int return_error(void *arg, const char *params, struct rte_tel_data *d)
{
	(void)arg;
	(void)params;
	(void)d;
	return -EIO;
}

static const struct kvr_telemetry_cmd first[] = {
	{"/kvroute/hello", "NAME", "Says hello", reply_hello, true},
	{"/kvroute/refuse", "POOL", "Refuses", reply_error, true},
	{0},
};
static const struct kvr_telemetry_cmd second[] = {
	{"/kvroute/fail", NULL, "Fails", return_error, false}, {0}};

/* Send one question on a connection of its own; the answer is in reply. */
static const char *ask_socket(const char *question)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	const struct timeval limit = {.tv_sec = 10};
	ssize_t n;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s/dpdk_telemetry.v2",
		 rte_eal_get_runtime_dir());
	CU_ASSERT_TRUE_FATAL(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	n = read(fd, reply, sizeof(reply) - 1); /* the greeting */
	CU_ASSERT_TRUE_FATAL(n > 0);
	CU_ASSERT_EQUAL(write(fd, question, strlen(question)), (ssize_t)strlen(question));
	n = read(fd, reply, sizeof(reply) - 1);
	CU_ASSERT_TRUE_FATAL(n > 0);
	reply[n] = '\0';
	close(fd);
	return reply;
}

static char one[] = "one", two[] = "two";

static void commands_answer_on_the_socket(void)
{
	CU_ASSERT_EQUAL_FATAL(kvr_telemetry_register(first, one), 0);
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/hello"),
			       "{\"/kvroute/hello\":{\"who\":\"one\",\"params\":\"\","
			       "\"share\":\"0.667\"}}");
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/hello,a,b"),
			       "{\"/kvroute/hello\":{\"who\":\"one\",\"params\":\"a,b\","
			       "\"share\":\"0.667\"}}");
	CU_ASSERT_PTR_NOT_NULL(strstr(ask_socket("/"), "\"/kvroute/hello\",\"/kvroute/refuse\""));
	CU_ASSERT_STRING_EQUAL(ask_socket("/help,/kvroute/hello"),
			       "{\"/help\":{\"/kvroute/hello\":\"Says hello. Parameters: NAME\"}}");
}

static void errors_have_a_name_and_a_reason(void)
{
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/refuse,llama"),
			       "{\"/kvroute/refuse\":{\"error\":\"ENOENT\",\"message\":\"no pool "
			       "\\\"llama\\\"\"}}");
	CU_ASSERT_EQUAL_FATAL(kvr_telemetry_register(second, NULL), 0);
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/fail"),
			       "{\"/kvroute/fail\":{\"error\":\"EIO\",\"message\":\"/kvroute/fail "
			       "failed: Input/output error\"}}");
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/fail,7"),
			       "{\"/kvroute/fail\":{\"error\":\"EINVAL\",\"message\":"
			       "\"/kvroute/fail takes no parameters\"}}");
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/unknown"), "{\"/kvroute/unknown\":null}");
}

static char acted[256];

static void record_action(const char *path, const char *params, const char *error)
{
	snprintf(acted, sizeof(acted), "%s(%s): %s", path, params, error != NULL ? error : "done");
}

static void actions_are_recorded_with_their_outcome(void)
{
	kvr_telemetry_on_act(record_action);
	ask_socket("/kvroute/refuse,y");
	CU_ASSERT_STRING_EQUAL(acted, "/kvroute/refuse(y): ENOENT: no pool \"y\"");
	ask_socket("/kvroute/hello,x"); /* the error of the call before must not be repeated */
	CU_ASSERT_STRING_EQUAL(acted, "/kvroute/hello(x): done");
	ask_socket("/kvroute/fail");
	CU_ASSERT_STRING_EQUAL(acted, "/kvroute/hello(x): done"); /* a read-only command */
	kvr_telemetry_on_act(NULL);
	ask_socket("/kvroute/hello,z");
	CU_ASSERT_STRING_EQUAL(acted, "/kvroute/hello(x): done");
}

static void retired_commands_report_that_and_may_return(void)
{
	kvr_telemetry_unregister(first);
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/hello"),
			       "{\"/kvroute/hello\":{\"error\":\"ESHUTDOWN\",\"message\":"
			       "\"/kvroute/hello is no longer served\"}}");
	CU_ASSERT_EQUAL(kvr_telemetry_register(first, two), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(ask_socket("/kvroute/hello"), "\"who\":\"two\""));
}

static void invalid_tables_register_nothing(void)
{
	static const struct kvr_telemetry_cmd taken[] = {
		{"/kvroute/new1", NULL, "x", return_error, false},
		{"/kvroute/hello", NULL, "x", return_error, false},
		{0}};
	static const struct kvr_telemetry_cmd twice[] = {
		{"/kvroute/new2", NULL, "x", return_error, false},
		{"/kvroute/new2", NULL, "x", return_error, false},
		{0}};
	static const struct kvr_telemetry_cmd names[][2] = {
		{{"kvroute/x", NULL, "x", return_error, false}, {0}},
		{{"/kvroute/X", NULL, "x", return_error, false}, {0}},
		{{"/kvroute/x,y", NULL, "x", return_error, false}, {0}},
		{{"/kvroute/x", NULL, "x", NULL, false}, {0}},
		{{"/kvroute/x", NULL, NULL, return_error, false}, {0}},
		{{"/kvroute/34567890123456789012345678901234567890123456789056", NULL, "x",
		  return_error, false},
		 {0}},
	};

	CU_ASSERT_EQUAL(kvr_telemetry_register(taken, NULL), -EEXIST);
	CU_ASSERT_PTR_NULL(strstr(ask_socket("/"), "new1"));
	CU_ASSERT_EQUAL(kvr_telemetry_register(twice, NULL), -EEXIST);
	CU_ASSERT_PTR_NULL(strstr(ask_socket("/"), "new2"));
	for (size_t i = 0; i < RTE_DIM(names); i++)
		CU_ASSERT_EQUAL(kvr_telemetry_register(names[i], NULL), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(ask_socket("/kvroute/hello"), "\"who\":\"two\""));
}

static int reply_many_values(void *arg, const char *params, struct rte_tel_data *d)
{
	static const struct kvr_counter counters[] = {
		{"rx", "frames", "x"}, {"bad", "frames", "x"}, {0}};
	const struct kvr_stats_def def = {"demo", counters, NULL};
	const uint64_t v[] = {UINT64_MAX, 0};

	(void)arg;
	(void)params;
	rte_tel_data_start_dict(d);
	return kvr_stats_tel(&def, v, d);
}

static void counters_are_a_dictionary(void)
{
	static const struct kvr_telemetry_cmd table[] = {
		{"/kvroute/drops", NULL, "Drops", reply_many_values, false}, {0}};

	CU_ASSERT_EQUAL(kvr_telemetry_register(table, NULL), 0);
	CU_ASSERT_STRING_EQUAL(ask_socket("/kvroute/drops"),
			       "{\"/kvroute/drops\":{\"rx\":18446744073709551615,\"bad\":0}}");
}

/* "@what": the parameters, as a value. */
static int reply_text(void *arg, const char *params, struct rte_tel_data *d)
{
	(void)arg;
	rte_tel_data_start_dict(d);
	return kvr_telemetry_dict_text(d, "a text", params);
}

/* @return whether the answer to @text is complete, in so many parts; 0: no array. */
static bool is_complete(const char *text, unsigned int parts)
{
	char question[700], joined[700] = "";
	unsigned int n = 0;
	const char *p;

	snprintf(question, sizeof(question), "/kvroute/text,%s", text);
	p = strstr(ask_socket(question), "\"a_text\":");
	if (p == NULL)
		return false;
	p += strlen("\"a_text\":");
	if (*p == '[')
		while (*p != ']') {
			const size_t len = strcspn(p + 2, "\"");

			strncat(joined, p + 2, len);
			p += len + 3;
			n++;
		}
	else
		strncat(joined, p + 1, strcspn(p + 1, "\""));
	return strcmp(joined, text) == 0 && n == parts;
}

static void long_texts_are_split(void)
{
	static const struct kvr_telemetry_cmd table[] = {
		{"/kvroute/text", "TEXT", "Echoes it", reply_text, false}, {0}};
	char text[500];

	CU_ASSERT_EQUAL_FATAL(kvr_telemetry_register(table, NULL), 0);
	memset(text, 'x', sizeof(text));
	text[127] = '\0';
	CU_ASSERT_TRUE(is_complete(text, 0));
	text[127] = 'x';
	text[128] = '\0';
	CU_ASSERT_TRUE(is_complete(text, 2));
	text[128] = 'x';
	text[254] = '\0';
	CU_ASSERT_TRUE(is_complete(text, 2));
	text[254] = 'x';
	text[400] = '\0';
	CU_ASSERT_TRUE(is_complete(text, 4));
	/* Split after the last blank, not after the comma behind it. */
	text[20] = ' ';
	text[100] = ',';
	text[200] = '\0';
	CU_ASSERT_TRUE(is_complete(text, 3));
	CU_ASSERT_PTR_NOT_NULL(strstr(reply, "x \",\"x"));
	text[20] = '/';
	CU_ASSERT_TRUE(is_complete(text, 2));
	CU_ASSERT_PTR_NOT_NULL(strstr(reply, "x,\",\"x"));
	text[100] = 'x';
	CU_ASSERT_TRUE(is_complete(text, 3));
	CU_ASSERT_PTR_NOT_NULL(strstr(reply, "x/\",\"x"));
	kvr_telemetry_unregister(table);
}

/* The registry accepts its documented number of commands; DPDK's own limit must be higher. */
static void registry_is_bounded(void)
{
	static char paths[KVR_TELEMETRY_MAX_CMDS + 1][32];
	static struct kvr_telemetry_cmd table[KVR_TELEMETRY_MAX_CMDS + 1][2];
	unsigned int n = 0;
	int rc;

	do {
		snprintf(paths[n], sizeof(paths[n]), "/kvroute/many/%u", n);
		table[n][0] = (struct kvr_telemetry_cmd){paths[n], NULL, "x", return_error, false};
		rc = kvr_telemetry_register(table[n], NULL);
	} while (rc == 0 && ++n <= KVR_TELEMETRY_MAX_CMDS);
	CU_ASSERT_EQUAL(rc, -ENOSPC);
	CU_ASSERT_EQUAL(n, KVR_TELEMETRY_MAX_CMDS - 5);
	while (n > 0)
		kvr_telemetry_unregister(table[--n]);
}

/* DPDK's own client, unchanged, where it is installed (package dpdk-dev). */
static void dpdk_telemetry_py_reads_the_answers(void)
{
	const char *tool = getenv("KVR_DPDK_TELEMETRY");
	char command[512], line[512], all[4096] = "";
	size_t used = 0;
	FILE *f;

	if (tool == NULL)
		tool = "/usr/bin/dpdk-telemetry.py";
	if (access(tool, R_OK) != 0) {
		printf("(%s is not installed) ", tool);
		return;
	}
	snprintf(command, sizeof(command),
		 "printf '/kvroute/hello,x\\n/kvroute/refuse,y\\nquit\\n' | "
		 "timeout 20 python3 '%s' -f %s 2>&1",
		 tool, prefix);
	f = popen(command, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	while (fgets(line, sizeof(line), f) != NULL && used + strlen(line) < sizeof(all)) {
		strcpy(all + used, line);
		used += strlen(line);
	}
	CU_ASSERT_EQUAL(pclose(f), 0);
	CU_ASSERT_STRING_EQUAL(all, "{\"/kvroute/hello\": {\"who\": \"two\", \"params\": \"x\", "
				    "\"share\": \"0.667\"}}\n"
				    "{\"/kvroute/refuse\": {\"error\": \"ENOENT\", \"message\": "
				    "\"no pool \\\"y\\\"\"}}\n");
	if (strstr(all, "two") == NULL)
		printf("%s", all);
}

/* After DPDK's own handler, which removes the socket. */
static void remove_runtime_dir(void)
{
	rmdir(rte_eal_get_runtime_dir());
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {KVR_CASE(commands_answer_on_the_socket),
			       KVR_CASE(errors_have_a_name_and_a_reason),
			       KVR_CASE(actions_are_recorded_with_their_outcome),
			       KVR_CASE(retired_commands_report_that_and_may_return),
			       KVR_CASE(invalid_tables_register_nothing),
			       KVR_CASE(counters_are_a_dictionary),
			       KVR_CASE(long_texts_are_split),
			       KVR_CASE(dpdk_telemetry_py_reads_the_answers),
			       KVR_CASE(registry_is_bounded),
			       CU_TEST_INFO_NULL};
	char option[80];
	char *eal[] = {argv[0], "--no-huge", "--no-shconf",	      "-m",  "16", "--no-pci",
		       "-l",	"0",	     "--log-level=emergency", option};

	snprintf(prefix, sizeof(prefix), "kvr_telemetry_%d", (int)getpid());
	snprintf(option, sizeof(option), "--file-prefix=%s", prefix);
	atexit(remove_runtime_dir);
	if (rte_eal_init((int)RTE_DIM(eal), eal) < 0)
		return 1;
	argc = kvr_test_run("ctl", tests);
	rte_eal_cleanup();
	return argc;
}
