/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Honest workers that send heartbeats, and one hostile worker with an address of its own that sends
 * HELLO, each time with a greater epoch. See README.md.
 *
 *   storm --honest PATH --hostile PATH [--workers N] [--beats N/S] [--hellos N/S] [--seconds S]
 *         [--settle S]
 *
 * The workers join and send heartbeats for --settle seconds. Then both sides run for --seconds, and
 * the program prints one JSON line. The workers continue until standard input ends, so that the
 * caller can inspect their states.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>

#include "kvr_frame.h"
#include "kvr_hints.h"
#include "kvr_hist.h"
#include "kvr_message.h"
#include "kvr_port.h"
#include "kvr_put.h"

#define EVERY_NS   UINT64_C(200000) /* interval of batches */
#define WORKERS	   1024u
#define FIRST	   1000u /* id of the first honest worker */
#define HOSTILE	   7u
#define JOIN_BATCH 64u	  /* HELLOs in flight */
#define SENT	   65536u /* heartbeats with a recorded time of sending */
#define SECOND	   UINT64_C(1000000000)

enum { HONEST, FOE, LINKS };

struct worker {
	bool member; /* WELCOMEd */
	uint64_t beat_ns;
};

static struct {
	struct kvr_port *port[LINKS];
	struct kvr_port_queue *q[LINKS];
	struct kvr_path router[LINKS];
	struct worker worker[WORKERS];
	uint32_t n, joined;
	uint64_t sent_ns[SENT]; /* of heartbeat number i % SENT */
	uint64_t beats, acks, not_serving, refused[KVR_E_MAX];
	uint64_t hellos, welcomes, hello_refused[KVR_E_MAX];
	uint64_t gap_ns; /* longest time between two heartbeats of a worker */
	uint64_t no_mbuf;
	struct kvr_hist ack_ns;
} s;

static void exit_with_error(const char *what)
{
	fprintf(stderr, "storm: %s\n", what);
	exit(1);
}

static uint64_t read_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- sending ---- */

static void send_frame(int link, const uint8_t *frame, int len)
{
	struct rte_mbuf *m = kvr_port_alloc(s.q[link]);
	uint8_t *p = m == NULL ? NULL : (uint8_t *)rte_pktmbuf_append(m, (uint16_t)len);

	if (len <= 0)
		exit_with_error("a frame does not fit");
	if (p == NULL) {
		rte_pktmbuf_free(m);
		s.no_mbuf++;
		return;
	}
	memcpy(p, frame, (size_t)len);
	kvr_port_send(s.q[link], &s.router[link], m);
}

static void send_hello(int link, uint64_t worker, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = epoch, .epoch = epoch};
	const struct kvr_wire_hello h = {
		.block_size = 16, .dp_size = 1, .total_kv_blocks = 1024, .max_frame = 1432};
	uint8_t frame[256], tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, "default");
	send_frame(link, frame, kvr_put_hello(frame, sizeof(frame), &ids, h, &hints));
}

static void send_beat(uint32_t i, uint64_t at)
{
	struct worker *w = &s.worker[i];
	const struct kvr_wire_ids ids = {.source = FIRST + i, .id = s.beats, .epoch = 1};
	const struct kvr_wire_rank_load l = {.kv_used_blocks = s.beats % 1024};
	uint8_t frame[256];

	if (w->beat_ns != 0 && at - w->beat_ns > s.gap_ns)
		s.gap_ns = at - w->beat_ns;
	w->beat_ns = at;
	s.sent_ns[s.beats++ % SENT] = at;
	send_frame(HONEST, frame, kvr_put_heartbeat(frame, sizeof(frame), &ids, &l, 1, 0, 0));
}

/* ---- receiving ---- */

static void take_honest_frame(const struct kvr_wire_hdr *h, uint64_t at)
{
	const struct kvr_wire_heartbeat_ack *a = (const void *)(h + 1);
	const struct kvr_wire_rejected *r = (const void *)(h + 1);
	const uint64_t i = h->source - FIRST;

	if (h->kind == KVR_WELCOME && i < s.n && !s.worker[i].member) {
		s.worker[i].member = true;
		s.joined++;
	} else if (h->kind == KVR_HEARTBEAT_ACK) {
		s.acks++;
		s.not_serving += a->state != KVR_WORKER_SERVING;
		if (s.beats - h->id <= SENT)
			kvr_hist_add(&s.ack_ns, at - s.sent_ns[h->id % SENT]);
	} else if (h->kind == KVR_REJECTED && r->code < KVR_E_MAX) {
		s.refused[r->code]++;
	}
}

static void take_hostile_frame(const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_rejected *r = (const void *)(h + 1);

	if (h->kind == KVR_WELCOME)
		s.welcomes++;
	else if (h->kind == KVR_REJECTED && r->code < KVR_E_MAX)
		s.hello_refused[r->code]++;
}

static void receive_frames(int link)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkt[KVR_PORT_BURST];
	const uint64_t at = read_clock();
	uint16_t n;

	do {
		n = kvr_port_rx_burst(s.q[link], m, pkt, KVR_PORT_BURST);
		for (uint16_t i = 0; i < n; i++) {
			const struct kvr_wire_hdr *h =
				rte_pktmbuf_mtod(m[i], const struct kvr_wire_hdr *);

			if (link == HONEST)
				take_honest_frame(h, at);
			else
				take_hostile_frame(h);
			rte_pktmbuf_free(m[i]);
		}
	} while (n == KVR_PORT_BURST);
}

static void poll_links(void)
{
	const struct timespec pause = {.tv_nsec = EVERY_NS / 2};

	for (int link = 0; link < LINKS; link++) {
		kvr_port_flush(s.q[link]);
		receive_frames(link);
	}
	nanosleep(&pause, NULL);
}

/* ---- load ---- */

/* Register all workers. Unanswered HELLOs are repeated, at most JOIN_BATCH at a time; registered
 * workers send heartbeats meanwhile. */
static void join_workers(void)
{
	const uint64_t end = read_clock() + 30 * SECOND;
	uint64_t next = 0;

	while (s.joined < s.n) {
		const uint64_t at = read_clock();

		if (at > end)
			exit_with_error("the router did not accept all workers within 30 s");
		for (uint32_t i = 0, k = 0; at >= next && i < s.n; i++)
			if (s.worker[i].member)
				send_beat(i, at);
			else if (k++ < JOIN_BATCH)
				send_hello(HONEST, FIRST + i, 1);
		if (at >= next)
			next = at + SECOND / 20;
		poll_links();
	}
}

/* Number of events due @p passed ns after the start, at @p rate per second. */
static uint64_t count_due(double rate, uint64_t passed)
{
	return (uint64_t)(rate * (double)passed / 1e9);
}

/* Send heartbeats and HELLOs at the given rates. Overdue frames are sent late, not skipped. */
static void run_load(double beats, double hellos, double seconds)
{
	const uint64_t start = read_clock(), end = start + (uint64_t)(seconds * 1e9);
	static uint32_t epoch;
	uint64_t b = 0, h = 0;

	for (uint64_t at = start; at < end; at = read_clock()) {
		for (const uint64_t to = count_due(beats, at - start); b < to; b++) {
			static uint32_t next;

			send_beat(next, at);
			next = (next + 1) % s.n;
			if (b % KVR_PORT_BURST == 0)
				receive_frames(HONEST);
		}
		for (const uint64_t to = count_due(hellos, at - start); h < to; h++) {
			send_hello(FOE, HOSTILE, ++epoch);
			s.hellos++;
		}
		poll_links();
	}
}

static void await_acks(void)
{
	for (const uint64_t end = read_clock() + SECOND; s.acks < s.beats && read_clock() < end;)
		poll_links();
}

static void reset_counters(void)
{
	s.beats = s.acks = s.not_serving = s.gap_ns = 0;
	memset(&s.ack_ns, 0, sizeof(s.ack_ns));
	memset(s.refused, 0, sizeof(s.refused));
}

static void print_codes(const char *name, const uint64_t n[KVR_E_MAX])
{
	printf(",\"%s\":{", name);
	for (uint32_t i = 0, k = 0; i < KVR_E_MAX; i++)
		if (n[i] != 0)
			printf("%s\"%s\":%" PRIu64, k++ ? "," : "", kvr_code_name(i), n[i]);
	printf("}");
}

static void print_report(double seconds)
{
	printf("{\"workers\":%u,\"beats\":%" PRIu64 ",\"answered\":%" PRIu64
	       ",\"answered_per_s\":%.0f,\"not_serving\":%" PRIu64,
	       s.n, s.beats, s.acks, (double)s.acks / seconds, s.not_serving);
	printf(",\"ack_us_p50\":%.1f,\"ack_us_p99\":%.1f,\"gap_ms\":%.1f,\"no_mbuf\":%" PRIu64,
	       (double)kvr_hist_quantile(&s.ack_ns, 0.5) / 1e3,
	       (double)kvr_hist_quantile(&s.ack_ns, 0.99) / 1e3, (double)s.gap_ns / 1e6, s.no_mbuf);
	printf(",\"hellos\":%" PRIu64 ",\"welcomes\":%" PRIu64, s.hellos, s.welcomes);
	print_codes("refused", s.refused);
	print_codes("hellos_refused", s.hello_refused);
	printf("}\n");
	fflush(stdout);
}

static bool input_ended(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char c;

	return poll(&p, 1, 0) != 0 && read(STDIN_FILENO, &c, 1) <= 0;
}

/* ---- start ---- */

static void open_link(uint8_t link, const char *socket)
{
	struct kvr_port_conf c;
	char err[300] = "", name[16], ip[16];
	uint8_t to[16];

	kvr_conf_defaults(kvr_port_opts, &c);
	snprintf(name, sizeof(name), "storm%u", link);
	snprintf(c.device, sizeof(c.device),
		 "net_memif%u,role=client,id=0,socket=%s,socket-abstract=no,bsize=2048,rsize=12",
		 link, socket);
	snprintf(c.ipv4, sizeof(c.ipv4), "10.%u.0.2", 77u + link);
	s.port[link] = kvr_port_create(name, &c, link, err, sizeof(err));
	if (s.port[link] == NULL || kvr_port_start(s.port[link], err, sizeof(err)) < 0)
		exit_with_error(err);
	s.q[link] = kvr_port_queue(s.port[link], 0);
	snprintf(ip, sizeof(ip), "10.%u.0.1", 77u + link);
	kvr_ip_parse(ip, to);
	if (kvr_port_resolve(s.q[link], to, KVR_WIRE_PORT, 5000, &s.router[link]) < 0)
		exit_with_error("the router does not answer");
	s.router[link].max_frame = KVR_WIRE_DEF_FRAME;
}

struct options {
	const char *socket[LINKS];
	double beats, hellos, seconds, settle;
};

static void parse_storm_args(int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {
		{"honest", 1, NULL, 'a'}, {"hostile", 1, NULL, 'b'}, {"workers", 1, NULL, 'w'},
		{"beats", 1, NULL, 'r'},  {"hellos", 1, NULL, 'h'},  {"seconds", 1, NULL, 't'},
		{"settle", 1, NULL, 's'}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 'a':
			o->socket[HONEST] = optarg;
			break;
		case 'b':
			o->socket[FOE] = optarg;
			break;
		case 'w':
			s.n = (uint32_t)atoi(optarg);
			break;
		case 'r':
			o->beats = atof(optarg);
			break;
		case 'h':
			o->hellos = atof(optarg);
			break;
		case 't':
			o->seconds = atof(optarg);
			break;
		case 's':
			o->settle = atof(optarg);
			break;
		default:
			exit(2);
		}
	}
	if (o->socket[HONEST] == NULL || o->socket[FOE] == NULL || s.n == 0 || s.n > WORKERS)
		exit_with_error(
			"--honest and --hostile are required, and --workers must be 1 to 1024");
}

int main(int argc, char **argv)
{
	const char *eal[] = {"storm", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
			     "-m",    "128",	   "--lcores", "0",	      NULL};
	struct options o = {.beats = 10e3, .hellos = 5e3, .seconds = 5, .settle = 1};

	s.n = 1000;
	parse_storm_args(argc, argv, &o);
	if (rte_eal_init(9, (char **)(uintptr_t)eal) < 0)
		exit_with_error("cannot initialize the EAL");
	for (uint8_t link = 0; link < LINKS; link++)
		open_link(link, o.socket[link]);
	join_workers();
	run_load(o.beats, 0, o.settle);
	await_acks();
	reset_counters();
	run_load(o.beats, o.hellos, o.seconds);
	await_acks();
	print_report(o.seconds);
	while (!input_ended())
		run_load(o.beats, 0, 0.05);
	for (int link = 0; link < LINKS; link++)
		kvr_port_destroy(s.port[link]);
	rte_eal_cleanup();
	return 0;
}
