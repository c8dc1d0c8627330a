/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More lcores than the device has queues, or than the peer of a memif has rings: every frame
 * reaches exactly one lcore, all frames of a source reach the same one, and every lcore can answer.
 * One thread plays all lcores. The argument "packet" selects the cases that need a network
 * namespace of their own; exit status 77 if there is none.
 */
#include "kvr_port.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "kvr_test.h"
#include "memif_guard.h"

#define LCORES	4u
#define SOURCES 64u

static char err[512];
static uint32_t host = 1; /* last byte of the addresses of the next port */
static struct rte_ring *in, *out;
static struct rte_mempool *peers;

static struct kvr_port *open_port(const char *device, uint32_t lcores, uint32_t queues)
{
	static unsigned int round;
	struct kvr_port_conf c;
	struct kvr_port *p;

	kvr_conf_defaults(kvr_port_opts, &c);
	snprintf(c.device, sizeof(c.device), "%s", device);
	snprintf(c.ipv4, sizeof(c.ipv4), "10.0.0.%u", host & 0xffu);
	snprintf(c.ipv6, sizeof(c.ipv6), "fd00::%x", host & 0xffu);
	c.queues = queues;
	c.rx_descriptors = c.tx_descriptors = 256;
	c.mbuf_cache = 0;
	p = kvr_port_create_shared("test", &c, round++ % KVR_PORT_MAX, lcores, err, sizeof(err));
	if (p != NULL && kvr_port_start(p, err, sizeof(err)) != 0) {
		kvr_port_destroy(p);
		return NULL;
	}
	return p;
}

/* A port of @p lcores lcores whose device has one ring each way. */
static struct kvr_port *ring_port(uint32_t lcores)
{
	static unsigned int round;
	char name[32], device[RTE_ETH_NAME_MAX_LEN];
	struct kvr_port *p;
	int id;

	snprintf(name, sizeof(name), "in%u", round);
	in = rte_ring_create(name, 4096, SOCKET_ID_ANY, 0);
	snprintf(name, sizeof(name), "out%u", round);
	out = rte_ring_create(name, 4096, SOCKET_ID_ANY, 0);
	CU_ASSERT_FATAL(in != NULL && out != NULL);
	snprintf(name, sizeof(name), "spread%u", round++);
	id = rte_eth_from_rings(name, &in, 1, &out, 1, 0);
	CU_ASSERT_FATAL(id >= 0 && rte_eth_dev_get_name_by_port((uint16_t)id, device) == 0);
	p = open_port(device, lcores, 0);
	if (p == NULL)
		printf("  %s\n", err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

/* One datagram to @p to from host @p source, tagged with byte @p tag. */
static void send_from_source(struct kvr_port *to, int family, uint32_t source, uint16_t udp,
			     uint8_t tag)
{
	struct kvr_local l = *kvr_port_local(to);
	struct kvr_path path = {.family = (uint8_t)family, .udp_port = 7650};
	struct rte_mbuf *m = rte_pktmbuf_alloc(peers);

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	*(uint8_t *)rte_pktmbuf_append(m, 1) = tag;
	memcpy(path.mac, l.mac, 6);
	kvr_ip_parse(family == 4 ? "10.0.0.1" : "fd00::1", path.ip);
	memcpy(l.mac, "\x02\0\0\0\0\x02", 6);
	memcpy(l.ip4, (const uint8_t[]){10, 1, (uint8_t)(source >> 8), (uint8_t)source}, 4);
	l.ip6[6] = (uint8_t)source;	   /* another network */
	l.ip6[15] = (uint8_t)(udp & 0x7f); /* another host of it is the same source */
	l.udp_port = udp;
	CU_ASSERT_FATAL(kvr_path_write(&l, &path, m) > 0);
	CU_ASSERT_EQUAL_FATAL(rte_ring_enqueue(in, m), 0);
}

static uint64_t read_row_counter(struct kvr_port *p, uint32_t lcore, unsigned int i)
{
	uint64_t v[KVR_PORT_COUNTERS];

	kvr_stats_row_get(kvr_port_stats(p), lcore, v);
	return v[i];
}

/* Check each row alone, as its lcore sees it between two bursts. */
static void check_rows(struct kvr_port *p, uint32_t lcores)
{
	uint64_t v[KVR_PORT_COUNTERS];

	for (uint32_t i = 0; i < lcores; i++) {
		kvr_stats_row_get(kvr_port_stats(p), i, v);
		CU_ASSERT_PTR_NULL(kvr_stats_check(&kvr_port_stats_def, v, err, sizeof(err)));
	}
}

static void close_port(struct kvr_port *p, uint32_t lcores)
{
	struct rte_mbuf *m;

	check_rows(p, lcores);
	while (rte_ring_dequeue(out, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	kvr_port_stop(p);
	kvr_port_destroy(p);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(peers), 0);
}

/* Every lcore receives and echoes its frames. @return number of frames. */
static uint32_t run_turns(struct kvr_port *p, int8_t owner[SOURCES * 2])
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	uint32_t all = 0, idle = 0;

	for (uint32_t i = 0; idle < 2 * LCORES; i = (i + 1) % LCORES) {
		struct kvr_port_queue *q = kvr_port_queue(p, i);
		const uint16_t n = kvr_port_rx_burst(q, m, pkts, KVR_PORT_BURST);

		idle = kvr_port_rx_got(q) == 0 && kvr_port_flush(q) == 0 ? idle + 1 : 0;
		for (uint16_t k = 0; k < n; k++) {
			const bool v4 = pkts[k].path.family == 4;
			const uint32_t s = v4 ? pkts[k].path.ip[15] : SOURCES + pkts[k].path.ip[6];

			CU_ASSERT_FATAL(s < 2 * SOURCES && pkts[k].len == 1);
			CU_ASSERT_EQUAL(*rte_pktmbuf_mtod(m[k], uint8_t *), (uint8_t)s);
			CU_ASSERT(owner[s] < 0 || owner[s] == (int8_t)i);
			owner[s] = (int8_t)i;
			CU_ASSERT_EQUAL(kvr_port_send(q, &pkts[k].path, m[k]), 0);
		}
		all += n;
	}
	return all;
}

static void a_source_has_one_lcore_for_all_its_ports(void)
{
	struct kvr_port *p = ring_port(LCORES);
	int8_t owner[2 * SOURCES];
	uint32_t used[LCORES] = {0};
	uint64_t spread = 0, passed = 0;

	memset(owner, -1, sizeof(owner));
	CU_ASSERT_TRUE(kvr_port_spreads(kvr_port_queue(p, 0)));
	for (uint32_t round = 0; round < 8; round++) {
		for (uint32_t s = 0; s < SOURCES; s++) {
			send_from_source(p, 4, s, (uint16_t)(1000 + round), (uint8_t)s);
			send_from_source(p, 6, s, (uint16_t)(1000 + round), (uint8_t)(SOURCES + s));
		}
		CU_ASSERT_EQUAL(run_turns(p, owner), 2 * SOURCES);
	}
	for (uint32_t s = 0; s < 2 * SOURCES; s++)
		used[owner[s]]++;
	for (uint32_t i = 0; i < LCORES; i++) {
		/* 128 sources over 4 lcores: the probability of fewer than 8 on one is 10^-8. */
		CU_ASSERT(used[i] >= 8);
		CU_ASSERT_EQUAL(read_row_counter(p, i, KVR_PORT_RX_KEPT), used[i] * 8);
		spread += read_row_counter(p, i, KVR_PORT_SPREAD_IN);
		passed += read_row_counter(p, i, KVR_PORT_TX_PASSED);
	}
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_RX_UDP), 2 * SOURCES * 8);
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_SPREAD_OUT), spread);
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_TX_TAKEN), passed);
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_TX_SENT), 2 * SOURCES * 8);
	CU_ASSERT_EQUAL(rte_ring_count(out), 2 * SOURCES * 8);
	close_port(p, LCORES);
}

/*
 * The other lcore does not poll: its sender drops and counts the frames that do not fit its ring.
 */
static void full_rings_drop_and_count(void)
{
	struct kvr_port *p = ring_port(2);
	struct kvr_port_queue *q[2] = {kvr_port_queue(p, 0), kvr_port_queue(p, 1)};
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_path to = {0};
	const uint32_t most = KVR_PORT_RING - 1;
	uint32_t source = 0, sent = 0, all = 0;
	uint16_t n;

	do { /* a source of lcore 1 */
		send_from_source(p, 4, ++source, 1, 1);
		n = kvr_port_rx_burst(q[0], m, pkts, KVR_PORT_BURST);
		n += kvr_port_rx_burst(q[0], m, pkts, KVR_PORT_BURST); /* turn of the ring */
		rte_pktmbuf_free_bulk(m, n);
	} while (n != 0 && source < 60);
	CU_ASSERT_FATAL(n == 0);
	for (uint32_t i = 0; i < 2000; i++) {
		send_from_source(p, 4, source, 1, 1);
		kvr_port_rx_burst(q[0], m, pkts, KVR_PORT_BURST);
	}
	kvr_port_rx_burst(q[0], m, pkts, KVR_PORT_BURST);
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_SPREAD_OUT), most);
	CU_ASSERT_EQUAL(read_row_counter(p, 0, KVR_PORT_SPREAD_FULL), 2001 - most);
	CU_ASSERT_EQUAL(kvr_port_waiting(p), most);
	while ((n = kvr_port_rx_burst(q[1], m, pkts, KVR_PORT_BURST)) > 0) {
		to = pkts[0].path;
		rte_pktmbuf_free_bulk(m, n);
		all += n;
	}
	CU_ASSERT_EQUAL(all, most);
	for (uint32_t i = 0; i < 2000; i++) {
		m[0] = kvr_port_alloc(q[1]);
		CU_ASSERT_PTR_NOT_NULL_FATAL(m[0]);
		CU_ASSERT_EQUAL(kvr_port_send(q[1], &to, m[0]), 0);
	}
	kvr_port_flush(q[1]);
	CU_ASSERT_EQUAL(read_row_counter(p, 1, KVR_PORT_TX_PASSED), most);
	CU_ASSERT_EQUAL(read_row_counter(p, 1, KVR_PORT_TX_DROPPED), 2000 - most);
	while ((n = kvr_port_flush(q[0])) > 0)
		sent += n;
	CU_ASSERT_EQUAL(sent, most);
	close_port(p, 2);
}

/* Frames in the rings at the stop are freed. */
static void a_stop_leaves_nothing(void)
{
	struct kvr_port *p = ring_port(LCORES);
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];

	for (uint32_t s = 0; s < SOURCES; s++)
		send_from_source(p, 4, s, 1, (uint8_t)s);
	for (uint32_t i = 0; i < 4; i++)
		rte_pktmbuf_free_bulk(
			m, kvr_port_rx_burst(kvr_port_queue(p, 0), m, pkts, KVR_PORT_BURST));
	CU_ASSERT(kvr_port_waiting(p) > 0);
	close_port(p, LCORES);
}

static void queues_are_applied_or_rejected(void)
{
	struct kvr_port_info info;
	struct kvr_port *p = open_port("net_ring7", 4, 2);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	kvr_port_info(p, &info);
	CU_ASSERT(info.queues == 2 && info.lcores == 4 && info.rx_queues == 2);
	CU_ASSERT_TRUE(kvr_port_spreads(kvr_port_queue(p, 3)));
	kvr_port_destroy(p);
	p = open_port("net_ring6", 2, 0); /* the device has more queues than needed */
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	kvr_port_info(p, &info);
	CU_ASSERT(info.queues == 2 && info.lcores == 2);
	CU_ASSERT_FALSE(kvr_port_spreads(kvr_port_queue(p, 0)));
	kvr_port_destroy(p);
	CU_ASSERT_PTR_NULL(open_port("net_ring5", 2, 4));
	CU_ASSERT_STRING_EQUAL(err, "queues: got \"4\", allowed: 0 to 2, one for each lcore of the "
				    "port");
}

/* ---- memif: as many queues as the peer has rings ---- */

static void no_wait(void *arg)
{
	(void)arg; /* this thread polls */
}

/* No lcore may be in the driver while a peer is connected. */
static struct kvr_port_queue *looked_at;
static uint32_t in_driver, looks, in_driver_then;
static bool connecting;

static void begin_to_connect(const char *socket, uint32_t id, uint32_t to_server,
			     uint32_t from_server)
{
	kvr_port_memif_rings(socket, id, to_server, from_server);
	connecting = true;
}

static void end_to_connect(const char *socket, uint32_t id)
{
	connecting = false;
	kvr_port_memif_connected(socket, id);
}

static uint16_t driver_was_called(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n,
				  uint16_t most, void *arg)
{
	(void)port, (void)queue, (void)m, (void)most, (void)arg;
	in_driver++;
	return n;
}

/* Only one of the two threads runs at a time: the other waits for the link. */
static void watch_driver(void *arg)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	const uint32_t before = in_driver;

	(void)arg;
	if (!connecting)
		return; /* a peer has left */
	CU_ASSERT_EQUAL(kvr_port_rx_burst(looked_at, m, pkts, KVR_PORT_BURST), 0);
	in_driver_then += in_driver - before;
	looks++;
}

static struct kvr_port *open_memif(const char *socket, const char *role, uint32_t lcores,
				   uint32_t queues)
{
	char device[200];
	struct kvr_port *p;

	snprintf(device, sizeof(device),
		 "net_memif_%s,role=%s,socket=%s,socket-abstract=no,rsize=8", role, role, socket);
	p = open_port(device, lcores, queues);
	if (p == NULL)
		printf("  %s\n", err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

static bool expect_one_link(struct kvr_port *p)
{
	struct kvr_port_info info;

	for (int i = 0; i < 500; i++) {
		kvr_port_look_after(p, rte_rdtsc(), NULL, NULL);
		kvr_port_info(p, &info);
		if (info.link_up)
			return true;
		rte_delay_us_sleep(10000);
	}
	return false;
}

/* Both ends are up, and the client has given the server buffers to send. */
static bool is_linked(struct kvr_port *server, struct kvr_port *client)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_port_info info;

	if (!expect_one_link(client) || !expect_one_link(server))
		return false;
	kvr_port_info(client, &info);
	for (uint32_t i = 0; i < info.lcores; i++)
		rte_pktmbuf_free_bulk(
			m, kvr_port_rx_burst(kvr_port_queue(client, i), m, pkts, KVR_PORT_BURST));
	return true;
}

/* Send frames to the server one by one; each must arrive once, and so must its answer. */
static void request_echoes(struct kvr_port *server, struct kvr_port *client, uint32_t queues)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	struct kvr_path to = {.family = 4, .udp_port = 7650, .max_frame = 1472};
	uint32_t came = 0, back = 0;

	memcpy(to.mac, kvr_port_local(server)->mac, 6);
	kvr_ip_parse("10.0.0.1", to.ip);
	for (uint32_t i = 0; i < 200; i++) {
		struct kvr_port_queue *q = kvr_port_queue(client, i % queues);
		struct rte_mbuf *one = kvr_port_alloc(q);

		CU_ASSERT_PTR_NOT_NULL_FATAL(one);
		rte_pktmbuf_append(one, 40);
		CU_ASSERT_EQUAL(kvr_port_send(q, &to, one), 0);
		CU_ASSERT_EQUAL(kvr_port_flush(q), 1);
		for (uint32_t k = 0; k < 4 * LCORES; k++) {
			struct kvr_port_queue *s = kvr_port_queue(server, k % LCORES);
			const uint16_t n = kvr_port_rx_burst(s, m, pkts, KVR_PORT_BURST);

			for (uint16_t j = 0; j < n; j++)
				kvr_port_send(s, &pkts[j].path, m[j]);
			kvr_port_flush(s);
			came += n;
		}
		for (uint32_t k = 0; k < 2 * queues; k++) {
			const uint16_t n = kvr_port_rx_burst(kvr_port_queue(client, k % queues), m,
							     pkts, KVR_PORT_BURST);

			rte_pktmbuf_free_bulk(m, n);
			back += n;
		}
	}
	CU_ASSERT_EQUAL(came, 200);
	CU_ASSERT_EQUAL(back, 200);
}

static void only_the_rings_of_the_peer_are_polled(void)
{
	static const struct memif_guard guard = {.wait = watch_driver,
						 .rings = begin_to_connect,
						 .connected = end_to_connect,
						 .queues = LCORES};
	static const uint32_t rings[] = {1, 4, 2, 1};
	char socket[] = "/tmp/kvr-spread-XXXXXX", path[64];
	struct kvr_port *server, *client;
	struct kvr_port_info info;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(socket));
	snprintf(path, sizeof(path), "%s/memif", socket);
	memif_guard_set(&guard);
	server = open_memif(path, "server", LCORES, 0);
	looked_at = kvr_port_queue(server, 0);
	kvr_port_info(server, &info);
	CU_ASSERT_PTR_NOT_NULL(rte_eth_add_rx_callback(info.ethdev, 0, driver_was_called, NULL));
	for (size_t i = 0; i < RTE_DIM(rings); i++) {
		host = 2;
		client = open_memif(path, "client", rings[i], rings[i]);
		host = 1;
		CU_ASSERT_TRUE_FATAL(is_linked(server, client));
		kvr_port_info(server, &info);
		CU_ASSERT_EQUAL(info.queues, LCORES);
		CU_ASSERT_EQUAL(info.rx_queues, rings[i]);
		CU_ASSERT_EQUAL(info.tx_queues, rings[i]);
		CU_ASSERT_EQUAL(kvr_port_spreads(kvr_port_queue(server, 0)), rings[i] < LCORES);
		CU_ASSERT(looks > i);
		CU_ASSERT_EQUAL(in_driver_then, 0);
		request_echoes(server, client, rings[i]);
		CU_ASSERT(in_driver > 0);
		check_rows(server, LCORES);
		check_rows(client, rings[i]);
		kvr_port_destroy(client);
	}
	kvr_port_destroy(server);
	memif_guard_set(NULL);
	rmdir(socket);
}

/* ---- polling threads ---- */

static struct echo_frames {
	struct kvr_port_queue *q;
	uint8_t seen[SOURCES]; /* sources seen by this lcore */
} echoes[LCORES] __rte_cache_aligned;
static _Atomic int stop;

/* The threads share CPUs: each yields after every turn. */
static int echo_frames(void *arg)
{
	struct echo_frames *e = arg;
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		const uint16_t n = kvr_port_rx_burst(e->q, m, pkts, KVR_PORT_BURST);

		for (uint16_t i = 0; i < n; i++) {
			e->seen[pkts[i].path.ip[15] % SOURCES] = 1;
			kvr_port_send(e->q, &pkts[i].path, m[i]);
		}
		kvr_port_flush(e->q);
		sched_yield();
	}
	return 0;
}

/* The other end: two rings, or queues of a memif client, with frames generated here. */
static uint16_t peer_queues, peer_dev;

static uint16_t peer_take(struct rte_mbuf *m[], uint16_t n)
{
	if (peer_queues == 0)
		return (uint16_t)rte_ring_dequeue_burst(out, (void **)m, n, NULL);
	for (uint16_t i = 0; i < peer_queues; i++) {
		const uint16_t k = rte_eth_rx_burst(peer_dev, i, m, n);

		if (k > 0)
			return k;
	}
	return 0;
}

static void peer_give(uint32_t i)
{
	struct rte_mbuf *m;

	if (peer_queues == 0)
		return;
	CU_ASSERT_EQUAL_FATAL(rte_ring_dequeue(in, (void **)&m), 0);
	while (rte_eth_tx_burst(peer_dev, (uint16_t)(i % peer_queues), &m, 1) == 0)
		sched_yield();
}

/* A window of 32 frames; each must return exactly once. */
static void ask_threads(struct kvr_port *p)
{
	uint32_t back[SOURCES] = {0}, rounds = 60;
	const uint64_t until = rte_rdtsc() + 60 * rte_get_tsc_hz();

	for (uint32_t r = 0; r < rounds; r++) {
		for (uint32_t s = r % 2; s < SOURCES; s += 2) {
			send_from_source(p, 4, s, 1000, (uint8_t)s);
			peer_give(s);
		}
		for (uint32_t n = 0; n < SOURCES / 2 && rte_rdtsc() < until;) {
			struct rte_mbuf *m[KVR_PORT_BURST];
			const uint16_t k = peer_take(m, KVR_PORT_BURST);

			for (uint16_t i = 0; i < k; i++) {
				const uint8_t *b = rte_pktmbuf_mtod(m[i], const uint8_t *);

				if (memcmp(&b[12], "\x08\0", 2) != 0)
					continue; /* frames of the kernel: a veth has IPv6 */
				back[b[42] % SOURCES]++;
				n++;
			}
			rte_pktmbuf_free_bulk(m, k);
			sched_yield();
		}
	}
	for (uint32_t s = 0; s < SOURCES; s++)
		CU_ASSERT_EQUAL(back[s], rounds / 2);
}

static void poll_with(struct kvr_port *p, uint32_t threads)
{
	uint32_t seen = 0, busy = 0;

	atomic_store_explicit(&stop, 0, memory_order_relaxed);
	memset(echoes, 0, sizeof(echoes));
	for (uint32_t i = 0; i < threads; i++) {
		echoes[i].q = kvr_port_queue(p, i);
		CU_ASSERT_EQUAL_FATAL(rte_eal_remote_launch(echo_frames, &echoes[i], i + 1), 0);
	}
	ask_threads(p);
	atomic_store_explicit(&stop, 1, memory_order_relaxed);
	rte_eal_mp_wait_lcore();
	for (uint32_t s = 0; s < SOURCES; s++)
		for (uint32_t i = 0; i < threads; i++)
			seen += echoes[i].seen[s];
	for (uint32_t i = 0; i < threads; i++)
		busy += read_row_counter(p, i, KVR_PORT_RX_KEPT) > 0;
	CU_ASSERT_EQUAL(seen, SOURCES); /* one thread per lcore */
	CU_ASSERT_EQUAL(busy, threads);
	CU_ASSERT_EQUAL(kvr_port_waiting(p), 0);
	check_rows(p, threads);
}

static void threads_on_one_ring(void)
{
	static const uint32_t threads[] = {1, 2, 4};

	for (size_t i = 0; i < RTE_DIM(threads); i++) {
		struct kvr_port *p = ring_port(threads[i]);

		peer_queues = 0;
		poll_with(p, threads[i]);
		close_port(p, threads[i]);
	}
}

static void threads_on_a_memif(void)
{
	static const uint32_t runs[][2] = {{1, 1}, {2, 1}, {4, 1}, {4, 3}};
	static const struct memif_guard guard = {.wait = no_wait,
						 .rings = kvr_port_memif_rings,
						 .connected = kvr_port_memif_connected,
						 .queues = LCORES};
	char socket[] = "/tmp/kvr-spread-XXXXXX", path[64];
	struct kvr_port_info info;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(socket));
	memif_guard_set(&guard);
	for (size_t i = 0; i < RTE_DIM(runs); i++) {
		struct kvr_port *server, *client;

		snprintf(path, sizeof(path), "%s/memif%zu", socket, i);
		server = open_memif(path, "server", runs[i][0], 0);
		host = 2;
		client = open_memif(path, "client", runs[i][1], runs[i][1]);
		host = 1;
		CU_ASSERT_TRUE_FATAL(is_linked(server, client));
		kvr_port_info(client, &info);
		peer_dev = info.ethdev;
		peer_queues = (uint16_t)runs[i][1];
		poll_with(server, runs[i][0]);
		kvr_port_destroy(client);
		kvr_port_destroy(server);
	}
	memif_guard_set(NULL);
	rmdir(socket);
}

/*
 * Packet sockets between which the kernel distributes, or one, on va; the other end of the veth is
 * vb.
 */
static void threads_on_packet_sockets(void)
{
	static const uint32_t threads[] = {1, 2, 4};
	static const char *const device =
		"net_af_packet%u,iface=%s,qpairs=%u,blocksz=4096,framesz=2048,framecnt=512";

	close_port(ring_port(1), 1); /* its rings carry the peer's frames */
	for (uint32_t i = 0; i < RTE_DIM(threads); i++) {
		struct kvr_port *server, *client;
		struct kvr_port_info info;
		char name[128];

		snprintf(name, sizeof(name), device, 2 * i, "va", threads[i]);
		server = open_port(name, threads[i], 0);
		snprintf(name, sizeof(name), device, 2 * i + 1, "vb", 1);
		host = 2;
		client = open_port(name, 1, 1);
		host = 1;
		if (server == NULL || client == NULL)
			printf("  %s\n", err);
		CU_ASSERT_FATAL(server != NULL && client != NULL);
		kvr_port_info(client, &info);
		peer_dev = info.ethdev;
		peer_queues = 1;
		poll_with(server, threads[i]);
		kvr_port_destroy(client);
		kvr_port_destroy(server);
	}
}

/* Enter a network namespace with a veth, in a user namespace unless the user is root. */
static bool make_veth(void)
{
	const uid_t uid = getuid();

	if (unshare(CLONE_NEWNET) != 0) {
		FILE *map;

		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 ||
		    (map = fopen("/proc/self/uid_map", "w")) == NULL)
			return false;
		fprintf(map, "0 %u 1", uid);
		if (fclose(map) != 0)
			return false;
	}
	return system("ip link add va type veth peer name vb && ip link set va up && "
		      "ip link set vb up") == 0;
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {KVR_CASE(a_source_has_one_lcore_for_all_its_ports),
			       KVR_CASE(full_rings_drop_and_count),
			       KVR_CASE(a_stop_leaves_nothing),
			       KVR_CASE(queues_are_applied_or_rejected),
			       KVR_CASE(only_the_rings_of_the_peer_are_polled),
			       KVR_CASE(threads_on_one_ring),
			       KVR_CASE(threads_on_a_memif),
			       CU_TEST_INFO_NULL};
	CU_TestInfo packet[] = {KVR_CASE(threads_on_packet_sockets), CU_TEST_INFO_NULL};
	const bool sockets = argc > 1 && strcmp(argv[1], "packet") == 0;
	char *eal[] = {argv[0],	       "--no-huge", "--no-shconf",    "-m",
		       "256",	       "--no-pci",  "--lcores",	      "",
		       "--main-lcore", "0",	    "--no-telemetry", "--log-level=emergency"};
	char lcores[200];
	cpu_set_t all;
	int cpu = 0, last = 0;

	if (sockets && !make_veth()) {
		printf("no network namespace available: packet sockets skipped\n");
		return 77;
	}
	sched_getaffinity(0, sizeof(all), &all);
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all))
		cpu++;
	for (int i = cpu; i < CPU_SETSIZE; i++)
		last = CPU_ISSET(i, &all) ? i : last;
	snprintf(lcores, sizeof(lcores), "0@%d,1@%d,2@%d,3@%d,4@%d", cpu, last, last, last, last);
	eal[7] = lcores;
	if (rte_eal_init((int)RTE_DIM(eal), eal) < 0)
		return 1;
	peers = rte_pktmbuf_pool_create("peers", 8191, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
					SOCKET_ID_ANY);
	argc = peers == NULL ? 1 : kvr_test_run("spread", sockets ? packet : tests);
	rte_eal_cleanup();
	return argc;
}
