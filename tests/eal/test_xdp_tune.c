/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes of the allow-list while the router runs, in the maps of the XDP program. The kernel may
 * reject any step: the old list then stays in effect, in the program and at the lcores, and a later
 * change is possible. Also two lists without a common prefix that fill the map together, and a
 * kernel before 6.13, which rejects an update of an element of a full map. Exits 77 where programs
 * may not be loaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>

#include "kvr_test.h"
#include "kvroute_xdp.h"
#include "port_pvt.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "kvroute_xdp.skel.h"
#pragma GCC diagnostic pop

static struct kvroute_xdp *skel;
static struct kvr_port *port;
static struct kvr_port_conf conf;
static char err[200];
static int refuse_at; /* number of the map update that fails, from 1; 0 = none */
static int changes;
static bool old_kernel;

/* ---- functions that the library calls ---- */

static uint32_t count_elements(int map)
{
	struct kvr_xdp_prefix key[2];
	uint32_t n = 0;

	while (bpf_map_get_next_key(map, n != 0 ? &key[n & 1] : NULL, &key[(n + 1) & 1]) == 0)
		n++;
	return n;
}

static bool fails_now(void)
{
	return ++changes == refuse_at;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	static int (*next)(int, const void *, const void *, __u64);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "bpf_map_update_elem");
	if (fails_now() ||
	    (old_kernel && fd == port->xdp.allow && count_elements(fd) == KVR_XDP_ALLOW)) {
		errno = ENOSPC;
		return -ENOSPC;
	}
	return next(fd, key, value, flags);
}

int bpf_map_delete_elem(int fd, const void *key)
{
	static int (*next)(int, const void *);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "bpf_map_delete_elem");
	if (fails_now()) {
		errno = ENOMEM;
		return -ENOMEM;
	}
	return next(fd, key);
}

/* ---- a port without a device ---- */

static void no_wait(void *arg)
{
	(void)arg;
}

static int tune_port(void)
{
	changes = 0;
	return kvr_port_tune(port, &conf, no_wait, NULL, err, sizeof(err));
}

/* Set the list to @p n addresses 10.@p net.0.x. */
static void set_list(unsigned int net, unsigned int n)
{
	size_t len = 0;

	conf.allow[0] = '\0';
	for (unsigned int i = 0; i < n; i++)
		len += (size_t)snprintf(conf.allow + len, sizeof(conf.allow) - len, "10.%u.0.%u ",
					net, i + 2);
}

#define FRAME 64u

/* Frame to the router from 10.@p net.0.@p host. */
static void make_frame_from(uint8_t f[FRAME], unsigned int net, unsigned int host)
{
	memset(f, 0, FRAME);
	f[12] = 8;
	f[14] = 0x45;
	f[17] = FRAME - 14;
	f[22] = 64;
	f[23] = IPPROTO_UDP;
	memcpy(f + 26, (uint8_t[]){10, (uint8_t)net, 0, (uint8_t)host, 10, 0, 0, 1}, 8);
	memcpy(f + 34, (uint16_t[]){htons(4000), htons(7650), htons(FRAME - 34)}, 6);
}

static uint64_t read_xdp_count(uint32_t what)
{
	uint64_t cpu[1024] = {0}, sum = 0;
	const int cpus = libbpf_num_possible_cpus();

	CU_ASSERT_FATAL(cpus > 0 && cpus <= 1024);
	CU_ASSERT_EQUAL(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counts), &what, cpu), 0);
	for (int i = 0; i < cpus; i++)
		sum += cpu[i];
	return sum;
}

/* An accepted frame ends without a socket, as there is none. */
static bool program_accepts(const uint8_t f[FRAME])
{
	const uint64_t denied = read_xdp_count(KVR_XDP_DENIED),
		       in = read_xdp_count(KVR_XDP_NO_SOCKET);
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = f, .data_size_in = FRAME, .repeat = 1);

	CU_ASSERT_EQUAL(bpf_prog_test_run_opts(bpf_program__fd(skel->progs.kvroute_xdp), &o), 0);
	CU_ASSERT_EQUAL(o.retval, XDP_DROP);
	CU_ASSERT_EQUAL(read_xdp_count(KVR_XDP_DENIED) + read_xdp_count(KVR_XDP_NO_SOCKET),
			denied + in + 1);
	return read_xdp_count(KVR_XDP_DENIED) == denied;
}

static bool lcores_accept(const uint8_t f[FRAME])
{
	struct kvr_pkt p;
	const enum kvr_pkt_verdict v = kvr_pkt_parse(kvr_port__rules(&port->queues[0]), f, FRAME,
						     KVR_PKT_HW_IP_GOOD | KVR_PKT_HW_L4_GOOD, &p);

	CU_ASSERT(v == KVR_PKT_UDP || v == KVR_PKT_DENIED);
	return v == KVR_PKT_UDP;
}

/* Check that of the nets 0 to 3 exactly those in @p bits are accepted, each with @p n addresses. */
static bool check_accepted(unsigned int bits, unsigned int n)
{
	bool good = true;

	for (unsigned int net = 0; net < 4; net++)
		for (unsigned int i = 0; i < n; i++) {
			const bool want = bits >> net & 1;
			uint8_t f[FRAME];

			make_frame_from(f, net, i + 2);
			good = good && program_accepts(f) == want && lcores_accept(f) == want;
		}
	return good;
}

/* ---- tests ---- */

static void begin_tune(void)
{
	refuse_at = 0;
	old_kernel = false;
	set_list(0, 0);
	CU_ASSERT_EQUAL(tune_port(), 0);
	CU_ASSERT_TRUE(check_accepted(0xf, 1));
	CU_ASSERT_EQUAL(count_elements(port->xdp.allow), 0);
}

static void test_full_lists(void)
{
	begin_tune();
	for (unsigned int net = 0; net < 4; net++) {
		set_list(net, 64);
		CU_ASSERT_EQUAL(tune_port(), 0);
		CU_ASSERT_TRUE(check_accepted(1u << net, 64));
		CU_ASSERT_EQUAL(count_elements(port->xdp.allow), 64);
	}
	/* One prefix too many: the whole list is rejected. */
	strcat(conf.allow, "10.9.0.9");
	CU_ASSERT_EQUAL(tune_port(), -EINVAL);
	CU_ASSERT_NOT_EQUAL(strstr(err, "one too many"), NULL);
	CU_ASSERT_EQUAL(changes, 0);
	CU_ASSERT_TRUE(check_accepted(8, 64));
}

/* Let each step fail once; the old list stays in effect. */
static void fail_every_step(unsigned int n, bool old)
{
	int steps;

	begin_tune();
	set_list(1, n);
	CU_ASSERT_EQUAL(tune_port(), 0);
	set_list(2, n);
	CU_ASSERT_EQUAL(tune_port(), 0);
	steps = changes;
	CU_ASSERT(steps > 2 * (int)n);
	set_list(1, n);
	CU_ASSERT_EQUAL(tune_port(), 0);
	old_kernel = old;
	for (refuse_at = 1; refuse_at <= steps; refuse_at++) {
		set_list(2, n);
		CU_ASSERT(tune_port() < 0);
		CU_ASSERT_NOT_EQUAL(strstr(err, "xdp: cannot update the program's maps"), NULL);
		CU_ASSERT_TRUE(check_accepted(2, n));
		CU_ASSERT_EQUAL(count_elements(port->xdp.allow), n);
	}
	refuse_at = 0;
	set_list(2, n);
	CU_ASSERT_EQUAL(tune_port(), 0);
	CU_ASSERT_TRUE(check_accepted(4, n));
	CU_ASSERT_EQUAL(count_elements(port->xdp.allow), n);
	old_kernel = false;
}

static void test_failed_update(void)
{
	fail_every_step(3, false);
	fail_every_step(64, false);
}

static void test_failed_update_old_kernel(void)
{
	fail_every_step(3, true);
	fail_every_step(64, true);
}

/* From all sources to a list, and back. */
static void test_failed_update_from_all_sources(void)
{
	for (int step = 1; step <= 4; step++) {
		begin_tune();
		refuse_at = step;
		set_list(1, 3);
		CU_ASSERT(tune_port() < 0);
		CU_ASSERT_TRUE(check_accepted(0xf, 3));
		refuse_at = 0;
		CU_ASSERT_EQUAL(tune_port(), 0);
		CU_ASSERT_TRUE(check_accepted(2, 3));
		refuse_at = step;
		set_list(0, 0);
		CU_ASSERT(tune_port() < 0);
		CU_ASSERT_TRUE(check_accepted(2, 3));
	}
}

static int create_port(void)
{
	int rc;

	port = calloc(1, sizeof(*port));
	kvr_conf_defaults(kvr_port_opts, &conf);
	strcpy(conf.device, "net_af_xdp0,iface=x");
	strcpy(conf.ipv4, "10.0.0.1");
	rc = kvr_port_rules(&conf, 0, &port->rules, err, sizeof(err));
	port->conf = conf;
	port->live[0] = port->rules;
	port->lcores = 1;
	port->queues = calloc(1, sizeof(*port->queues));
	atomic_init(&port->queues[0].rules, &port->live[0]);
	port->xdp.used = true;
	port->xdp.conf = bpf_map__fd(skel->maps.conf);
	port->xdp.allow = bpf_map__fd(skel->maps.allow);
	return rc == 0 ? kvr_port_xdp_redirect(port, true) : rc;
}

static int ignore_message(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level, (void)fmt, (void)ap;
	return 0;
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(test_full_lists), KVR_CASE(test_failed_update),
			       KVR_CASE(test_failed_update_old_kernel),
			       KVR_CASE(test_failed_update_from_all_sources), CU_TEST_INFO_NULL};
	int rc;

	libbpf_set_print(ignore_message);
	skel = kvroute_xdp__open_and_load();
	if (skel == NULL) {
		fprintf(stderr, "the XDP program is not loaded: %s\n", strerror(errno));
		return errno == EPERM || errno == EACCES || errno == ENOSYS ? 77 : 1;
	}
	rc = create_port() == 0 ? kvr_test_run("xdp_tune", tests) : 1;
	free(port->queues);
	free(port);
	kvroute_xdp__destroy(skel);
	return rc;
}
