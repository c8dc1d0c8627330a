/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_conf_rows.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

struct obj {
	bool on;
	uint32_t queues, limit;
	uint64_t bytes;
	double weight, share;
	int mode;
	char name[8], hosts[8];
};

static const char *const modes[] = {"auto", "software", "none", NULL};

#define KVR_CONF_ROWS_OF struct obj

static const struct kvr_opt table[] = {
	{.name = "on", .type = KVR_OPT_BOOL, FIELD(on), .def = "true", .help = "switch"},
	U32("queues", queues, 1, 64, "4", "queues", "number"),
	{.name = "limit",
	 .type = KVR_OPT_U32,
	 .flags = KVR_OPT_F_NONE,
	 FIELD(limit),
	 .def = "none",
	 .help = "most"},
	U64("bytes", bytes, 0, 0, "2M", "bytes", "memory"),
	F64("weight", weight, 0, 1, "0.1", NULL, "w"),
	{.name = "share",
	 .type = KVR_OPT_F64,
	 .flags = KVR_OPT_F_NONE,
	 FIELD(share),
	 .def = "none",
	 .help = "s"},
	PICK("mode", mode, modes, "auto", "mode"),
	TEXT("name", name, "", "name"),
	{.name = "queue_count",
	 .type = KVR_OPT_U32,
	 .flags = KVR_OPT_F_DEPRECATED,
	 FIELD(queues),
	 .min = 1,
	 .max = 64,
	 .help = "queues"},
	{.name = "hosts",
	 .type = KVR_OPT_STRING,
	 .flags = KVR_OPT_F_LIST,
	 FIELD(hosts),
	 .size = sizeof(((struct obj *)0)->hosts),
	 .def = "",
	 .help = "h"},
	{0},
};

static void defaults_come_from_the_table(void)
{
	struct obj o;

	memset(&o, 0x5a, sizeof(o));
	kvr_conf_defaults(table, &o);
	CU_ASSERT_TRUE(o.on);
	CU_ASSERT_EQUAL(o.queues, 4);
	CU_ASSERT_EQUAL(o.limit, UINT32_MAX);
	CU_ASSERT_EQUAL(o.bytes, 2u << 20);
	CU_ASSERT_DOUBLE_EQUAL(o.weight, 0.1, 0);
	CU_ASSERT_TRUE(isnan(o.share));
	CU_ASSERT_EQUAL(o.mode, 0);
	CU_ASSERT_STRING_EQUAL(o.name, "");
}

static void good_values_are_stored(void)
{
	static const struct {
		const char *name, *value, *printed;
	} c[] = {
		{"on", "no", "false"},
		{"on", "ON", "true"},
		{"on", "0", "false"},
		{"queues", "1", "1"},
		{"queues", "64", "64"},
		{"queues", "0x10", "16"},
		{"queue_count", "7", "7"},
		{"limit", "0", "0"},
		{"limit", "4294967294", "4294967294"},
		{"limit", "NONE", "none"},
		{"bytes", "0", "0"},
		{"bytes", "3k", "3072"},
		{"bytes", "3K", "3072"},
		{"bytes", "1G", "1073741824"},
		{"bytes", "18446744073709551615", "18446744073709551615"},
		{"bytes", "17179869183G", "18446744072635809792"},
		{"weight", "0", "0"},
		{"weight", "1", "1"},
		{"weight", "1e-3", "0.001"},
		{"weight", "0.30000000000000004", "0.30000000000000004"},
		{"share", "-1e300", "-1e+300"},
		{"share", "none", "none"},
		{"mode", "Software", "software"},
		{"name", "", ""},
		{"name", "1234567", "1234567"},
	};
	char err[256], text[64];
	struct obj o;

	kvr_conf_defaults(table, &o);
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		const struct kvr_opt *opt = table;

		CU_ASSERT_EQUAL(kvr_conf_set(table, &o, c[i].name, c[i].value, err, 256), 0);
		while (strcmp(opt->name, c[i].name) != 0)
			opt++;
		CU_ASSERT_EQUAL(kvr_conf_print(opt, &o, text, sizeof(text)),
				(int)strlen(c[i].printed));
		CU_ASSERT_STRING_EQUAL(text, c[i].printed);
	}
}

static void bad_values_change_nothing_and_name_the_allowed_ones(void)
{
	static const struct {
		const char *name, *value;
		int rc;
		const char *err;
	} c[] = {
		{"on", "maybe", -EINVAL,
		 "got \"maybe\", allowed: true or false (also yes/no, on/off, 1/0)"},
		{"queues", "0", -ERANGE, "got \"0\", allowed: a whole number 1 to 64 queues"},
		{"queues", "65", -ERANGE, "got \"65\", allowed: a whole number 1 to 64 queues"},
		{"queues", "", -EINVAL, "got \"\", allowed: a whole number 1 to 64 queues"},
		{"queues", "-1", -EINVAL, "got \"-1\", allowed: a whole number 1 to 64 queues"},
		{"queues", " 1", -EINVAL, "got \" 1\", allowed: a whole number 1 to 64 queues"},
		{"queues", "1k", -EINVAL, "got \"1k\", allowed: a whole number 1 to 64 queues"},
		{"queues", "4.0", -EINVAL, "got \"4.0\", allowed: a whole number 1 to 64 queues"},
		{"queues", "none", -EINVAL, "got \"none\", allowed: a whole number 1 to 64 queues"},
		{"limit", "4294967295", -ERANGE,
		 "got \"4294967295\", allowed: a whole number 0 to 4294967295 or none"},
		{"limit", "4294967296", -ERANGE,
		 "got \"4294967296\", allowed: a whole number 0 to 4294967295 or none"},
		{"bytes", "18446744073709551616", -ERANGE,
		 "got \"18446744073709551616\", allowed: a whole number bytes (k, M, G allowed)"},
		{"bytes", "17179869184G", -ERANGE,
		 "got \"17179869184G\", allowed: a whole number bytes (k, M, G allowed)"},
		{"bytes", "1kk", -EINVAL,
		 "got \"1kk\", allowed: a whole number bytes (k, M, G allowed)"},
		{"bytes", "1T", -EINVAL,
		 "got \"1T\", allowed: a whole number bytes (k, M, G allowed)"},
		{"weight", "1.1", -ERANGE, "got \"1.1\", allowed: a number 0 to 1"},
		{"weight", "nan", -EINVAL, "got \"nan\", allowed: a number 0 to 1"},
		{"weight", "0x1p-1", -EINVAL, "got \"0x1p-1\", allowed: a number 0 to 1"},
		{"weight", "e", -EINVAL, "got \"e\", allowed: a number 0 to 1"},
		{"share", "1e999", -ERANGE, "got \"1e999\", allowed: a number or none"},
		{"mode", "hardware", -EINVAL, "got \"hardware\", allowed: auto, software, none"},
		{"name", "12345678", -ERANGE,
		 "got \"12345678\", allowed: at most 7 printable characters"},
		{"name", "a\tb", -EINVAL, "got \"a\tb\", allowed: at most 7 printable characters"},
		{"queuse", "1", -ENOENT, "unknown key, did you mean \"queues\"?"},
		{"colour", "1", -ENOENT,
		 "unknown key, allowed: on, queues, limit, bytes, weight, share, mode, name, "
		 "hosts"},
	};
	struct obj o, before;
	char err[256];

	memset(&o, 0, sizeof(o));
	kvr_conf_defaults(table, &o);
	before = o;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		CU_ASSERT_EQUAL(kvr_conf_set(table, &o, c[i].name, c[i].value, err, sizeof(err)),
				c[i].rc);
		CU_ASSERT_STRING_EQUAL(err, c[i].err);
		if (strcmp(err, c[i].err) != 0)
			printf("  row %zu: %s\n", i, err);
		CU_ASSERT_EQUAL(memcmp(&o, &before, sizeof(o)), 0);
	}
}

static void error_text_never_exceeds_its_buffer(void)
{
	char err[256], guard[256];
	struct obj o;

	memset(guard, 0x7e, sizeof(guard));
	for (size_t len = 1; len < 120; len++) {
		memset(err, 0x7e, sizeof(err));
		kvr_conf_set(table, &o, "colour", "1", err, len);
		CU_ASSERT_EQUAL(memcmp(err + len, guard, sizeof(err) - len), 0);
		memset(err, 0x7e, sizeof(err));
		kvr_conf_set(table, &o, "mode", "hardware", err, len);
		CU_ASSERT_EQUAL(memcmp(err + len, guard, sizeof(err) - len), 0);
	}
}

static void dump_shows_value_unit_and_help(void)
{
	char *text;
	size_t len;
	struct obj o;
	FILE *f = open_memstream(&text, &len);

	kvr_conf_defaults(table, &o);
	kvr_conf_dump(table, &o, f);
	fclose(f);
	CU_ASSERT_STRING_EQUAL(text, "on = true  # switch\n"
				     "queues = 4  # queues, number\n"
				     "limit = none  # most\n"
				     "bytes = 2097152  # bytes, memory\n"
				     "weight = 0.1  # w\n"
				     "share = none  # s\n"
				     "mode = auto  # mode\n"
				     "name =   # name\n"
				     "hosts =   # h; may be repeated\n");
	free(text);
}

static int parse_args(struct obj *o, char *err, const char *const list[])
{
	char text[8][32], *argv[9] = {(char[]){"prog"}};
	int n = 1;

	for (; list[n - 1] != NULL; n++) {
		snprintf(text[n - 1], sizeof(text[0]), "%s", list[n - 1]);
		argv[n] = text[n - 1];
	}
	err[0] = '\0';
	return kvr_conf_args(table, o, n, argv, err, 200);
}

#define ARGS(...) parse_args(&o, err, (const char *const[]){__VA_ARGS__})

static void arguments_are_options_and_nothing_else(void)
{
	static const char *const bad[][2] = {
		{"--wrong", "--wrong: unknown option or missing value, see --help"},
		{"--queues", "--queues: unknown option or missing value, see --help"},
		{"--queues=0", "--queues: got \"0\", allowed: a whole number 1 to 64 queues"},
		{"--on=yes", "--on=yes: unknown option or missing value, see --help"},
		{"rest", "rest: unexpected argument, see --help"},
	};
	char err[200];
	struct obj o;

	CU_ASSERT_EQUAL(ARGS(NULL), 1);
	CU_ASSERT_TRUE(o.on && o.queues == 4);
	CU_ASSERT_EQUAL(ARGS("--queues", "7", "--mode=none", "--on", NULL), 1);
	CU_ASSERT_TRUE(o.on && o.queues == 7 && o.mode == 2);
	CU_ASSERT_EQUAL(ARGS("--queues", "7", NULL),
			1); /* again, without state of the first call */
	CU_ASSERT_EQUAL(o.mode, 0);
	CU_ASSERT_EQUAL(ARGS("--queues=7", "--on", "--queues", "9", "--on", NULL), 1);
	CU_ASSERT_TRUE(o.on && o.queues == 9); /* the last one wins ... */
	CU_ASSERT_EQUAL(ARGS("--queues", "0", "--queues", "9", NULL),
			-EINVAL); /* ... among valid ones */
	CU_ASSERT_EQUAL(ARGS("--help", NULL), 0);
	CU_ASSERT_EQUAL(ARGS("-h", NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(ARGS(bad[i][0], NULL), -EINVAL);
		CU_ASSERT_STRING_EQUAL(err, bad[i][1]);
	}
}

static void words_are_left_to_the_program(void)
{
	char text[5][16] = {"prog", "drain", "--queues", "7", "12"};
	char *argv[] = {text[0], text[1], text[2], text[3], text[4], NULL};
	char err[200];
	struct obj o;
	int first;

	CU_ASSERT_EQUAL(kvr_conf_args_rest(table, &o, 5, argv, &first, err, sizeof(err)), 1);
	CU_ASSERT_EQUAL(o.queues, 7);
	CU_ASSERT_EQUAL_FATAL(first, 3);
	CU_ASSERT_STRING_EQUAL(argv[3], "drain");
	CU_ASSERT_STRING_EQUAL(argv[4], "12");
}

static void version_is_handled_before_other_options(void)
{
	char text[4][16] = {"prog", "--wrong", "--version", "--"};
	char *asks[] = {text[0], text[1], text[2]}, *not [] = {text[0], text[3], text[2]};
	char out[64] = "";
	FILE *f = fmemopen(out, sizeof(out), "w");

	CU_ASSERT_FALSE(kvr_conf_version(2, asks, "prog", f));
	CU_ASSERT_FALSE(kvr_conf_version(3, not, "prog", f));
	CU_ASSERT_TRUE(kvr_conf_version(3, asks, "prog", f));
	fclose(f);
	CU_ASSERT_EQUAL(strncmp(out, "prog ", 5), 0);
	CU_ASSERT_TRUE(strlen(out) > 6 && out[strlen(out) - 1] == '\n');
}

static void help_shows_choices_values_and_units(void)
{
	char *text = NULL;
	size_t len;
	struct obj o;
	FILE *f = open_memstream(&text, &len);

	kvr_conf_defaults(table, &o);
	kvr_conf_args_help(table, &o, 6, f);
	fclose(f);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "  --on     switch\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "  --queues number [4 queues]\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "  --mode   mode (auto, software, none) [auto]\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "  --help   print this text\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "the last one wins"));
	free(text);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(defaults_come_from_the_table),
			       KVR_CASE(good_values_are_stored),
			       KVR_CASE(bad_values_change_nothing_and_name_the_allowed_ones),
			       KVR_CASE(error_text_never_exceeds_its_buffer),
			       KVR_CASE(dump_shows_value_unit_and_help),
			       KVR_CASE(arguments_are_options_and_nothing_else),
			       KVR_CASE(words_are_left_to_the_program),
			       KVR_CASE(version_is_handled_before_other_options),
			       KVR_CASE(help_shows_choices_values_and_units),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("conf", tests);
}
