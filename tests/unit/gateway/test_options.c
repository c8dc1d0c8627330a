/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static struct gw_options o;
static char err[256];

static int parse_options(const char *a, const char *b, const char *c, const char *d)
{
	char text[5][300] = {"gateway"};
	const char *more[] = {a, b, c, d};
	char *argv[6] = {text[0]};
	int n = 1;

	for (int i = 0; i < 4 && more[i] != NULL; i++, n++) {
		snprintf(text[n], sizeof(text[n]), "%s", more[i]);
		argv[n] = text[n];
	}
	err[0] = '\0';
	return gw_options_parse(&o, n, argv, err, sizeof(err));
}

static void routers_are_a_list(void)
{
	CU_ASSERT_EQUAL_FATAL(parse_options("--router", "a:1,[fd09::1]:7,c", NULL, NULL), 1);
	CU_ASSERT_EQUAL(o.n_routers, 3);
	CU_ASSERT_STRING_EQUAL(o.routers[1], "[fd09::1]:7");
	CU_ASSERT_EQUAL(parse_options(NULL, NULL, NULL, NULL), -EINVAL);
	CU_ASSERT(strstr(err, "--router") != NULL);
	CU_ASSERT_EQUAL(parse_options("--router", "1,2,3,4,5,6,7,8,9", NULL, NULL), -EINVAL);
}

static void names_are_pairs(void)
{
	CU_ASSERT_EQUAL_FATAL(parse_options("--router", "r", "--model", "gpt=llama,b=c"), 1);
	CU_ASSERT_EQUAL(o.n_models, 2);
	CU_ASSERT_STRING_EQUAL(o.models[0].name, "gpt");
	CU_ASSERT_STRING_EQUAL(o.models[0].of, "llama");
	CU_ASSERT_EQUAL(parse_options("--router", "r", "--model", "gpt"), -EINVAL);
	CU_ASSERT_EQUAL(parse_options("--router", "r", "--adapter", "=x"), -EINVAL);
	CU_ASSERT_EQUAL(parse_options("--router", "r", "--adapter", "x="), -EINVAL);
}

static void the_tokenizer_is_a_url(void)
{
	static const struct {
		const char *url, *host, *path;
		unsigned int port;
	} rows[] = {
		{"http://h:81/t", "h", "/t", 81},	   {"http://h/t", "h", "/t", 80},
		{"http://h:8000", "h", "/tokenize", 8000}, {"http://[::1]:9/x/y", "::1", "/x/y", 9},
		{"http://[::1]/x", "::1", "/x", 80},
	};
	static const char *const bad[] = {"https://h/t", "h:81",	"http://",
					  "http://h:0/", "http://h:x/", "http://:80/"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL_FATAL(parse_options("--router", "r", "--tokenize", rows[i].url), 1);
		CU_ASSERT_STRING_EQUAL(o.tokenize_host, rows[i].host);
		CU_ASSERT_STRING_EQUAL(o.tokenize_path, rows[i].path);
		CU_ASSERT_EQUAL(o.tokenize_port, rows[i].port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(parse_options("--router", "r", "--tokenize", bad[i]), -EINVAL);
	CU_ASSERT_EQUAL_FATAL(parse_options("--router", "r", NULL, NULL), 1);
	CU_ASSERT_EQUAL(o.tokenize_port, 0);
}

static void errors_name_the_option(void)
{
	CU_ASSERT_EQUAL(parse_options("--router", "r", "--threads", "0"), -EINVAL);
	CU_ASSERT(strstr(err, "--threads") != NULL);
	CU_ASSERT_EQUAL(parse_options("--nothing", NULL, NULL, NULL), -EINVAL);
	CU_ASSERT_EQUAL(parse_options("--router", "r", "more", NULL), -EINVAL);
	CU_ASSERT_EQUAL(parse_options("--router", NULL, NULL, NULL), -EINVAL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(routers_are_a_list), KVR_CASE(names_are_pairs),
			       KVR_CASE(the_tokenizer_is_a_url), KVR_CASE(errors_name_the_option),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway options", tests);
}
