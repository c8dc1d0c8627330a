/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor of a life cycle: the same frames with the same sizes, between the CPU of the load and
 * the CPU of the router, and nothing else. See README.md.
 *
 *   lifecycle-null router --socket PATH --cpu N [--ring LOG2]
 *   lifecycle-null load   --socket PATH --cpu N [--ring LOG2] --rate N --seconds S [--warmup S]
 *
 * The router receives and sends through lib/port: a ROUTE leaves as DISPATCH in the buffer in which
 * it arrived, together with an ACCEPTED; every other frame returns unchanged. SIGTERM ends it. The
 * load answers a DISPATCH with two RESPONSEs, and the second RESPONSE with a RESPONSE_ACK. It
 * reports its start on stderr. Both print one JSON line at the end.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>

#include "kvr_hist.h"
#include "kvr_port.h"
#include "kvr_put.h"
#include "kvr_rand.h"

#define ROUTER_IP "10.77.0.1"
#define LOAD_IP	  "10.77.0.2"
#define HASHES	  128u
#define DATA	  32u /* bytes of an item */
#define SLOTS	  65536u
#define DRAIN_S	  0.5
#define PROMPTS	  1000u

enum {
	ROUTE_BODY = sizeof(struct kvr_wire_request) + HASHES * 8,
	ACCEPTED_BODY = sizeof(struct kvr_wire_accepted),
	RESPONSE_BODY = sizeof(struct kvr_wire_response) + DATA,
	RACK_BODY = sizeof(struct kvr_wire_response_ack),
};

struct null {
	struct kvr_port *port;
	struct kvr_port_queue *q;
	struct kvr_path peer; /* path from the load to the router */
	uint64_t in, out, cycles, no_mbuf;
	/* The load. */
	uint64_t hz, requests, completed, measured, busy;
	uint64_t due, warm, last; /* TSC: next ROUTE; start of measurement; last answer */
	double gap;		  /* TSC cycles between ROUTEs, on average */
	struct kvr_rand rand;
	uint64_t *prompt;
	struct {
		uint64_t sent, there; /* time of ROUTE; both ways of the router, in turn */
	} slot[SLOTS];
	struct kvr_hist added; /* ns */
};

static volatile sig_atomic_t ended;

static void on_term(int sig)
{
	(void)sig;
	ended = 1;
}

static void exit_with_error(const char *what)
{
	fprintf(stderr, "lifecycle-null: %s\n", what);
	exit(1);
}

static struct kvr_wire_hdr *frame_header(struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, struct kvr_wire_hdr *);
}

/* @return a frame with a header and an unwritten body, or NULL. */
static struct rte_mbuf *make_frame(struct null *u, uint8_t kind, uint64_t id, uint16_t body)
{
	const struct kvr_wire_ids ids = {.source = 1, .id = id, .epoch = 1};
	struct rte_mbuf *m = kvr_port_alloc(u->q);

	if (m == NULL || rte_pktmbuf_append(m, (uint16_t)(KVR_WIRE_MIN_FRAME + body)) == NULL) {
		rte_pktmbuf_free(m);
		u->no_mbuf++;
		return NULL;
	}
	kvr_hdr_put(rte_pktmbuf_mtod(m, uint8_t *), kind, &ids, body, 0, body);
	return m;
}

static void send_mbuf(struct null *u, const struct kvr_path *to, struct rte_mbuf *m)
{
	if (m == NULL)
		return;
	u->out++;
	kvr_port_send(u->q, to, m);
}

/* ---- the router ---- */

static void forward_frame(struct null *u, const struct kvr_pkt *p, struct rte_mbuf *m)
{
	if (frame_header(m)->kind == KVR_ROUTE) {
		struct rte_mbuf *a =
			make_frame(u, KVR_ACCEPTED, frame_header(m)->id, ACCEPTED_BODY);

		if (a != NULL)
			memset(frame_header(a) + 1, 0, ACCEPTED_BODY);
		send_mbuf(u, &p->path, a);
		frame_header(m)->kind = KVR_DISPATCH;
	}
	send_mbuf(u, &p->path, m);
}

static int run_router(struct null *u)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkt[KVR_PORT_BURST];

	while (!ended) {
		const uint64_t begin = rte_rdtsc();
		const uint16_t n = kvr_port_rx_burst(u->q, m, pkt, KVR_PORT_BURST);

		for (uint16_t i = 0; i < n; i++)
			forward_frame(u, &pkt[i], m[i]);
		if (n == 0)
			continue;
		kvr_port_flush(u->q);
		u->in += n;
		u->cycles += rte_rdtsc() - begin;
	}
	printf("{\"in\":%" PRIu64 ",\"out\":%" PRIu64 ",\"cycles\":%" PRIu64 ",\"no_mbuf\":%" PRIu64
	       ",\"tsc_hz\":%" PRIu64 "}\n",
	       u->in, u->out, u->cycles, u->no_mbuf, rte_get_tsc_hz());
	return 0;
}

/* ---- the load ---- */

static void send_route(struct null *u, uint64_t now)
{
	const uint64_t id = u->requests++;
	struct rte_mbuf *m = make_frame(u, KVR_ROUTE, id, ROUTE_BODY);
	struct kvr_wire_request *w;

	if (m == NULL)
		return;
	w = (void *)(frame_header(m) + 1);
	memset(w, 0, sizeof(*w));
	memcpy(w + 1, &u->prompt[(kvr_rand_u64(&u->rand) % PROMPTS) * HASHES], HASHES * 8);
	u->slot[id % SLOTS].sent = now;
	send_mbuf(u, &u->peer, m);
}

static void send_response(struct null *u, uint64_t id, uint32_t seq)
{
	struct rte_mbuf *m = make_frame(u, KVR_RESPONSE, id, RESPONSE_BODY);
	struct kvr_wire_response *w;

	if (m == NULL)
		return;
	w = (void *)(frame_header(m) + 1);
	memset(w, 0, RESPONSE_BODY);
	w->seq = seq;
	send_mbuf(u, &u->peer, m);
}

static void send_rack(struct null *u, uint64_t id)
{
	struct rte_mbuf *m = make_frame(u, KVR_RESPONSE_ACK, id, RACK_BODY);

	if (m != NULL)
		memset(frame_header(m) + 1, 0, RACK_BODY);
	send_mbuf(u, &u->peer, m);
}

static void count_completion(struct null *u, uint64_t id, uint64_t now)
{
	u->completed++;
	if (u->slot[id % SLOTS].sent < u->warm)
		return;
	u->measured++;
	u->last = now;
}

static void on_frame(struct null *u, struct rte_mbuf *m, uint64_t now)
{
	const struct kvr_wire_hdr *h = frame_header(m);
	const uint64_t id = h->id, at = id % SLOTS;
	const struct kvr_wire_response *w = (const void *)(h + 1);

	switch (h->kind) {
	case KVR_DISPATCH:
		u->slot[at].there = now - u->slot[at].sent;
		send_response(u, id, 0);
		send_response(u, id, 1);
		u->slot[at].there -= now; /* on_frame() adds the arrival of the first RESPONSE */
		break;
	case KVR_RESPONSE:
		if (w->seq == 1)
			send_rack(u, id);
		else if (u->slot[at].sent >= u->warm)
			kvr_hist_add(&u->added, (uint64_t)((double)(now + u->slot[at].there) * 1e9 /
							   (double)u->hz));
		break;
	case KVR_RESPONSE_ACK:
		count_completion(u, id, now);
		break;
	default:
		break;
	}
}

static void poll_port(struct null *u, uint64_t until)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkt[KVR_PORT_BURST];
	const uint16_t n = kvr_port_rx_burst(u->q, m, pkt, KVR_PORT_BURST);
	const uint64_t now = rte_rdtsc();
	bool any = n > 0;

	for (uint16_t i = 0; i < n; i++)
		on_frame(u, m[i], now);
	rte_pktmbuf_free_bulk(m, n);
	for (; u->due <= now && u->due < until; any = true) {
		send_route(u, now);
		u->due += (uint64_t)(-u->gap * log(1 - kvr_rand_unit(&u->rand)));
	}
	kvr_port_flush(u->q);
	if (any)
		u->busy += rte_rdtsc() - now;
}

static int run_load(struct null *u, double rate, double warmup, double seconds)
{
	const double hz = (double)(u->hz = rte_get_tsc_hz());
	uint64_t start, until, end;
	uint8_t to[16];

	kvr_ip_parse(ROUTER_IP, to);
	if (kvr_port_resolve(u->q, to, KVR_WIRE_PORT, 5000, &u->peer) < 0)
		exit_with_error("the router does not answer");
	u->peer.max_frame = KVR_WIRE_DEF_FRAME;
	u->gap = hz / rate;
	u->prompt = malloc(PROMPTS * HASHES * 8);
	if (u->prompt == NULL)
		exit_with_error("out of memory");
	for (uint32_t i = 0; i < PROMPTS * HASHES; i++)
		u->prompt[i] = kvr_rand_u64(&u->rand);
	fprintf(stderr, "lifecycle-null: begins\n");
	start = u->due = rte_rdtsc();
	u->warm = u->last = start + (uint64_t)(warmup * hz);
	until = u->warm + (uint64_t)(seconds * hz);
	end = until + (uint64_t)(DRAIN_S * hz);
	while (!ended && rte_rdtsc() < end && (u->due < until || u->completed < u->requests))
		poll_port(u, until);
	printf("{\"requests\":%" PRIu64 ",\"completed\":%" PRIu64
	       ",\"measured_per_s\":%.0f,\"added_us_p50\":%.2f,\"added_us_p99\":%.2f"
	       ",\"busy_share\":%.3f}\n",
	       u->requests, u->completed, (double)u->measured * hz / (double)(u->last - u->warm),
	       (double)kvr_hist_quantile(&u->added, 0.5) / 1e3,
	       (double)kvr_hist_quantile(&u->added, 0.99) / 1e3,
	       (double)u->busy / (double)(rte_rdtsc() - start));
	return u->completed == u->requests ? 0 : 1;
}

static void open_port(struct null *u, bool server, const char *socket, uint32_t ring)
{
	struct kvr_port_conf c;
	char err[300] = "";

	kvr_conf_defaults(kvr_port_opts, &c);
	snprintf(c.device, sizeof(c.device),
		 "net_memif0,role=%s,id=0,socket=%s,socket-abstract=no,bsize=2048,rsize=%u",
		 server ? "server" : "client", socket, ring);
	snprintf(c.ipv4, sizeof(c.ipv4), "%s", server ? ROUTER_IP : LOAD_IP);
	c.udp_port = KVR_WIRE_PORT;
	c.tx_checksum = KVR_PORT_TX_NONE;
	u->port = kvr_port_create("null", &c, 0, err, sizeof(err));
	if (u->port == NULL || kvr_port_start(u->port, err, sizeof(err)) < 0)
		exit_with_error(err);
	u->q = kvr_port_queue(u->port, 0);
}

struct options {
	const char *socket;
	uint32_t ring, cpu;
	double rate, seconds, warmup;
};

static bool read_options(int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {{"socket", 1, NULL, 's'},	{"ring", 1, NULL, 'g'},
					     {"cpu", 1, NULL, 'c'},	{"rate", 1, NULL, 'r'},
					     {"seconds", 1, NULL, 't'}, {"warmup", 1, NULL, 'w'},
					     {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 's':
			o->socket = optarg;
			break;
		case 'g':
			o->ring = (uint32_t)atoi(optarg);
			break;
		case 'c':
			o->cpu = (uint32_t)atoi(optarg);
			break;
		case 'r':
			o->rate = atof(optarg);
			break;
		case 't':
			o->seconds = atof(optarg);
			break;
		case 'w':
			o->warmup = atof(optarg);
			break;
		default:
			return false;
		}
	}
	return o->socket != NULL && optind == argc - 1 && o->rate > 0;
}

static void start_eal(const struct options *o)
{
	char lcore[16], prefix[40];
	char *argv[] = {
		"lifecycle-null",    "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
		"--log-level=error", "-m",	  "256",      "--lcores",    lcore,
		"--file-prefix",     prefix,	  NULL};

	snprintf(lcore, sizeof(lcore), "0@%u", o->cpu);
	snprintf(prefix, sizeof(prefix), "lifecycle-null-%d", (int)getpid());
	if (rte_eal_init(12, argv) < 0)
		exit_with_error("cannot initialize the EAL");
}

int main(int argc, char **argv)
{
	struct options o = {.ring = 12, .rate = 100e3, .seconds = 2, .warmup = 1};
	static struct null u;
	bool server;
	int ret;

	if (!read_options(argc, argv, &o)) {
		fprintf(stderr, "usage: lifecycle-null router|load --socket PATH --cpu N ...\n");
		return 2;
	}
	server = strcmp(argv[optind], "router") == 0;
	start_eal(&o);
	signal(SIGTERM, on_term);
	open_port(&u, server, o.socket, o.ring);
	ret = server ? run_router(&u) : run_load(&u, o.rate, o.warmup, o.seconds);
	kvr_port_destroy(u.port);
	rte_eal_cleanup();
	return ret;
}
