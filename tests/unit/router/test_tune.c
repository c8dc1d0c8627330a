/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of several ports change together or not at all: where the kernel refuses one, the ports
 * before it get back what they had. kvr_port_tune() and rules_update() are this test's.
 */
#include "control/tune.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_test.h"
#include "state/router.h"

#define PORTS 3u

static struct router rt;
static struct kvr_port_conf next[PORTS];
static char err[100];
static unsigned int updates;

static struct {
	char allow[256]; /* what it goes by */
	unsigned int calls;
	bool refuses;
} port[PORTS];

int __wrap_kvr_port_tune(struct kvr_port *p, const struct kvr_port_conf *conf,
			 void (*wait)(void *arg), void *arg, char *why, size_t len);
void __wrap_rules_update(struct router *r);

int __wrap_kvr_port_tune(struct kvr_port *p, const struct kvr_port_conf *conf,
			 void (*wait)(void *arg), void *arg, char *why, size_t len)
{
	uint32_t i = 0;

	(void)wait, (void)arg;
	while (rt.port[i] != p)
		i++;
	port[i].calls++;
	if (port[i].refuses) {
		snprintf(why, len, "port %u refuses", i);
		return -ENOSPC;
	}
	strcpy(port[i].allow, conf->allow);
	return 0;
}

void __wrap_rules_update(struct router *r)
{
	CU_ASSERT_PTR_EQUAL(r, &rt);
	updates++;
}

static void next_is(uint32_t i, const char *allow, uint32_t rate)
{
	strcpy(next[i].allow, allow);
	next[i].source_rate = rate;
}

/* Ports with a list of one address. */
static void begin_tuning(void)
{
	memset(port, 0, sizeof(port));
	updates = 0;
	err[0] = '\0';
	rt.n_ports = PORTS;
	for (uint32_t i = 0; i < PORTS; i++) {
		kvr_conf_defaults(kvr_port_opts, &rt.conf.port[i].port);
		strcpy(rt.conf.port[i].port.allow, "10.0.0.1");
		strcpy(port[i].allow, "10.0.0.1");
		rt.port[i] = (struct kvr_port *)(void *)&port[i];
		next[i] = rt.conf.port[i].port;
	}
}

static bool goes_by(uint32_t i, const char *allow, uint32_t rate)
{
	const struct kvr_port_conf *c = &rt.conf.port[i].port;

	return strcmp(port[i].allow, allow) == 0 && strcmp(c->allow, allow) == 0 &&
	       c->source_rate == rate;
}

static void all_take_it(void)
{
	begin_tuning();
	for (uint32_t i = 0; i < PORTS; i++)
		next_is(i, "10.0.0.2", 0);
	CU_ASSERT_EQUAL(tune_ports(&rt, next, err, sizeof(err)), 0);
	for (uint32_t i = 0; i < PORTS; i++) {
		CU_ASSERT_TRUE(goes_by(i, "10.0.0.2", 0));
		CU_ASSERT_EQUAL(port[i].calls, 1);
	}
	CU_ASSERT_EQUAL(updates, 0); /* rates are as they were */
}

static void one_refuses_and_all_keep_theirs(void)
{
	for (uint32_t at = 0; at < PORTS; at++) {
		char want[32];

		begin_tuning();
		for (uint32_t i = 0; i < PORTS; i++)
			next_is(i, "10.0.0.2", 7);
		port[at].refuses = true;
		CU_ASSERT_EQUAL(tune_ports(&rt, next, err, sizeof(err)), -ENOSPC);
		snprintf(want, sizeof(want), "port %u refuses", at);
		CU_ASSERT_STRING_EQUAL(err, want);
		for (uint32_t i = 0; i < PORTS; i++) {
			CU_ASSERT_TRUE(goes_by(i, "10.0.0.1", 0));
			CU_ASSERT_EQUAL(port[i].calls, i < at ? 2 : i == at);
		}
		CU_ASSERT_EQUAL(updates, 0);
		port[at].refuses = false;
		CU_ASSERT_EQUAL(tune_ports(&rt, next, err, sizeof(err)), 0);
		for (uint32_t i = 0; i < PORTS; i++)
			CU_ASSERT_TRUE(goes_by(i, "10.0.0.2", 7));
		CU_ASSERT_EQUAL(updates, 1);
	}
}

/* Whose list stays the same is left alone, there and back. */
static void others_are_not_asked(void)
{
	begin_tuning();
	next_is(0, "10.0.0.1", 7);
	next_is(1, "10.0.0.2", 0);
	next_is(2, "10.0.0.2", 0);
	port[2].refuses = true;
	CU_ASSERT_EQUAL(tune_ports(&rt, next, err, sizeof(err)), -ENOSPC);
	CU_ASSERT_EQUAL(port[0].calls, 0);
	CU_ASSERT_EQUAL(port[1].calls, 2);
	for (uint32_t i = 0; i < PORTS; i++)
		CU_ASSERT_TRUE(goes_by(i, "10.0.0.1", 0));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(all_take_it), KVR_CASE(one_refuses_and_all_keep_theirs),
			       KVR_CASE(others_are_not_asked), CU_TEST_INFO_NULL};

	return kvr_test_run("tune", tests);
}
