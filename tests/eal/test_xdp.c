/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program, frame by frame, in the kernel (BPF_PROG_TEST_RUN): its decision and its counter.
 * There is no socket here, so a frame for the router ends as no_socket; test_port_xdp.sh covers the
 * redirect. Exits 77 where programs may not be loaded.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>

#include "kvr_test.h"
#include "kvroute_xdp.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "kvroute_xdp.skel.h"
#pragma GCC diagnostic pop

#define PORT 7650
#define MAX  512

static struct kvroute_xdp *skel;

/* A frame that is built from its start. */
struct frame {
	uint8_t b[MAX];
	uint32_t n;
};

static void put_bytes(struct frame *f, const void *data, size_t n)
{
	memcpy(f->b + f->n, data, n);
	f->n += (uint32_t)n;
}

static void put_u8(struct frame *f, unsigned int v)
{
	put_bytes(f, &(uint8_t){(uint8_t)v}, 1);
}

static void put_u16(struct frame *f, unsigned int v)
{
	put_bytes(f, &(uint16_t){htons((uint16_t)v)}, 2);
}

static struct frame make_eth(void)
{
	struct frame f = {.n = 12};

	return f;
}

static void put_tag(struct frame *f, unsigned int type, unsigned int vlan)
{
	put_u16(f, type);
	put_u16(f, vlan);
}

/* IPv4 from 10.0.0.@from to 10.0.0.@to. */
static void put_ip4(struct frame *f, unsigned int from, unsigned int to, unsigned int options,
		    unsigned int frag, unsigned int proto)
{
	put_u16(f, 0x0800);
	put_u8(f, 0x45 + options);
	put_u8(f, 0);
	put_u16(f, 60);
	put_u16(f, 1);
	put_u16(f, frag);
	put_u8(f, 64);
	put_u8(f, proto);
	put_u16(f, 0);
	put_bytes(f, (uint8_t[]){10, 0, 0, (uint8_t)from, 10, 0, 0, (uint8_t)to}, 8);
	for (unsigned int i = 0; i < options * 4; i++)
		put_u8(f, 1);
}

/* IPv6 from fd00:0:0:@net::@from to fd00::@to. */
static void put_ip6(struct frame *f, unsigned int net, unsigned int from, unsigned int to,
		    unsigned int next)
{
	uint8_t a[16] = {0xfd, [7] = (uint8_t)net, [15] = (uint8_t)from};

	put_u16(f, 0x86dd);
	put_u8(f, 0x60);
	put_u8(f, 0);
	put_u16(f, 0);
	put_u16(f, 40);
	put_u8(f, next);
	put_u8(f, 64);
	put_bytes(f, a, 16);
	a[7] = 0;
	a[15] = (uint8_t)to;
	put_bytes(f, a, 16);
}

static void put_extension(struct frame *f, unsigned int next, unsigned int len, unsigned int word)
{
	put_u8(f, next);
	put_u8(f, len);
	put_u16(f, word);
	for (unsigned int i = 0; i < 4 + len * 8; i++)
		put_u8(f, 0);
}

static struct frame put_udp(struct frame f, unsigned int port)
{
	put_u16(&f, 4000);
	put_u16(&f, port);
	put_u16(&f, 24);
	put_u16(&f, 0);
	f.n += 16;
	return f;
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

/* Run @p f. Exactly one counter must grow by one: returns it. @p action is checked. */
static int run_frame(const struct frame *f, uint32_t action)
{
	uint64_t before[KVR_XDP_COUNTS];
	int moved = -1;
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = f->b, .data_size_in = f->n, .repeat = 1);

	for (uint32_t i = 0; i < KVR_XDP_COUNTS; i++)
		before[i] = read_xdp_count(i);
	CU_ASSERT_EQUAL(bpf_prog_test_run_opts(bpf_program__fd(skel->progs.kvroute_xdp), &o), 0);
	CU_ASSERT_EQUAL(o.retval, action);
	for (uint32_t i = 0; i < KVR_XDP_COUNTS; i++) {
		const uint64_t n = read_xdp_count(i) - before[i];

		if (n == 0)
			continue;
		CU_ASSERT(moved < 0 && n == 1);
		moved = (int)i;
	}
	return moved;
}

static struct kvr_xdp_conf make_usual_conf(void)
{
	return (struct kvr_xdp_conf){.on = 1,
				     .udp_port = htons(PORT),
				     .has4 = 1,
				     .has6 = 1,
				     .ip4 = {10, 0, 0, 1},
				     .ip6 = {0xfd, [15] = 1}};
}

static void set_conf(struct kvr_xdp_conf c)
{
	CU_ASSERT_EQUAL(bpf_map_update_elem(bpf_map__fd(skel->maps.conf), &(uint32_t){0}, &c, 0),
			0);
}

#define OURS(f)	     CU_ASSERT_EQUAL(run_frame(&(f), XDP_DROP), KVR_XDP_NO_SOCKET)
#define KERNEL(f)    CU_ASSERT_EQUAL(run_frame(&(f), XDP_PASS), KVR_XDP_KERNEL)
#define DROP(f, why) CU_ASSERT_EQUAL(run_frame(&(f), XDP_DROP), why)

static struct frame make_usual_ip4(unsigned int from)
{
	struct frame f = make_eth();

	put_ip4(&f, from, 1, 0, 0, IPPROTO_UDP);
	return put_udp(f, PORT);
}

static void test_address_and_port(void)
{
	struct frame f = make_eth();

	set_conf(make_usual_conf());
	f = make_usual_ip4(2);
	OURS(f);
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0, IPPROTO_UDP);
	f = put_udp(f, PORT + 1);
	KERNEL(f);
	f = make_eth();
	put_ip4(&f, 2, 9, 0, 0, IPPROTO_UDP);
	f = put_udp(f, PORT);
	KERNEL(f);
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0, IPPROTO_TCP);
	f = put_udp(f, PORT);
	KERNEL(f);
	f = make_eth();
	put_ip4(&f, 2, 1, 3, 0, IPPROTO_UDP); /* with options */
	f = put_udp(f, PORT);
	OURS(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_UDP);
	f = put_udp(f, PORT);
	OURS(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 9, IPPROTO_UDP);
	f = put_udp(f, PORT);
	KERNEL(f);
	f = make_eth();
	put_u16(&f, 0x0806); /* ARP */
	f.n += 46;
	KERNEL(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_ICMPV6);
	f = put_udp(f, PORT);
	KERNEL(f);
}

static void test_one_family(void)
{
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f = make_usual_ip4(2);

	c.has4 = 0;
	set_conf(c);
	KERNEL(f);
	c.has4 = 1;
	c.has6 = 0;
	set_conf(c);
	OURS(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_UDP);
	f = put_udp(f, PORT);
	KERNEL(f);
}

static void test_off(void)
{
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f = make_usual_ip4(2);

	c.on = 0;
	set_conf(c);
	CU_ASSERT_EQUAL(run_frame(&f, XDP_PASS), KVR_XDP_OFF);
}

/*
 * Every length from 0 to the whole frame: never read beyond it, and redirected only with its UDP
 * header.
 */
static void test_truncated(void)
{
	struct frame whole = make_usual_ip4(2), f;

	set_conf(make_usual_conf());
	for (uint32_t n = 14; n < whole.n; n++) {
		f = whole;
		f.n = n;
		if (n < 14 + 20 + 8) {
			KERNEL(f);
		} else {
			OURS(f);
		}
	}
	whole = make_eth();
	put_ip6(&whole, 0, 2, 1, IPPROTO_HOPOPTS);
	put_extension(&whole, IPPROTO_UDP, 1, 0);
	whole = put_udp(whole, PORT);
	for (uint32_t n = 14; n < 14 + 40 + 16 + 8; n++) {
		f = whole;
		f.n = n;
		KERNEL(f);
	}
	f = make_usual_ip4(2);
	f.b[14] = 0x44; /* header length below the minimum */
	KERNEL(f);
	f = make_usual_ip4(2);
	f.b[14] = 0x4f; /* longer than the rest of the frame */
	f.n = 14 + 40;
	KERNEL(f);
}

static void test_fragments(void)
{
	struct frame f;

	set_conf(make_usual_conf());
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0x2000, IPPROTO_UDP); /* the first fragment, to our port */
	f = put_udp(f, PORT);
	DROP(f, KVR_XDP_FRAGMENT);
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0x2000, IPPROTO_UDP); /* the first fragment, to another port */
	f = put_udp(f, PORT + 1);
	KERNEL(f);
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0x2010, IPPROTO_UDP); /* these bytes are not a port */
	f = put_udp(f, PORT);
	KERNEL(f);
	f = make_eth();
	put_ip4(&f, 2, 1, 0, 0x4000, IPPROTO_UDP); /* don't fragment, and not fragmented */
	f = put_udp(f, PORT);
	OURS(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_FRAGMENT);
	put_extension(&f, IPPROTO_UDP, 0, 1);
	f = put_udp(f, PORT);
	DROP(f, KVR_XDP_FRAGMENT);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_FRAGMENT);
	put_extension(&f, IPPROTO_UDP, 0, 0x0101);
	f = put_udp(f, PORT);
	KERNEL(f);
}

static void test_extensions(void)
{
	struct frame f;

	set_conf(make_usual_conf());
	for (unsigned int n = 1; n <= 5; n++) {
		f = make_eth();
		put_ip6(&f, 0, 2, 1, IPPROTO_DSTOPTS);
		for (unsigned int i = 1; i <= n; i++)
			put_extension(&f, i == n ? IPPROTO_UDP : IPPROTO_DSTOPTS, i & 1, 0);
		f = put_udp(f, PORT);
		if (n <= 4) {
			DROP(f, KVR_XDP_IP6_EXT);
		} else {
			KERNEL(f);
		}
	}
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_AH);
	put_extension(&f, IPPROTO_UDP, 1,
		      0); /* length field 1 = 12 bytes, in words of four plus 2 */
	f.n = 14 + 40 + 12;
	f = put_udp(f, PORT);
	DROP(f, KVR_XDP_IP6_EXT);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_DSTOPTS);
	put_extension(&f, IPPROTO_TCP, 0, 0);
	f = put_udp(f, PORT);
	KERNEL(f);
	f = make_eth();
	put_ip6(&f, 0, 2, 1, IPPROTO_ESP);
	put_extension(&f, IPPROTO_UDP, 0, 0);
	f = put_udp(f, PORT);
	KERNEL(f);
}

static struct frame make_tagged(unsigned int tags, unsigned int outer, unsigned int inner)
{
	struct frame f = make_eth();

	if (tags == 2)
		put_tag(&f, 0x88a8, outer);
	if (tags >= 1)
		put_tag(&f, 0x8100, inner);
	put_ip4(&f, 2, 1, 0, 0, IPPROTO_UDP);
	return put_udp(f, PORT);
}

static void test_vlan(void)
{
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f;

	set_conf(c);
	f = make_tagged(1, 0, 100);
	OURS(f);
	f = make_tagged(2, 7, 100);
	OURS(f);
	f = make_eth();
	for (int i = 0; i < 3; i++)
		put_tag(&f, 0x8100, 100);
	put_ip4(&f, 2, 1, 0, 0, IPPROTO_UDP);
	f = put_udp(f, PORT);
	KERNEL(f);
	c.vlan = 100;
	set_conf(c);
	f = make_tagged(1, 0, 100);
	OURS(f);
	f = make_tagged(1, 0, 101);
	KERNEL(f);
	f = make_tagged(0, 0, 0);
	KERNEL(f);
	f = make_tagged(2, 7, 100);
	OURS(f);
	f = make_tagged(2, 100, 7);
	KERNEL(f);
}

static void allow_source(unsigned int len, const uint8_t ip[16])
{
	struct kvr_xdp_prefix key = {.len = len};

	memcpy(key.ip.b, ip, 16);
	CU_ASSERT_EQUAL(bpf_map_update_elem(bpf_map__fd(skel->maps.allow), &key, &(uint32_t){1}, 0),
			0);
}

static void test_allow_list(void)
{
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f = make_usual_ip4(2);

	c.restricted = 1;
	set_conf(c);
	DROP(f, KVR_XDP_DENIED); /* a list without entries contains no source */
	allow_source(96 + 31, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2});
	allow_source(64, (uint8_t[16]){0xfd, [7] = 5});
	OURS(f);
	f = make_usual_ip4(3);
	OURS(f);
	f = make_usual_ip4(4);
	DROP(f, KVR_XDP_DENIED);
	f = make_eth();
	put_ip6(&f, 5, 2, 1, IPPROTO_UDP);
	f = put_udp(f, PORT);
	OURS(f);
	f = make_eth();
	put_ip6(&f, 6, 2, 1, IPPROTO_UDP);
	f = put_udp(f, PORT);
	DROP(f, KVR_XDP_DENIED);
	f = make_eth();
	put_ip4(&f, 4, 1, 0, 0, IPPROTO_UDP); /* frames for others are not checked */
	f = put_udp(f, PORT + 1);
	KERNEL(f);
}

/* One frame an hour: the progress of the clock during the test does not matter. */
static void test_rate(void)
{
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f;

	c.gap_ns = 3600ull * 1000000000;
	c.burst_ns = 4 * c.gap_ns;
	set_conf(c);
	f = make_usual_ip4(20);
	for (int i = 0; i < 5; i++)
		OURS(f);
	DROP(f, KVR_XDP_LIMITED);
	f = make_usual_ip4(21); /* another source */
	OURS(f);
	f = make_eth();
	put_ip4(&f, 20, 1, 0, 0, IPPROTO_UDP);
	f = put_udp(f, PORT + 1);
	KERNEL(f);
	for (unsigned int i = 0; i < 5; i++) { /* a /64 is one source */
		f = make_eth();
		put_ip6(&f, 8, 2 + i, 1, IPPROTO_UDP);
		f = put_udp(f, PORT);
		OURS(f);
	}
	DROP(f, KVR_XDP_LIMITED);
	f = make_eth();
	put_ip6(&f, 9, 2, 1, IPPROTO_UDP);
	f = put_udp(f, PORT);
	OURS(f);
	/* A source that was ahead once recovers: its time is behind the clock. */
	c.gap_ns = 1;
	c.burst_ns = 0;
	set_conf(c);
	f = make_usual_ip4(22);
	OURS(f);
	OURS(f);
	f = make_usual_ip4(20); /* its time, from the slower rate, is hours ahead */
	OURS(f);
}

#define FLOODS 4u
#define FLOOD  1000000u /* frames per thread */

static void *flood_program(void *arg)
{
	const struct frame *f = arg;
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = f->b, .data_size_in = f->n, .repeat = FLOOD);

	return bpf_prog_test_run_opts(bpf_program__fd(skel->progs.kvroute_xdp), &o) == 0 ? arg
											 : NULL;
}

static uint64_t read_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t); /* the clock of the program */
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A source on several queues has one rate: the elapsed time's worth, and one burst. */
static void test_rate_of_queues(void)
{
	const uint64_t before = read_xdp_count(KVR_XDP_NO_SOCKET),
		       limited = read_xdp_count(KVR_XDP_LIMITED);
	struct kvr_xdp_conf c = make_usual_conf();
	struct frame f = make_usual_ip4(23);
	pthread_t thread[FLOODS];
	uint64_t begin, taken;
	void *ran;

	c.gap_ns = 50000;
	c.burst_ns = 4095 * c.gap_ns;
	set_conf(c);
	begin = read_now_ns();
	for (unsigned int i = 0; i < FLOODS; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, flood_program, &f), 0);
	for (unsigned int i = 0; i < FLOODS; i++) {
		CU_ASSERT_EQUAL(pthread_join(thread[i], &ran), 0);
		CU_ASSERT_PTR_NOT_NULL(ran);
	}
	taken = read_xdp_count(KVR_XDP_NO_SOCKET) - before;
	CU_ASSERT(taken >= 4096 && taken <= 4096 + (read_now_ns() - begin) / c.gap_ns + 1);
	CU_ASSERT_EQUAL(taken + read_xdp_count(KVR_XDP_LIMITED) - limited, FLOODS * FLOOD);
}

static int ignore_message(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level, (void)fmt, (void)ap;
	return 0;
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(test_address_and_port),
			       KVR_CASE(test_one_family),
			       KVR_CASE(test_off),
			       KVR_CASE(test_truncated),
			       KVR_CASE(test_fragments),
			       KVR_CASE(test_extensions),
			       KVR_CASE(test_vlan),
			       KVR_CASE(test_allow_list),
			       KVR_CASE(test_rate),
			       KVR_CASE(test_rate_of_queues),
			       CU_TEST_INFO_NULL};
	int rc;

	libbpf_set_print(ignore_message);
	skel = kvroute_xdp__open_and_load();
	if (skel == NULL) {
		fprintf(stderr, "the XDP program is not loaded: %s\n", strerror(errno));
		return errno == EPERM || errno == EACCES || errno == ENOSYS ? 77 : 1;
	}
	rc = kvr_test_run("xdp", tests);
	kvroute_xdp__destroy(skel);
	return rc;
}
