/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvr_test.h"

struct pool {
	char instance[16];
	uint32_t block_size;
	int kind;
	char model[64];
	char hosts[400];
};

struct config {
	uint32_t lcores;
	struct pool pools[2];
	unsigned int n_pools;
};

static const struct kvr_opt router_opts[] = {{.name = "lcores",
					      .type = KVR_OPT_U32,
					      .offset = offsetof(struct config, lcores),
					      .min = 1,
					      .max = 8,
					      .def = "1",
					      .unit = "lcores"},
					     {.name = "cores",
					      .type = KVR_OPT_U32,
					      .flags = KVR_OPT_F_DEPRECATED,
					      .offset = offsetof(struct config, lcores)},
					     {0}};
static const char *const kinds[] = {"own", "wide", NULL};
static const struct kvr_opt_set *const kind_sets[] = {
	(const struct kvr_opt_set[]){{NULL}},
	(const struct kvr_opt_set[]){{"block_size", "64"}, {"model", "w"}, {NULL}}};
static const struct kvr_opt pool_opts[] = {{.name = "kind",
					    .type = KVR_OPT_ENUM,
					    .offset = offsetof(struct pool, kind),
					    .choices = kinds,
					    .sets = kind_sets,
					    .def = "own"},
					   {.name = "block_size",
					    .type = KVR_OPT_U32,
					    .offset = offsetof(struct pool, block_size),
					    .def = "16"},
					   {.name = "model",
					    .type = KVR_OPT_STRING,
					    .offset = offsetof(struct pool, model),
					    .size = 64,
					    .def = ""},
					   {.name = "hosts",
					    .type = KVR_OPT_STRING,
					    .flags = KVR_OPT_F_LIST,
					    .offset = offsetof(struct pool, hosts),
					    .size = 400,
					    .def = ""},
					   {0}};

static void *get_router(void *arg, const char *instance)
{
	(void)instance;
	return arg;
}

static void *get_pool(void *arg, const char *instance)
{
	struct config *c = arg;
	struct pool *p;

	if (instance[0] == '\0' || strlen(instance) >= sizeof(p->instance))
		errno = EINVAL;
	else if (c->n_pools > 0 && strcmp(c->pools[0].instance, instance) == 0)
		errno = EEXIST;
	else if (c->n_pools == 2)
		errno = ENOSPC;
	else {
		p = &c->pools[c->n_pools++];
		kvr_conf_defaults(pool_opts, p);
		strcpy(p->instance, instance);
		return p;
	}
	return NULL;
}

static const struct kvr_conf_section sections[] = {
	{"router", router_opts, get_router}, {"pool ", pool_opts, get_pool}, {0}};

static struct config config;
static char err[1024];
static char path[] = "/tmp/kvr_conf_XXXXXX";

static int load_bytes(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fwrite(text, 1, len, f);
	fclose(f);
	memset(&config, 0, sizeof(config));
	strcpy(err, "untouched");
	return kvr_conf_load(path, sections, &config, err, sizeof(err));
}

static int load_text(const char *text)
{
	return load_bytes(text, strlen(text));
}

/* The error line without the file name, which must be there. */
static const char *error_text(void)
{
	const size_t n = strlen(path);

	return strncmp(err, path, n) == 0 ? err + n : "(does not name the file)";
}

static void a_good_file_fills_its_objects(void)
{
	CU_ASSERT_EQUAL(load_text("; comment\n"
				  "# comment\n"
				  "\n"
				  "[router]\n"
				  "  lcores =  3   ; why\n"
				  "[pool a]\r\n"
				  "\tmodel=x = y z\t# error_text\r\n"
				  "[ pool   b ]\n"
				  "block_size = 32\n"
				  "model ="),
			0);
	CU_ASSERT_STRING_EQUAL(err, "");
	CU_ASSERT_EQUAL(config.lcores, 3);
	CU_ASSERT_EQUAL_FATAL(config.n_pools, 2);
	CU_ASSERT_STRING_EQUAL(config.pools[0].instance, "a");
	CU_ASSERT_STRING_EQUAL(config.pools[0].model, "x = y z");
	CU_ASSERT_EQUAL(config.pools[0].block_size, 16);
	CU_ASSERT_STRING_EQUAL(config.pools[1].instance, "b");
	CU_ASSERT_EQUAL(config.pools[1].block_size, 32);
	CU_ASSERT_STRING_EQUAL(config.pools[1].model, "");
}

static void keys_before_and_after_a_preset_override_it(void)
{
	CU_ASSERT_EQUAL(load_text("[pool a]\nkind = wide\n[pool b]\nblock_size = 8\nkind = wide\n"
				  "model = b\n"),
			0);
	CU_ASSERT_EQUAL(config.pools[0].kind, 1);
	CU_ASSERT_EQUAL(config.pools[0].block_size, 64);
	CU_ASSERT_STRING_EQUAL(config.pools[0].model, "w");
	CU_ASSERT_EQUAL(config.pools[1].kind, 1);
	CU_ASSERT_EQUAL(config.pools[1].block_size, 8);
	CU_ASSERT_STRING_EQUAL(config.pools[1].model, "b");
	CU_ASSERT_EQUAL(load_text("[pool a]\nblock_size = 8\nkind = own\n"), 0);
	CU_ASSERT_EQUAL(config.pools[0].block_size, 8);
	CU_ASSERT_EQUAL(load_text("[pool a]\nkind = other\n"), -EINVAL);
}

static void values_of_a_repeated_list_are_joined(void)
{
	char host[300], text[800];

	CU_ASSERT_EQUAL(
		load_text("[pool a]\nhosts = h1 h2\nmodel = m\nhosts = h3\n[pool b]\nhosts =\n"
			  "hosts = h4\n"),
		0);
	CU_ASSERT_STRING_EQUAL(config.pools[0].hosts, "h1 h2 h3");
	CU_ASSERT_STRING_EQUAL(config.pools[0].model, "m");
	CU_ASSERT_STRING_EQUAL(config.pools[1].hosts, "h4");
	memset(host, 'h', sizeof(host));
	host[299] = '\0';
	snprintf(text, sizeof(text), "[pool a]\nhosts = %s\n", host);
	CU_ASSERT_EQUAL(load_text(text), 0); /* longer than 255 characters */
	CU_ASSERT_STRING_EQUAL(config.pools[0].hosts, host);
}

static void an_empty_file_is_good(void)
{
	CU_ASSERT_EQUAL(load_text(""), 0);
	CU_ASSERT_EQUAL(load_text("\n# only a comment"), 0);
	CU_ASSERT_STRING_EQUAL(err, "");
}

static void every_fault_names_line_key_and_allowed_values(void)
{
	static const struct {
		const char *text;
		int rc;
		const char *err;
	} c[] = {
		{"lcores = 1\n", -EINVAL,
		 ":1: lcores: key outside a section, allowed: after a [section] line"},
		{"[router]\n\nlcores\n", -EINVAL,
		 ":3: got \"lcores\", allowed: key = value, [section], a comment"},
		{"[router\n", -EINVAL, ":1: got \"[router\", allowed: [section] alone on its line"},
		{"[router] x\n", -EINVAL,
		 ":1: got \"[router] x\", allowed: [section] alone on its line"},
		{"[]\n", -EINVAL, ":1: empty section name, allowed: 1 to 63 characters"},
		{"[router]\n= 3\n", -EINVAL, ":2: [router]: no key before '='"},
		{"[router]\nlcores = 9\n", -ERANGE,
		 ":2: [router] lcores: got \"9\", allowed: a whole number 1 to 8 lcores"},
		{"[router]\n#\nlcores = many\n", -EINVAL,
		 ":3: [router] lcores: got \"many\", allowed: a whole number 1 to 8 lcores"},
		{"[router]\nlcore = 1\n", -ENOENT,
		 ":2: [router] lcore: unknown key, did you mean \"lcores\"?"},
		{"[pool a]\nsize = 1\n", -ENOENT,
		 ":2: [pool a] size: unknown key, allowed: kind, block_size, model, hosts"},
		{"[routers]\n", -ENOENT,
		 ":1: [routers]: unknown section, allowed: [router], [pool NAME]"},
		{"[pool]\n", -ENOENT,
		 ":1: [pool]: unknown section, allowed: [router], [pool NAME]"},
		{"[router]\nlcores = 1\nlcores = 1\n", -EEXIST,
		 ":3: [router] lcores: given twice, first on line 2"},
		{"[router]\nlcores = 1\n[pool a]\nhosts = h\nmodel = x\nhosts = i\nmodel = x\n",
		 -EEXIST, ":7: [pool a] model: given twice, first on line 5"},
		{"[pool a]\n[router]\n[pool a]\n", -EEXIST,
		 ":3: [pool a]: given twice, first on line 1"},
		{"[pool a]\n[pool  a]\n", -EEXIST, ":2: [pool  a]: given twice, allowed: once"},
		{"[pool a]\n[pool b]\n[pool c]\n", -ENOSPC,
		 ":3: [pool c]: too many sections of this kind"},
		{"[pool 1234567890123456]\n", -EINVAL, ":1: [pool 1234567890123456]: bad name"},
		{"[pool a]\nmodel = a\001b\n", -EINVAL,
		 ":2: control character 0x01, allowed: printable text"},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		CU_ASSERT_EQUAL(load_text(c[i].text), c[i].rc);
		CU_ASSERT_STRING_EQUAL(error_text(), c[i].err);
		if (strcmp(error_text(), c[i].err) != 0)
			printf("  row %zu: %s\n", i, err);
	}
}

static void overlong_text_is_rejected_at_its_limit(void)
{
	static char text[3 * KVR_CONF_MAX_VALUE], long_text[KVR_CONF_MAX_VALUE + 2];

	memset(long_text, 'k', sizeof(long_text));
	long_text[sizeof(long_text) - 1] = '\0';
	snprintf(text, sizeof(text), "[router]\n%.64s = 1\n", long_text);
	CU_ASSERT_EQUAL(load_text(text), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error_text(), ":2: [router] kkkk"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "key too long, allowed: 63 characters"));
	snprintf(text, sizeof(text), "[router]\n%.63s = 1\n", long_text);
	CU_ASSERT_EQUAL(load_text(text), -ENOENT); /* fits, but is unknown */
	snprintf(text, sizeof(text), "[pool a]\nmodel = %.4096s\n", long_text);
	CU_ASSERT_EQUAL(load_text(text), -EINVAL);
	CU_ASSERT_STRING_EQUAL(error_text(),
			       ":2: [pool a] model: value of 4096 characters, allowed: 4095");
	snprintf(text, sizeof(text), "[pool a]\nhosts = %.4000s\nhosts = %.94s\n", long_text,
		 long_text);
	CU_ASSERT_EQUAL(load_text(text), -ERANGE); /* passes the file's limit, not the option's */
	CU_ASSERT_PTR_NOT_NULL(strstr(error_text(), "allowed: at most 399 printable characters"));
	snprintf(text, sizeof(text), "[pool a]\nhosts = %.4000s\nhosts = %.95s\n", long_text,
		 long_text);
	CU_ASSERT_EQUAL(load_text(text), -ERANGE);
	CU_ASSERT_STRING_EQUAL(error_text(),
			       ":2: [pool a] hosts: values too long together, allowed: 4095 "
			       "characters");
	snprintf(text, sizeof(text), "[pool a]\nmodel = %.4095s\n", long_text);
	CU_ASSERT_EQUAL(load_text(text), -ERANGE); /* passes the file's limit, not the option's */
	snprintf(text, sizeof(text), "[pool a]\nmodel = %.63s %4000s; %.4000s\n", long_text, "",
		 long_text);
	CU_ASSERT_EQUAL(load_text(text), 0); /* blanks and comments are not counted */
	snprintf(text, sizeof(text), "[%.64s]\n", long_text);
	CU_ASSERT_EQUAL(load_text(text), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "section name too long, allowed: 63 characters"));
}

static void unreadable_files_are_reported_with_their_cause(void)
{
	char dir[] = "/tmp/kvr_conf_dir_XXXXXX", want[256];

	CU_ASSERT_EQUAL(kvr_conf_load("/nonexistent/x.conf", sections, &config, err, sizeof(err)),
			-ENOENT);
	CU_ASSERT_STRING_EQUAL(err, "/nonexistent/x.conf: cannot read: No such file or directory");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	CU_ASSERT_EQUAL(kvr_conf_load(dir, sections, &config, err, sizeof(err)), -EINVAL);
	snprintf(want, sizeof(want), "%s: not a regular file", dir);
	CU_ASSERT_STRING_EQUAL(err, want);
	snprintf(want, sizeof(want), "%s/fifo", dir);
	CU_ASSERT_EQUAL_FATAL(mkfifo(want, 0600), 0);
	CU_ASSERT_EQUAL(kvr_conf_load(want, sections, &config, err, sizeof(err)), -EINVAL);
	unlink(want);
	rmdir(dir);
	CU_ASSERT_EQUAL(load_bytes("[router]\0\n", 10), -EINVAL);
	CU_ASSERT_STRING_EQUAL(error_text(), ": contains a zero byte, not a text file");
	CU_ASSERT_EQUAL_FATAL(truncate(path, KVR_CONF_MAX_BYTES + 1), 0);
	CU_ASSERT_EQUAL(kvr_conf_load(path, sections, &config, err, sizeof(err)), -EFBIG);
	CU_ASSERT_STRING_EQUAL(error_text(), ": larger than 1048576 bytes");
}

static void deprecated_key_works_and_is_reported(void)
{
	CU_ASSERT_EQUAL(load_text("[router]\ncores = 2\n"), 0);
	CU_ASSERT_EQUAL(config.lcores, 2);
	CU_ASSERT_STRING_EQUAL(error_text(), ":2: [router] cores: deprecated");
}

static void blame_finds_key_section_or_file(void)
{
	CU_ASSERT_EQUAL(load_text("[router]\n\nlcores = 2\n[pool a]\n"), 0);
	kvr_conf_blame(path, "router", "lcores", err, sizeof(err), "lcore %d used twice", 3);
	CU_ASSERT_STRING_EQUAL(error_text(), ":3: [router] lcores: lcore 3 used twice");
	kvr_conf_blame(path, "pool a", "model", err, sizeof(err), "missing");
	CU_ASSERT_STRING_EQUAL(error_text(), ":4: [pool a] model: missing");
	kvr_conf_blame(path, "port p0", NULL, err, sizeof(err), "no port given");
	CU_ASSERT_STRING_EQUAL(error_text(), ": [port p0]: no port given");
	kvr_conf_blame_line(path, "router", "lcores: got \"2\", allowed: 1", err, sizeof(err));
	CU_ASSERT_STRING_EQUAL(error_text(), ":3: [router] lcores: got \"2\", allowed: 1");
	kvr_conf_blame_line(path, "router", "no memory", err, sizeof(err));
	CU_ASSERT_STRING_EQUAL(error_text(), ":1: [router]: no memory");
}

/* Any bytes: a result and no crash. The sanitizer build checks memory accesses. */
static void random_text_is_parsed_or_rejected(void)
{
	static const char alphabet[] = "[]=;# \t\r\nrouterlcspa019\\\"\001";
	unsigned int seed = 1;
	char text[128];

	for (int i = 0; i < 3000; i++) {
		size_t n = (size_t)rand_r(&seed) % sizeof(text);
		int rc;

		for (size_t j = 0; j < n; j++)
			text[j] = alphabet[(size_t)rand_r(&seed) % (sizeof(alphabet) - 1)];
		rc = load_bytes(text, n);
		CU_ASSERT_TRUE(rc == 0 || strncmp(err, path, strlen(path)) == 0);
		CU_ASSERT_PTR_NULL(strchr(err, '\n'));
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_good_file_fills_its_objects),
			       KVR_CASE(keys_before_and_after_a_preset_override_it),
			       KVR_CASE(values_of_a_repeated_list_are_joined),
			       KVR_CASE(an_empty_file_is_good),
			       KVR_CASE(every_fault_names_line_key_and_allowed_values),
			       KVR_CASE(overlong_text_is_rejected_at_its_limit),
			       KVR_CASE(unreadable_files_are_reported_with_their_cause),
			       KVR_CASE(deprecated_key_works_and_is_reported),
			       KVR_CASE(blame_finds_key_section_or_file),
			       KVR_CASE(random_text_is_parsed_or_rejected),
			       CU_TEST_INFO_NULL};
	const int fd = mkstemp(path);
	int rc;

	if (fd < 0)
		return 1;
	close(fd);
	rc = kvr_test_run("load", tests);
	unlink(path);
	return rc;
}
