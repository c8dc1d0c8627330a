/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens a port and returns every datagram to its sender, until COUNT datagrams have been echoed:
 * port_echo DEVICE IPV4 IPV6 MTU COUNT [key=value ...]. Prints "ready" when it polls, then changes
 * of the link, and at the end the counters of the port and of each queue. Exits with 1 if a counter
 * equation is violated. With sleep=on it does not poll: after an empty burst it sleeps until the
 * device wakes it (and does not watch the link), and prints the counters "woken" and "cannot".
 * COUNT "off" removes the XDP program of a process that has died. Used by test_port_kernel.sh, and
 * for manual checks of a new kind of port.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>

#include "kvr_port.h"

#define SECONDS 90 /* peers on a busy machine are slow */

static bool sleeps;
static unsigned int woken, misled, cannot;
static bool signalled[KVR_PORT_MAX_QUEUES]; /* a queue has signalled frames */

static int fill_port_conf(struct kvr_port_conf *c, int argc, char **argv, char *err, size_t errlen)
{
	static const char *const keys[] = {"device", "ipv4", "ipv6", "mtu"};
	int rc = 0;

	kvr_conf_defaults(kvr_port_opts, c);
	c->mbufs = 6143; /* AF_XDP keeps 4,096 */
	c->rx_descriptors = 256;
	c->tx_descriptors = 256;
	for (int i = 0; rc == 0 && i < 4; i++)
		rc = kvr_conf_set(kvr_port_opts, c, keys[i], argv[i], err, errlen);
	for (int i = 5; rc == 0 && i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (value == NULL)
			return -1;
		*value++ = '\0';
		if (strcmp(argv[i], "sleep") == 0) {
			sleeps = strcmp(value, "on") == 0;
			continue;
		}
		rc = kvr_conf_set(kvr_port_opts, c, argv[i], value, err, errlen);
	}
	return rc;
}

/* Print a change of the link. */
static void watch_link(struct kvr_port *p)
{
	static const char *const names[] = {"link up", "link down", "link gone"};
	static enum kvr_port_link_state said = KVR_PORT_UP;
	const enum kvr_port_link_state now = kvr_port_look_after(p, rte_rdtsc(), NULL, NULL);

	if (now == said)
		return;
	said = now;
	printf("%s\n", names[now]);
	fflush(stdout);
}

/* All queues were empty. */
static void sleep_till_woken(struct kvr_port *p, unsigned int queues, uint64_t until)
{
	struct pollfd fds[KVR_PORT_MAX_QUEUES] = {0};
	const uint64_t now = rte_get_tsc_cycles();
	unsigned int armed;
	int rc = 0;

	for (armed = 0; armed < queues; armed++) {
		fds[armed].events = POLLIN;
		rc = kvr_port_wait_arm(kvr_port_queue(p, armed), &fds[armed].fd);
		if (rc != 0)
			break;
	}
	cannot += rc == -ENOTSUP;
	if (rc == 0 && now < until)
		woken += poll(fds, queues, (int)((until - now) * 1000 / rte_get_tsc_hz())) > 0;
	while (armed-- > 0) {
		signalled[armed] = (fds[armed].revents & POLLIN) != 0;
		kvr_port_wait_disarm(kvr_port_queue(p, armed));
	}
}

static void echo_datagrams(struct kvr_port *p, unsigned int queues, uint64_t count)
{
	const uint64_t until = rte_get_tsc_cycles() + SECONDS * rte_get_tsc_hz();
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	unsigned int empty = 0; /* in a row */

	for (unsigned int i = 0; count > 0 && rte_get_tsc_cycles() < until; i++) {
		struct kvr_port_queue *q = kvr_port_queue(p, i % queues);
		const uint16_t n = kvr_port_rx_burst(q, m, pkts, KVR_PORT_BURST);

		for (uint16_t k = 0; k < n; k++)
			kvr_port_send(q, &pkts[k].path, m[k]);
		kvr_port_flush(q);
		empty = kvr_port_rx_got(q) == 0 ? empty + 1 : 0;
		misled += signalled[i % queues] && empty > 0;
		signalled[i % queues] = false;
		if (!sleeps)
			watch_link(p);
		else if (empty >= queues)
			sleep_till_woken(p, queues, until);
		count -= n < count ? n : count;
	}
}

static void show_queue(struct kvr_port *p, unsigned int queue)
{
	static const unsigned int shown[] = {KVR_PORT_RX_FRAMES, KVR_PORT_TX_SENT};
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_row_get(kvr_port_stats(p), queue, v);
	for (unsigned int i = 0; i < RTE_DIM(shown); i++)
		printf("queue%u.%s=%llu\n", queue, kvr_port_stats_def.counters[shown[i]].name,
		       (unsigned long long)v[shown[i]]);
}

int main(int argc, char **argv)
{
	char *eal[] = {argv[0], "--no-huge",	  "--no-shconf",       "-m",	  "128", "-l",
		       "0",	"--no-telemetry", "--log-level=error", "--no-pci"};
	uint64_t v[KVR_PORT_COUNTERS], x[KVR_STATS_MAX];
	const struct kvr_equation *bad;
	struct kvr_port_conf conf;
	struct kvr_port_info info;
	char err[512] = "usage: port_echo DEVICE IPV4 IPV6 MTU COUNT [key=value ...]";
	struct kvr_port *p;

	if (argc < 6 || fill_port_conf(&conf, argc - 1, argv + 1, err, sizeof(err)) != 0) {
		fprintf(stderr, "%s\n", err);
		return 2;
	}
	if (strcmp(argv[5], "off") == 0) {
		if (kvr_port_xdp_off(&conf, err, sizeof(err)) == 0)
			return 0;
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	if (rte_eal_init((int)RTE_DIM(eal), eal) < 0)
		return 2;
	conf.interrupts = sleeps;
	p = kvr_port_create("echo", &conf, 0, err, sizeof(err));
	if (p == NULL || kvr_port_start(p, err, sizeof(err)) != 0) {
		fprintf(stderr, "%s\n", err);
		return 2;
	}
	if (sleeps)
		kvr_port_wait_start(p);
	kvr_port_info(p, &info);
	printf("answers_arp=%d\nanswers_nd=%d\nready\n", info.answers4, info.answers6);
	fflush(stdout);
	echo_datagrams(p, info.queues, strtoull(argv[5], NULL, 10));
	if (sleeps)
		printf("woken=%u\nmisled=%u\ncannot=%u\n", woken, misled, cannot);
	kvr_stats_sum(kvr_port_stats(p), v);
	bad = kvr_stats_check(&kvr_port_stats_def, v, err, sizeof(err));
	for (unsigned int i = 0; i < KVR_PORT_COUNTERS; i++)
		if (v[i] != 0)
			printf("%s=%llu\n", kvr_port_stats_def.counters[i].name,
			       (unsigned long long)v[i]);
	if (bad != NULL)
		fprintf(stderr, "%s\n", err);
	for (unsigned int i = 0; info.queues > 1 && i < info.queues; i++)
		show_queue(p, i);
	for (unsigned int i = 0;
	     kvr_port_xdp_stats(p) != NULL && i < kvr_stats_count(&kvr_port_xdp_stats_def); i++) {
		kvr_stats_sum(kvr_port_xdp_stats(p), x);
		if (x[i] != 0)
			printf("xdp_%s=%llu\n", kvr_port_xdp_stats_def.counters[i].name,
			       (unsigned long long)x[i]);
	}
	kvr_port_destroy(p);
	rte_eal_cleanup();
	return bad != NULL;
}
