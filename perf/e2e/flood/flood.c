/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hostile client. It sends one third each of valid requests without reading the answers, invalid
 * frames, and messages that are never completed, at a given rate and from one address with a valid
 * cookie. See README.md.
 *
 *   flood --socket PATH --rate FRAMES/S --seconds S [--pool N] [--ip A] [--router A] [--idle]
 *
 * With --idle, frames are built but not sent, so that the program uses the same CPU time. The
 * output is one JSON line.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>

#include "kvr_message.h"
#include "kvr_port.h"
#include "kvr_put.h"

#define EVERY_US 200u /* interval of batches */
#define HASHES	 8u
#define PART	 1376u	 /* body bytes of a first fragment */
#define WHOLE	 100096u /* bytes of its message */
#define SOURCE	 UINT64_C(0xf100df100df100d)

struct flood {
	struct kvr_port *port;
	struct kvr_port_queue *q;
	struct kvr_path router;
	uint64_t cookie, id;
	uint16_t pool;
	bool idle;
	uint64_t sent[3]; /* valid, invalid, incomplete */
	uint64_t bytes_out, bytes_in, no_mbuf;
	uint64_t got[256]; /* by kind */
	uint64_t rejected[KVR_E_MAX];
};

static void exit_with_error(const char *what)
{
	fprintf(stderr, "flood: %s\n", what);
	exit(1);
}

/* Write the first @p body bytes of a ROUTE of @p msg_len bytes. @return length of the frame. */
static uint32_t put_route(struct flood *f, uint8_t *p, uint32_t body, uint32_t msg_len)
{
	const struct kvr_wire_ids ids = {
		.source = SOURCE, .id = ++f->id, .epoch = 7, .msg_seq = (uint32_t)f->id};
	struct kvr_wire_request *w = (void *)(p + KVR_WIRE_MIN_FRAME);
	uint64_t hash[HASHES];

	memset(p, 0, KVR_WIRE_MIN_FRAME + body);
	kvr_hdr_put(p, KVR_ROUTE, &ids, msg_len, 0, (uint16_t)body);
	w->pool = f->pool;
	w->n_hashes = HASHES;
	w->isl = HASHES * 16;
	w->max_tokens = 16;
	w->expected_output_tokens = KVR_NONE32;
	w->body_len = msg_len - (uint32_t)(sizeof(*w) + sizeof(hash));
	w->worker = f->cookie;
	for (uint32_t i = 0; i < HASHES; i++)
		hash[i] = f->id * HASHES + i;
	memcpy(w + 1, hash, sizeof(hash));
	return KVR_WIRE_MIN_FRAME + body;
}

/* Write a ROUTE with one of six faults. @return length of the frame. */
static uint32_t put_invalid(struct flood *f, uint8_t *p)
{
	uint32_t len = put_route(f, p, 152, 152);
	struct kvr_wire_hdr *h = (void *)p;
	struct kvr_wire_request *w = (void *)(h + 1);

	switch (f->id % 6) {
	case 0:
		h->flags = 0x8000;
		break;
	case 1:
		h->version = 9;
		break;
	case 2:
		h->kind = 99;
		break;
	case 3:
		w->pool = 999;
		break;
	case 4:
		w->worker ^= 1; /* as with a forged address */
		break;
	default:
		len -= 8;
	}
	return len;
}

static void send_one(struct flood *f, uint64_t n)
{
	struct rte_mbuf *m = kvr_port_alloc(f->q);
	uint8_t *p;
	uint32_t len;

	if (m == NULL) {
		f->no_mbuf++;
		return;
	}
	p = (uint8_t *)rte_pktmbuf_append(m, KVR_WIRE_MIN_FRAME + PART);
	if (p == NULL)
		exit_with_error("mbufs are too small");
	len = n % 3 == 0   ? put_route(f, p, 152, 152)
	      : n % 3 == 1 ? put_invalid(f, p)
			   : put_route(f, p, PART, WHOLE);
	rte_pktmbuf_trim(m, (uint16_t)(KVR_WIRE_MIN_FRAME + PART - len));
	if (f->idle) {
		rte_pktmbuf_free(m);
		return;
	}
	f->sent[n % 3]++;
	f->bytes_out += len;
	kvr_port_send(f->q, &f->router, m);
}

static void receive_frames(struct flood *f)
{
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkt[KVR_PORT_BURST];
	uint16_t n;

	do {
		n = kvr_port_rx_burst(f->q, m, pkt, KVR_PORT_BURST);
		for (uint16_t i = 0; i < n; i++) {
			const struct kvr_wire_hdr *h =
				rte_pktmbuf_mtod(m[i], const struct kvr_wire_hdr *);
			const struct kvr_wire_rejected *r = (const void *)(h + 1);

			f->bytes_in += m[i]->pkt_len;
			f->got[h->kind]++;
			if (h->kind == KVR_REJECTED && r->code < KVR_E_MAX)
				f->rejected[r->code]++;
			if (h->kind == KVR_REJECTED && r->code == KVR_E_COOKIE)
				f->cookie = r->detail[0];
			rte_pktmbuf_free(m[i]);
		}
	} while (n == KVR_PORT_BURST);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Send batches at fixed times. A backlog of more than 20 batches is skipped. */
static void run_flood(struct flood *f, double rate, double seconds)
{
	const uint64_t start = now_us(), end = start + (uint64_t)(seconds * 1e6);
	const struct timespec pause = {.tv_nsec = (EVERY_US - 60) * 1000};
	uint64_t n = 0;

	for (uint64_t now = start; now < end; now = now_us()) {
		uint64_t due = (uint64_t)((double)(now - start) * rate / 1e6);

		if (due - n > 20 * (uint64_t)(rate * EVERY_US / 1e6 + 1))
			n = due - 20 * (uint64_t)(rate * EVERY_US / 1e6 + 1);
		for (; n < due; n++)
			send_one(f, n);
		kvr_port_flush(f->q);
		receive_frames(f);
		nanosleep(&pause, NULL);
	}
}

static void print_report(const struct flood *f)
{
	printf("{\"idle\":%s,\"valid\":%" PRIu64 ",\"invalid\":%" PRIu64 ",\"half\":%" PRIu64
	       ",\"bytes_out\":%" PRIu64 ",\"bytes_in\":%" PRIu64 ",\"no_mbuf\":%" PRIu64
	       ",\"accepted\":%" PRIu64 ",\"rejected\":{",
	       f->idle ? "true" : "false", f->sent[0], f->sent[1], f->sent[2], f->bytes_out,
	       f->bytes_in, f->no_mbuf, f->got[KVR_ACCEPTED]);
	for (uint32_t i = 0, k = 0; i < KVR_E_MAX; i++)
		if (f->rejected[i] != 0)
			printf("%s\"%s\":%" PRIu64, k++ ? "," : "", kvr_code_name(i),
			       f->rejected[i]);
	printf("}}\n");
}

static void open_port(struct flood *f, const char *socket, const char *ip, const char *router)
{
	struct kvr_port_conf c;
	char err[300] = "";
	uint8_t to[16];

	kvr_conf_defaults(kvr_port_opts, &c);
	snprintf(c.device, sizeof(c.device),
		 "net_memif7,role=client,id=0,socket=%s,socket-abstract=no,bsize=2048,rsize=12",
		 socket);
	snprintf(c.ipv4, sizeof(c.ipv4), "%s", ip);
	f->port = kvr_port_create("flood", &c, 0, err, sizeof(err));
	if (f->port == NULL || kvr_port_start(f->port, err, sizeof(err)) < 0)
		exit_with_error(err);
	f->q = kvr_port_queue(f->port, 0);
	kvr_ip_parse(router, to);
	if (kvr_port_resolve(f->q, to, KVR_WIRE_PORT, 5000, &f->router) < 0)
		exit_with_error("the router does not answer");
	f->router.max_frame = KVR_WIRE_DEF_FRAME;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{"socket", 1, NULL, 's'}, {"rate", 1, NULL, 'r'}, {"seconds", 1, NULL, 't'},
		{"pool", 1, NULL, 'p'},	  {"ip", 1, NULL, 'a'},	  {"router", 1, NULL, 'd'},
		{"idle", 0, NULL, 'i'},	  {NULL, 0, NULL, 0},
	};
	const char *eal[] = {"flood", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
			     "-m",    "128",	   "--lcores", "0",	      NULL};
	const char *socket = NULL, *ip = "10.78.0.2", *router = "10.78.0.1";
	static struct flood f;
	double rate = 50e3, seconds = 3;
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 's':
			socket = optarg;
			break;
		case 'r':
			rate = atof(optarg);
			break;
		case 't':
			seconds = atof(optarg);
			break;
		case 'p':
			f.pool = (uint16_t)atoi(optarg);
			break;
		case 'a':
			ip = optarg;
			break;
		case 'd':
			router = optarg;
			break;
		case 'i':
			f.idle = true;
			break;
		default:
			return 2;
		}
	}
	if (socket == NULL)
		exit_with_error("--socket is missing");
	if (rte_eal_init(9, (char **)(uintptr_t)eal) < 0)
		exit_with_error("cannot initialize the EAL");
	open_port(&f, socket, ip, router);
	run_flood(&f, rate, seconds);
	receive_frames(&f);
	print_report(&f);
	kvr_port_destroy(f.port);
	rte_eal_cleanup();
	return 0;
}
