/* SPDX-License-Identifier: BSD-3-Clause */
/* The lcore map: which polling lcore runs on which CPU, and what is refused. */
#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "config/lcores.h"
#include "kvr_test.h"
#include "lcore/idle.h"

static struct kvr_router_conf conf;
static char why[300];

/* @return what lcores_ingress() says of a new map. */
static int parse_ingress(const char *text)
{
	conf = (struct kvr_router_conf){.opt = {.idle = IDLE_POLL}};
	why[0] = '\0';
	return lcores_ingress(&conf, text, NULL, why, sizeof(why));
}

/* The index that @text calls; -1: refused. */
static int parse_role(const char *text)
{
	uint32_t lcore = 99;

	why[0] = '\0';
	return lcores_role(&conf, text, NULL, &lcore, why, sizeof(why)) == 0 ? (int)lcore : -1;
}

static void check_map(const uint32_t *cpu, uint32_t n)
{
	CU_ASSERT_EQUAL_FATAL(conf.n_lcores, n);
	CU_ASSERT_EQUAL(memcmp(conf.cpu, cpu, n * sizeof(*cpu)), 0);
}

#define CHECK_MAP(...)                                                                             \
	check_map((const uint32_t[]){__VA_ARGS__},                                                 \
		  sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void plain_cpus_have_one_lcore_each(void)
{
	CU_ASSERT_EQUAL(parse_ingress("0"), 0);
	CHECK_MAP(0);
	CU_ASSERT_EQUAL(parse_ingress("7,2-4"), 0);
	CHECK_MAP(7, 2, 3, 4);
	CU_ASSERT_EQUAL(conf.n_ingress, 4);
	CU_ASSERT_EQUAL(parse_ingress("1023"), 0);
	CHECK_MAP(1023);
}

static void lcores_with_an_id_may_share_a_cpu(void)
{
	CU_ASSERT_EQUAL(parse_ingress("0@0,1@0,2@1,3@1"), 0);
	CHECK_MAP(0, 0, 1, 1);
	CU_ASSERT_EQUAL(conf.n_ingress, 4);
	CU_ASSERT_EQUAL(parse_ingress("3-4,2@3"), 0);
	CHECK_MAP(3, 4, 3);
}

static void what_is_no_list_is_refused(void)
{
	static const char *const bad[] = {"",	    ",",       "a",	 "0,",
					  "0,,1",   "0 ,1",    "-1",	 "2-1",
					  "0-",	    "1024",    "0@",	 "@0",
					  "0@a",    "0@0-1",   "0-1@0",	 "0@0@0",
					  "0@1024", "0@0 1@0", "1024@0", "99999999999999999999"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(parse_ingress(bad[i]), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(why, "allowed: CPUs like"));
	}
}

static void a_cpu_twice_needs_ids(void)
{
	static const char *const bad[] = {"0,0", "0-2,1", "0@0,0", "0,0-1"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(parse_ingress(bad[i]), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(why, " twice, allowed: once, or"));
	}
}

static void ids_come_in_order(void)
{
	CU_ASSERT_EQUAL(parse_ingress("1@0"), -EINVAL);
	CU_ASSERT_STRING_EQUAL(why, "got \"1@0\", allowed: IDs in order, the next is 0");
	CU_ASSERT_EQUAL(parse_ingress("0@0,0@1"), -EINVAL);
	CU_ASSERT_STRING_EQUAL(why, "got \"0@1\", allowed: IDs in order, the next is 1");
}

static void so_many_lcores_and_cpus_there_are(void)
{
	cpu_set_t may;

	CU_ASSERT_EQUAL(parse_ingress("0-31"), 0);
	CU_ASSERT_EQUAL(conf.n_lcores, KVR_ROUTER_MAX_LCORES);
	CU_ASSERT_EQUAL(parse_role("31@31"), 31);
	CU_ASSERT_EQUAL(parse_role("32@0"), -1);
	CU_ASSERT_EQUAL(parse_role("40"), -1);
	CU_ASSERT_EQUAL(parse_ingress("0-32"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "more than 32"));
	CPU_ZERO(&may);
	CPU_SET(1, &may);
	conf = (struct kvr_router_conf){0};
	CU_ASSERT_EQUAL(lcores_ingress(&conf, "0@1,1@2", &may, why, sizeof(why)), -EINVAL);
	CU_ASSERT_STRING_EQUAL(why, "CPU 2 is not available to this process, allowed: 1");
	for (size_t cpu = 3; cpu < 200; cpu += cpu % 5 == 0 ? 2 : 1)
		CPU_SET(cpu, &may);
	conf = (struct kvr_router_conf){0};
	CU_ASSERT_EQUAL(lcores_ingress(&conf, "0@2", &may, why, sizeof(why)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "allowed: 1,3-5,7-10,12-15,"));
}

static void a_role_takes_the_lcore_of_its_cpu(void)
{
	CU_ASSERT_EQUAL(parse_ingress("0@4,1@4,2@5"), 0);
	CU_ASSERT_EQUAL(parse_role(""), 0);
	CU_ASSERT_EQUAL(parse_role("4"), 0); /* the first of them */
	CU_ASSERT_EQUAL(parse_role("5"), 2);
	CU_ASSERT_EQUAL(parse_role("1@4"), 1);
	CHECK_MAP(4, 4, 5);
	CU_ASSERT_EQUAL(parse_role("7"), 3);
	CU_ASSERT_EQUAL(parse_role("4@4"), 4);
	CU_ASSERT_EQUAL(parse_role("4@4"), 4); /* of another pool */
	CHECK_MAP(4, 4, 5, 7, 4);
	CU_ASSERT_EQUAL(conf.n_ingress, 3);
}

static void a_role_that_contradicts_is_refused(void)
{
	static const char *const bad[] = {"a", "1-2", "1,2", "0@4,1@4", "0@", "1 "};

	CU_ASSERT_EQUAL(parse_ingress("0@4,1@4"), 0);
	CU_ASSERT_EQUAL(parse_role("1@5"), -1);
	CU_ASSERT_STRING_EQUAL(why, "got \"1@5\", but lcore 1 is on CPU 4");
	CU_ASSERT_EQUAL(parse_role("3@5"), -1);
	CU_ASSERT_STRING_EQUAL(why, "got \"3@5\", allowed: IDs in order, the next is 2");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(parse_role(bad[i]), -1);
		CU_ASSERT_PTR_NOT_NULL(strstr(why, "allowed: a CPU like 2"));
	}
	CHECK_MAP(4, 4);
}

static void lcores_that_share_a_cpu_do_not_poll(void)
{
	CU_ASSERT_EQUAL(parse_ingress("0-3"), 0);
	CU_ASSERT_EQUAL(lcores_idle(&conf, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(parse_role("4@2"), 4);
	CU_ASSERT_EQUAL(lcores_idle(&conf, why, sizeof(why)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "lcores 2 and 4 share CPU 2"));
	conf.opt.idle = IDLE_SLEEP;
	CU_ASSERT_EQUAL(lcores_idle(&conf, why, sizeof(why)), 0);
	conf.opt.idle = IDLE_INTERRUPT;
	CU_ASSERT_EQUAL(lcores_idle(&conf, why, sizeof(why)), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(plain_cpus_have_one_lcore_each),
			       KVR_CASE(lcores_with_an_id_may_share_a_cpu),
			       KVR_CASE(what_is_no_list_is_refused),
			       KVR_CASE(a_cpu_twice_needs_ids),
			       KVR_CASE(ids_come_in_order),
			       KVR_CASE(so_many_lcores_and_cpus_there_are),
			       KVR_CASE(a_role_takes_the_lcore_of_its_cpu),
			       KVR_CASE(a_role_that_contradicts_is_refused),
			       KVR_CASE(lcores_that_share_a_cpu_do_not_poll),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("lcores", tests);
}
