/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_ring.h>

#include "kvr_rand.h"
#include "kvr_test.h"

#define V(p) KVR_PORT_RX_VERDICT + KVR_PKT_##p

static char err[512];
static unsigned int pairs;
static uint32_t answer_rate; /* of the next ports; 0 = no limit */

static struct kvr_port_conf make_port_conf(const char *device, unsigned int host)
{
	struct kvr_port_conf c;

	kvr_conf_defaults(kvr_port_opts, &c);
	snprintf(c.device, sizeof(c.device), "%s", device);
	snprintf(c.ipv4, sizeof(c.ipv4), "10.0.0.%u", host & 0xffu);
	snprintf(c.ipv6, sizeof(c.ipv6), "fd00::%x", host & 0xffu);
	c.rx_descriptors = 64;
	c.tx_descriptors = 64;
	c.mbufs = 511;
	c.mbuf_cache = 0;
	c.answer_rate = answer_rate;
	return c;
}

static struct kvr_port *open_port(const struct kvr_port_conf *c, unsigned int index)
{
	struct kvr_port *p = kvr_port_create("test", c, index, err, sizeof(err));

	if (p == NULL)
		printf("  %s\n", err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL_FATAL(kvr_port_start(p, err, sizeof(err)), 0);
	return p;
}

/* Two ports joined by a ring in each direction: each receives what the other sends. */
static void open_pair(struct kvr_port *p[2], unsigned int slots, uint32_t mtu)
{
	struct rte_ring *ring[2];
	struct kvr_port_conf c;
	char name[2][32];

	for (int i = 0; i < 2; i++) {
		snprintf(name[i], sizeof(name[i]), "pair%u_%d", pairs, i);
		ring[i] = rte_ring_create(name[i], slots, SOCKET_ID_ANY,
					  RING_F_SP_ENQ | RING_F_SC_DEQ);
		CU_ASSERT_PTR_NOT_NULL_FATAL(ring[i]);
	}
	pairs++;
	for (int i = 0; i < 2; i++) {
		const int id = rte_eth_from_rings(name[i], &ring[i], 1, &ring[1 - i], 1, 0);
		char ethdev[RTE_ETH_NAME_MAX_LEN];

		CU_ASSERT_TRUE_FATAL(id >= 0);
		CU_ASSERT_EQUAL_FATAL(rte_eth_dev_get_name_by_port((uint16_t)id, ethdev), 0);
		c = make_port_conf(ethdev, (unsigned int)i + 1);
		c.mtu = mtu;
		p[i] = open_port(&c, (unsigned int)i);
	}
}

static uint64_t sum_port_counter(struct kvr_port *p, unsigned int i)
{
	uint64_t v[KVR_PORT_COUNTERS];

	kvr_stats_sum(kvr_port_stats(p), v);
	return v[i];
}

/* Check that the counters balance and that every buffer has been returned. */
static void expect_all_returned(struct kvr_port *p)
{
	uint64_t v[KVR_PORT_COUNTERS];
	struct rte_mempool *pool = kvr_port_pool(p);

	kvr_stats_sum(kvr_port_stats(p), v);
	CU_ASSERT_PTR_NULL(kvr_stats_check(&kvr_port_stats_def, v, err, sizeof(err)));
	CU_ASSERT_EQUAL(rte_mempool_avail_count(pool), pool->size);
}

static void close_pair(struct kvr_port *p[2])
{
	expect_all_returned(p[0]);
	expect_all_returned(p[1]);
	kvr_port_destroy(p[0]);
	kvr_port_destroy(p[1]);
}

/* `to` learns from `from` by ARP or neighbour discovery, both on this thread. */
static void learn_address(struct kvr_port *p[2], int family, struct kvr_path *path)
{
	uint8_t ip[16];
	struct kvr_port_queue *q[2] = {kvr_port_queue(p[0], 0), kvr_port_queue(p[1], 0)};
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];

	/*
	 * Send one request without waiting, let it be answered, then call again to find the answer.
	 */
	kvr_ip_parse(family == 4 ? "10.0.0.2" : "fd00::2", ip);
	CU_ASSERT_EQUAL(kvr_port_resolve(q[0], ip, 7650, 0, path), -EHOSTUNREACH);
	CU_ASSERT_EQUAL(kvr_port_rx_burst(q[1], m, pkts, KVR_PORT_BURST), 0);
	CU_ASSERT_EQUAL(kvr_port_flush(q[1]), 1);
	CU_ASSERT_EQUAL(kvr_port_resolve(q[0], ip, 7650, 1000, path), 0);
	CU_ASSERT_EQUAL(memcmp(path->mac, kvr_port_local(p[1])->mac, 6), 0);
	CU_ASSERT_EQUAL(path->family, family);
	/* The answer to the second request is never read. */
	kvr_port_rx_burst(q[1], m, pkts, KVR_PORT_BURST);
	kvr_port_flush(q[1]);
	kvr_port_rx_burst(q[0], m, pkts, KVR_PORT_BURST);
}

static int send_one(struct kvr_port *p, const struct kvr_path *to, uint16_t n, uint8_t fill)
{
	struct kvr_port_queue *q = kvr_port_queue(p, 0);
	struct rte_mbuf *m = kvr_port_alloc(q);
	char *b;

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	b = rte_pktmbuf_append(m, n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	memset(b, fill, n);
	return kvr_port_send(q, to, m);
}

static uint16_t receive_burst(struct kvr_port *p, struct rte_mbuf *m[], struct kvr_pkt pkts[])
{
	return kvr_port_rx_burst(kvr_port_queue(p, 0), m, pkts, KVR_PORT_BURST);
}

static void datagrams_travel_both_ways(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_port *p[2];
	struct kvr_path to;

	open_pair(p, 256, 9000);
	for (int family = 4; family <= 6; family += 2) {
		const uint16_t most = family == 4 ? 8972 : 8952;

		learn_address(p, family, &to);
		CU_ASSERT_EQUAL(to.max_frame, most);
		CU_ASSERT_EQUAL(send_one(p[0], &to, 1, 1), 0);
		CU_ASSERT_EQUAL(send_one(p[0], &to, most, 2), 0);
		CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0); /* still buffered */
		CU_ASSERT_EQUAL(sum_port_counter(p[0], KVR_PORT_TX_BUFFERED), 2);
		CU_ASSERT_EQUAL(kvr_port_flush(kvr_port_queue(p[0], 0)), 2);
		CU_ASSERT_EQUAL_FATAL(receive_burst(p[1], m, pkts), 2);
		CU_ASSERT_EQUAL(m[0]->pkt_len, 1);
		CU_ASSERT_EQUAL(m[1]->pkt_len, most);
		CU_ASSERT_EQUAL(*rte_pktmbuf_mtod_offset(m[1], uint8_t *, most - 1), 2);
		/* Send back along the learnt path, in place. */
		CU_ASSERT_EQUAL(kvr_port_send(kvr_port_queue(p[1], 0), &pkts[1].path, m[1]), 0);
		rte_pktmbuf_free(m[0]);
		CU_ASSERT_EQUAL(kvr_port_flush(kvr_port_queue(p[1], 0)), 1);
		CU_ASSERT_EQUAL_FATAL(receive_burst(p[0], m, pkts), 1);
		CU_ASSERT_EQUAL(m[0]->pkt_len, most);
		rte_pktmbuf_free(m[0]);
	}
	close_pair(p);
}

static void frames_that_cannot_be_sent_are_rejected_and_counted(void)
{
	struct kvr_path to, nowhere = {0};
	struct rte_mbuf *m, *shared;
	struct kvr_port *p[2];

	open_pair(p, 256, 1500);
	learn_address(p, 4, &to);
	CU_ASSERT_EQUAL(send_one(p[0], &to, 1473, 0), -EMSGSIZE);
	CU_ASSERT_EQUAL(send_one(p[0], &nowhere, 1, 0), -EAFNOSUPPORT);
	m = kvr_port_alloc(kvr_port_queue(p[0], 0));
	shared = m;
	rte_mbuf_refcnt_update(shared, 1);
	CU_ASSERT_EQUAL(kvr_port_send(kvr_port_queue(p[0], 0), &to, m), -EBUSY);
	rte_pktmbuf_free(shared);
	CU_ASSERT_EQUAL(sum_port_counter(p[0], KVR_PORT_TX_REFUSED), 3);
	CU_ASSERT_EQUAL(kvr_port_flush(kvr_port_queue(p[0], 0)), 0);
	close_pair(p);
}

static uint32_t passed_once, passed_again;

/* The view of a capture. */
static uint16_t count_passing(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n,
			      void *q)
{
	(void)port, (void)queue, (void)m;
	*(kvr_port_tx_again(q) ? &passed_again : &passed_once) += n;
	return n;
}

static void a_full_device_drops_and_counts(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_port_info info;
	struct kvr_port *p[2];
	struct kvr_path to;
	uint64_t before;
	uint16_t got, all = 0;

	open_pair(p, 64, 1500); /* a ring of 64 holds 63 */
	learn_address(p, 4, &to);
	before = sum_port_counter(p[0], KVR_PORT_TX_SENT);
	kvr_port_info(p[0], &info);
	passed_once = passed_again = 0;
	CU_ASSERT_PTR_NOT_NULL(
		rte_eth_add_tx_callback(info.ethdev, 0, count_passing, kvr_port_queue(p[0], 0)));
	for (int i = 0; i < 100; i++)
		CU_ASSERT_EQUAL(send_one(p[0], &to, 64, 0), 0); /* flushes when full */
	kvr_port_flush(kvr_port_queue(p[0], 0));
	CU_ASSERT_EQUAL(sum_port_counter(p[0], KVR_PORT_TX_SENT) - before, 63);
	CU_ASSERT_EQUAL(sum_port_counter(p[0], KVR_PORT_TX_DROPPED), 37);
	CU_ASSERT_TRUE(sum_port_counter(p[0], KVR_PORT_TX_RETRIES) > 0);
	/* Each frame once, dropped ones included, however often the device was tried. */
	CU_ASSERT_EQUAL(passed_once, 100);
	CU_ASSERT_TRUE(passed_again >= 37);
	while ((got = receive_burst(p[1], m, pkts)) > 0) {
		all = (uint16_t)(all + got);
		rte_pktmbuf_free_bulk(m, got);
	}
	CU_ASSERT_EQUAL(all, 63);
	/* Frames buffered at the stop are freed and counted. */
	CU_ASSERT_EQUAL(send_one(p[0], &to, 64, 0), 0);
	kvr_port_stop(p[0]);
	CU_ASSERT_EQUAL(sum_port_counter(p[0], KVR_PORT_TX_DROPPED), 38);
	close_pair(p);
}

/* Write raw frames of another origin straight into the other port's ring. */
static void inject_frame(struct kvr_port *p, const void *bytes, uint16_t n, uint16_t first)
{
	struct rte_mempool *pool = kvr_port_pool(p);
	struct kvr_port_info info;
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool), *tail;

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	memcpy(rte_pktmbuf_append(m, first), bytes, first);
	if (first < n) {
		tail = rte_pktmbuf_alloc(pool);
		memcpy(rte_pktmbuf_append(tail, (uint16_t)(n - first)), (const char *)bytes + first,
		       (size_t)(n - first));
		rte_pktmbuf_chain(m, tail);
	}
	kvr_port_info(p, &info);
	CU_ASSERT_EQUAL_FATAL(rte_eth_tx_burst(info.ethdev, 0, &m, 1), 1);
}

static void every_frame_is_counted_once(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST], *good;
	struct kvr_pkt pkts[KVR_PORT_BURST];
	uint8_t frame[2300];
	struct kvr_port *p[2];
	struct kvr_path to;
	uint16_t n;

	open_pair(p, 256, 1500);
	learn_address(p, 4, &to);
	/* Modify a valid frame: its bytes are on the wire side of p[0]. */
	good = kvr_port_alloc(kvr_port_queue(p[0], 0));
	memset(rte_pktmbuf_append(good, 100), 7, 100);
	CU_ASSERT_EQUAL(kvr_path_write(kvr_port_local(p[0]), &to, good), 42);
	n = good->data_len;
	memcpy(frame, rte_pktmbuf_mtod(good, void *), n);
	rte_pktmbuf_free(good);

	for (uint16_t cut = 1; cut <= n; cut = (uint16_t)(cut + 7)) /* joined, then accepted */
		inject_frame(p[0], frame, n, cut);
	while ((n = receive_burst(p[1], m, pkts)) > 0) {
		for (uint16_t i = 0; i < n; i++) {
			CU_ASSERT_EQUAL(m[i]->nb_segs, 1);
			CU_ASSERT_EQUAL(m[i]->pkt_len, 100);
		}
		rte_pktmbuf_free_bulk(m, n);
	}
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(UDP)), 21);
	for (uint16_t cut = 0; cut < 142; cut++) {
		inject_frame(p[0], frame, cut, cut);
		CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
	}
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(TRUNCATED)), 142);
	frame[0] ^= 2;
	inject_frame(p[0], frame, 142, 142);
	CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(OTHER_MAC)), 1);
	memset(frame, 0, sizeof(frame));
	inject_frame(p[0], frame, 2200, 2040); /* does not fit one buffer of 2048 */
	CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(SEGMENTS)), 1);
	CU_ASSERT_EQUAL(sum_port_counter(p[1], KVR_PORT_RX_FRAMES),
			21 + 142 + 2 + sum_port_counter(p[1], V(ARP)));
	close_pair(p);
}

struct seed {
	uint8_t b[256];
	uint16_t n;
};

/* Valid frames for p[1]: datagrams and requests over both families. */
static void make_seeds(struct kvr_port *p[2], struct seed seeds[4])
{
	for (int i = 0; i < 4; i++) {
		struct rte_mbuf *m = kvr_port_alloc(kvr_port_queue(p[0], 0));
		struct kvr_path to;

		learn_address(p, i & 1 ? 6 : 4, &to);
		if (i < 2) {
			memset(rte_pktmbuf_append(m, 48), 0x5a, 48);
			CU_ASSERT_TRUE(kvr_path_write(kvr_port_local(p[0]), &to, m) > 0);
		} else {
			CU_ASSERT_EQUAL(kvr_pkt_ask(kvr_port_local(p[0]), &to, m), 0);
		}
		seeds[i].n = m->data_len;
		memcpy(seeds[i].b, rte_pktmbuf_mtod(m, void *), m->data_len);
		rte_pktmbuf_free(m);
	}
}

/*
 * Damage, truncate and split hundreds of thousands of frames: the equations hold and no buffer is
 * lost.
 */
static void damaged_frames_leak_no_buffer(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_port *p[2];
	struct seed seeds[4];
	struct kvr_rand r;
	uint16_t n;

	open_pair(p, 256, 1500);
	make_seeds(p, seeds);
	kvr_rand_init(&r, 42);
	for (unsigned int round = 0; round < 8000; round++) {
		for (unsigned int i = 0; i < KVR_PORT_BURST; i++) {
			struct seed s = seeds[kvr_rand_below(&r, 4)];

			for (uint32_t k = kvr_rand_below(&r, 4); k > 0; k--)
				s.b[kvr_rand_below(&r, s.n)] = (uint8_t)kvr_rand_u64(&r);
			if (kvr_rand_below(&r, 4) == 0)
				s.n = (uint16_t)(1 + kvr_rand_below(&r, s.n));
			inject_frame(p[0], s.b, s.n, (uint16_t)(1 + kvr_rand_below(&r, s.n)));
		}
		while ((n = receive_burst(p[1], m, pkts)) > 0)
			for (uint16_t i = 0; i < n; i++) /* half is sent back, half is freed */
				if (i & 1)
					kvr_port_send(kvr_port_queue(p[1], 0), &pkts[i].path, m[i]);
				else
					rte_pktmbuf_free(m[i]);
		kvr_port_flush(kvr_port_queue(p[1], 0));
		while ((n = receive_burst(p[0], m, pkts)) > 0)
			rte_pktmbuf_free_bulk(m, n);
	}
	CU_ASSERT_TRUE(sum_port_counter(p[1], V(UDP)) > 10000);
	CU_ASSERT_TRUE(sum_port_counter(p[1], KVR_PORT_ANSWERED) > 10000);
	CU_ASSERT_TRUE(sum_port_counter(p[1], V(TRUNCATED)) > 10000);
	CU_ASSERT_TRUE(sum_port_counter(p[1], KVR_PORT_RX_FRAMES) >= 8000 * KVR_PORT_BURST);
	close_pair(p);
}

/* An echo request of p[0] to p[1]. */
static void make_ping(struct kvr_port *p[2], uint8_t f[98])
{
	const uint8_t ip[20] = {0x45, [3] = 84, [8] = 64, 1, [12] = 10, 0, 0, 1, 10, 0, 0, 2};
	uint16_t sum;

	memset(f, 0, 98);
	memcpy(f, kvr_port_local(p[1])->mac, 6);
	memcpy(f + 6, kvr_port_local(p[0])->mac, 6);
	f[12] = 8;
	memcpy(f + 14, ip, sizeof(ip));
	sum = (uint16_t)~rte_raw_cksum(f + 14, 20);
	memcpy(f + 24, &sum, 2);
	f[34] = 8;
	sum = (uint16_t)~rte_raw_cksum(f + 34, 64);
	memcpy(f + 36, &sum, 2);
}

/* One answer a second: pings above it are counted and do not reduce the answers to ARP. */
static void ping_has_its_own_answer_rate(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_port *p[2];
	struct kvr_path to;
	uint8_t ping[98];

	answer_rate = 1;
	open_pair(p, 256, 1500);
	answer_rate = 0;
	make_ping(p, ping);
	for (unsigned int i = 0; i < KVR_PORT_BURST; i++)
		inject_frame(p[0], ping, sizeof(ping), sizeof(ping));
	CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(ECHO)), KVR_PORT_BURST);
	CU_ASSERT_EQUAL(sum_port_counter(p[1], KVR_PORT_ANSWERED) +
				sum_port_counter(p[1], KVR_PORT_UNANSWERED),
			KVR_PORT_BURST);
	CU_ASSERT_TRUE(sum_port_counter(p[1], KVR_PORT_ANSWERED) > 0);
	CU_ASSERT_TRUE(sum_port_counter(p[1], KVR_PORT_UNANSWERED) > 0);
	kvr_port_flush(kvr_port_queue(p[1], 0));
	receive_burst(p[0], m, pkts);
	learn_address(p, 4, &to);
	close_pair(p);
}

/* The same for ARP and neighbour discovery, which do not reduce the answers to ping. */
static void address_requests_have_their_own_answer_rate(void)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];

	for (int family = 4; family <= 6; family += 2) {
		struct kvr_path to = {.family = (uint8_t)family, .ip = {[10] = 0xff, 0xff}};
		struct rte_mbuf *ask;
		struct kvr_port *p[2];
		uint8_t ping[98], frame[128];
		uint64_t answered;
		uint16_t len;

		answer_rate = 1;
		open_pair(p, 256, 1500);
		answer_rate = 0;
		kvr_ip_parse(family == 4 ? "10.0.0.2" : "fd00::2", to.ip);
		ask = kvr_port_alloc(kvr_port_queue(p[0], 0));
		CU_ASSERT_EQUAL_FATAL(kvr_pkt_ask(kvr_port_local(p[0]), &to, ask), 0);
		len = ask->data_len;
		CU_ASSERT_TRUE_FATAL(len <= sizeof(frame));
		memcpy(frame, rte_pktmbuf_mtod(ask, void *), len);
		rte_pktmbuf_free(ask);
		for (unsigned int i = 0; i < KVR_PORT_BURST; i++)
			inject_frame(p[0], frame, len, len);
		CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
		CU_ASSERT_EQUAL(sum_port_counter(p[1], family == 4 ? V(ARP) : V(ND)),
				KVR_PORT_BURST);
		answered = sum_port_counter(p[1], KVR_PORT_ANSWERED);
		CU_ASSERT_TRUE(answered > 0);
		CU_ASSERT_TRUE(sum_port_counter(p[1], KVR_PORT_UNANSWERED) > 0);
		CU_ASSERT_EQUAL(answered + sum_port_counter(p[1], KVR_PORT_UNANSWERED),
				KVR_PORT_BURST);
		make_ping(p, ping);
		inject_frame(p[0], ping, sizeof(ping), sizeof(ping));
		CU_ASSERT_EQUAL(receive_burst(p[1], m, pkts), 0);
		CU_ASSERT_EQUAL(sum_port_counter(p[1], KVR_PORT_ANSWERED), answered + 1);
		kvr_port_flush(kvr_port_queue(p[1], 0));
		receive_burst(p[0], m, pkts);
		close_pair(p);
	}
}

/*
 * A device with several queues that can distribute by flow is configured to do so, by addresses and
 * ports.
 */
static void a_capable_device_distributes_by_flow(void)
{
	static const uint32_t queues[] = {1, 2, 4};

	for (unsigned int i = 0; i < RTE_DIM(queues); i++) {
		struct kvr_port_conf c = make_port_conf("net_null9", 1);
		struct rte_eth_conf conf;
		struct rte_eth_dev_info dev;
		struct kvr_port_info info;
		struct kvr_port *p;

		c.mbufs = 4095;
		p = kvr_port_create_shared("test", &c, 0, queues[i], err, sizeof(err));
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CU_ASSERT_EQUAL_FATAL(kvr_port_start(p, err, sizeof(err)), 0);
		kvr_port_info(p, &info);
		CU_ASSERT_EQUAL(info.queues, queues[i]);
		CU_ASSERT_EQUAL(info.rss, queues[i] > 1);
		CU_ASSERT_EQUAL(rte_eth_dev_info_get(info.ethdev, &dev), 0);
		CU_ASSERT_NOT_EQUAL_FATAL(dev.flow_type_rss_offloads & RTE_ETH_RSS_UDP, 0);
		CU_ASSERT_EQUAL(rte_eth_dev_conf_get(info.ethdev, &conf), 0);
		CU_ASSERT_EQUAL(conf.rxmode.mq_mode,
				queues[i] > 1 ? RTE_ETH_MQ_RX_RSS : RTE_ETH_MQ_RX_NONE);
		CU_ASSERT_EQUAL(conf.rx_adv_conf.rss_conf.rss_hf,
				queues[i] > 1 ? dev.flow_type_rss_offloads &
							(RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP)
					      : 0);
		CU_ASSERT_EQUAL(kvr_port_spreads(kvr_port_queue(p, 0)), false);
		kvr_port_destroy(p);
	}
}

static void a_null_port_discards_and_rejects(void)
{
	struct kvr_port_conf c = make_port_conf("net_null7,size=64", 1);
	struct kvr_port *p = open_port(&c, 0);
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_path to = {.family = 4, .udp_port = 1, .ip = {[15] = 1}};
	struct kvr_port_info info;

	kvr_port_info(p, &info);
	CU_ASSERT_STRING_EQUAL(info.driver, "net_null");
	CU_ASSERT_EQUAL(info.mbufs, 511);
	for (int i = 0; i < 1000; i++)
		CU_ASSERT_EQUAL(send_one(p, &to, 64, 0), 0);
	kvr_port_flush(kvr_port_queue(p, 0));
	CU_ASSERT_EQUAL(sum_port_counter(p, KVR_PORT_TX_SENT), 1000);
	CU_ASSERT_EQUAL(sum_port_counter(p, KVR_PORT_TX_BYTES), 1000 * (64 + 42));
	CU_ASSERT_EQUAL(receive_burst(p, m, pkts), 0); /* 32 frames of zeros */
	CU_ASSERT_EQUAL(sum_port_counter(p, KVR_PORT_RX_FRAMES), KVR_PORT_BURST);
	expect_all_returned(p);
	kvr_port_destroy(p);
	/* The device was removed with the port and can be created again. */
	p = open_port(&c, 0);
	kvr_port_destroy(p);
}

/* Both roles in one process; the connection is made on the EAL's interrupt thread. */
static void memif_carries_large_frames(void)
{
	struct kvr_port_conf c;
	struct kvr_port *p[2];
	struct kvr_path to;
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	char device[128];
	uint8_t ip[16];
	int rc = -EHOSTUNREACH;

	for (int i = 0; i < 2; i++) {
		snprintf(device, sizeof(device),
			 "net_memif%d,role=%s,socket-abstract=yes,socket=kvr_test_port_%d,bsize="
			 "2048",
			 i, i == 0 ? "server" : "client", (int)getpid());
		c = make_port_conf(device, (unsigned int)i + 1);
		c.mtu = 9000; /* five memif buffers a frame */
		c.answer_arp = KVR_PORT_ANSWER_ON;
		p[i] = open_port(&c, (unsigned int)i);
	}
	kvr_ip_parse("10.0.0.2", ip);
	for (int i = 0; i < 2000 && rc != 0; i++) {
		rc = kvr_port_resolve(kvr_port_queue(p[0], 0), ip, 7650, 1, &to);
		receive_burst(p[1], m, pkts);
		kvr_port_flush(kvr_port_queue(p[1], 0));
	}
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	for (int i = 0; i < 200; i++) {
		const uint16_t n = (uint16_t)(1 + i * 44);

		CU_ASSERT_EQUAL(send_one(p[0], &to, n, (uint8_t)i), 0);
		CU_ASSERT_EQUAL(kvr_port_flush(kvr_port_queue(p[0], 0)), 1);
		CU_ASSERT_EQUAL_FATAL(receive_burst(p[1], m, pkts), 1);
		CU_ASSERT_EQUAL(m[0]->pkt_len, n);
		CU_ASSERT_EQUAL(*rte_pktmbuf_mtod_offset(m[0], uint8_t *, n - 1), (uint8_t)i);
		rte_pktmbuf_free(m[0]);
	}
	close_pair(p);
}

/* Two queue pairs: a frame sent on queue 1 arrives on queue 1, and counters sum over queues. */
static void queues_are_separate(void)
{
	struct kvr_port *p[2];
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct rte_ring *ring[2][2];
	struct kvr_path to;

	for (int side = 0; side < 2; side++) {
		for (int q = 0; q < 2; q++) {
			char name[32];

			snprintf(name, sizeof(name), "mq_%d_%d", side, q);
			ring[side][q] = rte_ring_create(name, 64, SOCKET_ID_ANY, 0);
			CU_ASSERT_PTR_NOT_NULL_FATAL(ring[side][q]);
		}
	}
	for (int side = 0; side < 2; side++) {
		char name[32], ethdev[RTE_ETH_NAME_MAX_LEN];
		struct kvr_port_conf c;
		int id;

		snprintf(name, sizeof(name), "mq_%d", side);
		id = rte_eth_from_rings(name, ring[side], 2, ring[1 - side], 2, 0);
		CU_ASSERT_TRUE_FATAL(id >= 0);
		rte_eth_dev_get_name_by_port((uint16_t)id, ethdev);
		c = make_port_conf(ethdev, (unsigned int)side + 1);
		c.queues = 2;
		p[side] = open_port(&c, (unsigned int)side);
	}
	learn_address(p, 4, &to);
	for (unsigned int i = 0; i < 2; i++) {
		struct kvr_port_queue *q = kvr_port_queue(p[0], i);
		struct rte_mbuf *one = kvr_port_alloc(q);

		rte_pktmbuf_append(one, 10);
		CU_ASSERT_EQUAL(kvr_port_send(q, &to, one), 0);
		CU_ASSERT_EQUAL(kvr_port_flush(q), 1);
		CU_ASSERT_EQUAL(kvr_port_rx_burst(kvr_port_queue(p[1], 1 - i), m, pkts, 32), 0);
		CU_ASSERT_EQUAL(kvr_port_rx_burst(kvr_port_queue(p[1], i), m, pkts, 32), 1);
		rte_pktmbuf_free(m[0]);
	}
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(UDP)), 2);
	close_pair(p);
}

static void bad_devices_and_limits_name_the_key(void)
{
	struct kvr_port_conf c;
	struct kvr_port *p;

	c = make_port_conf("net_nonsense0", 1);
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_EQUAL(errno, ENODEV);
	CU_ASSERT_PTR_EQUAL(strstr(err, "device: got \"net_nonsense0\" (no such device or driver), "
					"allowed: a vdev with its arguments, a PCI address, a "
					"port name or index; present: "),
			    err);
	c = make_port_conf("", 1);
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "device: got \"\" (not given)"));
	c = make_port_conf("77", 1);
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_EQUAL(errno, ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "device: got \"77\" (no such index)"));
	c = make_port_conf("net_null8", 1);
	c.queues = 2; /* one queue pair unless its arguments specify more */
	c.mbufs = 0;
	p = kvr_port_create("x", &c, 0, err, sizeof(err));
	kvr_port_destroy(p);
	c = make_port_conf("net_ring8", 1);
	c.queues = 64;
	c.mbufs = 0;
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_EQUAL(errno, ERANGE);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "queues: got \"64\", allowed: 1 to "));
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "(limit of net_ring as it was created)"));
	c = make_port_conf("net_null9", 1);
	c.mbufs = 95;
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_STRING_EQUAL(err, "mbufs: got \"95\", allowed: 0 or at least 96 (receive rings "
				    "of 1 queues and a burst each)");
	c.mbufs = 16777215;
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_EQUAL(errno, ENOMEM);
	CU_ASSERT_STRING_EQUAL(err, "mbufs: no memory for 16777215 buffers of 2176 bytes (Cannot "
				    "allocate memory), allowed: fewer, or more EAL memory");
	c.mbufs = 511;
	strcpy(c.mac, "01:00:00:00:00:01");
	CU_ASSERT_PTR_NULL(kvr_port_create("x", &c, 0, err, sizeof(err)));
	CU_ASSERT_STRING_EQUAL(err, "mac: got \"01:00:00:00:00:01\", allowed: a unicast address "
				    "such as 02:00:00:00:00:01");
	strcpy(c.mac, "02:00:00:00:00:09");
	p = open_port(&c, 0);
	CU_ASSERT_EQUAL(kvr_port_local(p)->mac[5], 9);
	CU_ASSERT_PTR_NULL(kvr_port_create("y", &c, 1, err, sizeof(err)));
	CU_ASSERT_EQUAL(errno, EBUSY);
	CU_ASSERT_STRING_EQUAL(err, "device: \"net_null9\" is used by another port");
	kvr_port_destroy(p);
}

static void count_wait(void *arg)
{
	(*(unsigned int *)arg)++;
}

static uint16_t count_arrivals(struct kvr_port *p[2], const struct kvr_path *to)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	uint16_t n;

	CU_ASSERT_EQUAL(send_one(p[0], to, 40, 1), 0);
	CU_ASSERT_EQUAL(kvr_port_flush(kvr_port_queue(p[0], 0)), 1);
	n = receive_burst(p[1], m, pkts);
	rte_pktmbuf_free_bulk(m, n);
	return n;
}

static void prefixes_change_while_it_runs(void)
{
	struct kvr_port_conf c = make_port_conf("x", 2);
	struct kvr_path to, to6;
	unsigned int waits = 0;
	struct kvr_port *p[2];
	uint8_t ip[16];

	open_pair(p, 64, 1500);
	learn_address(p, 4, &to);
	learn_address(p, 6, &to6);
	kvr_ip_parse("10.0.0.1", ip);
	CU_ASSERT_EQUAL(count_arrivals(p, &to), 1);
	CU_ASSERT_TRUE(kvr_port_agent_allowed(p[1], ip));
	strcpy(c.allow, "10.0.0.0/31");
	strcpy(c.allow_agents, "10.0.0.3");
	CU_ASSERT_EQUAL(kvr_port_tune(p[1], &c, count_wait, &waits, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(count_arrivals(p, &to), 1);
	CU_ASSERT_EQUAL(count_arrivals(p, &to6), 0);
	CU_ASSERT_FALSE(kvr_port_agent_allowed(p[1], ip));
	strcpy(c.allow, "fd00::1");
	c.allow_agents[0] = '\0';
	CU_ASSERT_EQUAL(kvr_port_tune(p[1], &c, count_wait, &waits, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(count_arrivals(p, &to), 0);
	CU_ASSERT_EQUAL(count_arrivals(p, &to6), 1);
	CU_ASSERT_TRUE(kvr_port_agent_allowed(p[1], ip));
	CU_ASSERT_EQUAL(sum_port_counter(p[1], V(DENIED)), 2);
	CU_ASSERT_EQUAL(waits, 2);
	/* A bad value changes nothing. */
	strcpy(c.allow, "10.0.0.1 10.0.0.1/8");
	CU_ASSERT_EQUAL(kvr_port_tune(p[1], &c, count_wait, &waits, err, sizeof(err)), -EINVAL);
	CU_ASSERT_EQUAL(strncmp(err, "allow: got \"10.0.0.1/8\"", 23), 0);
	CU_ASSERT_EQUAL(count_arrivals(p, &to), 0);
	c.allow[0] = '\0';
	CU_ASSERT_EQUAL(kvr_port_tune(p[1], &c, count_wait, &waits, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(count_arrivals(p, &to), 1);
	CU_ASSERT_EQUAL(waits, 3);
	close_pair(p);
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {KVR_CASE(datagrams_travel_both_ways),
			       KVR_CASE(frames_that_cannot_be_sent_are_rejected_and_counted),
			       KVR_CASE(a_full_device_drops_and_counts),
			       KVR_CASE(every_frame_is_counted_once),
			       KVR_CASE(damaged_frames_leak_no_buffer),
			       KVR_CASE(ping_has_its_own_answer_rate),
			       KVR_CASE(address_requests_have_their_own_answer_rate),
			       KVR_CASE(prefixes_change_while_it_runs),
			       KVR_CASE(a_capable_device_distributes_by_flow),
			       KVR_CASE(a_null_port_discards_and_rejects),
			       KVR_CASE(memif_carries_large_frames),
			       KVR_CASE(queues_are_separate),
			       KVR_CASE(bad_devices_and_limits_name_the_key),
			       CU_TEST_INFO_NULL};
	char *eal[] = {
		argv[0], "--no-huge",	   "--no-shconf",	   "-m", "128", "--no-pci", "-l",
		"0",	 "--no-telemetry", "--log-level=emergency"};

	if (rte_eal_init((int)RTE_DIM(eal), eal) < 0)
		return 1;
	argc = kvr_test_run("port", tests);
	rte_eal_cleanup();
	return argc;
}
