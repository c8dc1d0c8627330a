/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events through one agent thread: decode, translate, tell the router. Three rows a case, each
 * with the work of the one before: decode; + table and hashes; + KV_EVENTS over loopback to a
 * router's end on another thread, acknowledged, nothing lost. See README.md.
 */
#include "kvr_agent.h"
#include "kvr_hash.h"
#include "kvr_kvev.h"
#include "kvr_kvmap.h"
#include "kvr_put.h"
#include "kvr_rand.h"
#include "kvr_udp.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK	   16u
#define CHAINS	   512u
#define VOCABULARY 152000u
#define WAITING	   20000u /* blocks at the most that the router's end has not seen */
#define TURN	   4u /* batches before the router's socket has its turn; kvroute-agent: up to 256 */

/* ---- what an engine would send: stores of all chains, then their removals ---- */

struct payload {
	uint8_t *p;
	size_t len;
};

static struct payload *payloads;
static uint32_t n_payloads, blocks_in_all, events_in_all;
static uint64_t expected; /* sum of the names of all blocks */

static uint8_t *put_be(uint8_t *p, uint8_t tag, uint64_t v, unsigned int bytes)
{
	*p++ = tag;
	for (unsigned int i = bytes; i-- > 0;)
		*p++ = (uint8_t)(v >> (8 * i));
	return p;
}

static uint8_t *put_text(uint8_t *p, const char *s)
{
	const size_t n = strlen(s);

	if (n < 32)
		*p++ = (uint8_t)(0xa0 | n);
	else
		p = put_be(p, 0xd9, n, 1);
	memcpy(p, s, n);
	return p + n;
}

static uint8_t *put_token(uint8_t *p, uint32_t t)
{
	return t < 128	   ? put_be(p, (uint8_t)t, 0, 0)
	       : t < 65536 ? put_be(p, 0xcd, t, 2)
			   : put_be(p, 0xce, t, 4);
}

static uint8_t *put_names(uint8_t *p, const uint64_t *names, uint32_t n)
{
	p = put_text(p, "block_hashes");
	p = put_be(p, 0xdc, n, 2);
	for (uint32_t i = 0; i < n; i++)
		p = put_be(p, 0xcf, names[i], 8);
	return p;
}

/* A map as vLLM writes it today. */
static uint8_t *put_stored(uint8_t *p, const uint64_t *names, const uint64_t *parent,
			   const uint32_t *tokens, uint32_t n)
{
	*p++ = 0x8a;
	p = put_text(put_text(p, "type"), "BlockStored");
	p = put_names(p, names, n);
	p = put_text(p, "parent_block_hash");
	p = parent != NULL ? put_be(p, 0xcf, *parent, 8) : put_be(p, 0xc0, 0, 0);
	p = put_text(p, "token_ids");
	p = put_be(p, 0xdc, (uint64_t)n * BLOCK, 2);
	for (uint32_t i = 0; i < n * BLOCK; i++)
		p = put_token(p, tokens[i]);
	p = put_be(put_text(p, "block_size"), BLOCK, 0, 0);
	p = put_be(put_text(p, "lora_id"), 0xc0, 0, 0);
	p = put_text(put_text(p, "medium"), "GPU");
	p = put_be(put_text(p, "lora_name"), 0xc0, 0, 0);
	p = put_be(put_text(p, "group_idx"), 0, 0, 0);
	return put_text(put_text(p, "kv_cache_spec_kind"), "full_attention");
}

static uint8_t *put_removed(uint8_t *p, const uint64_t *names, uint32_t n)
{
	*p++ = 0x84;
	p = put_text(put_text(p, "type"), "BlockRemoved");
	p = put_names(p, names, n);
	p = put_text(put_text(p, "medium"), "GPU");
	return put_be(put_text(p, "group_idx"), 0, 0, 0);
}

/* Batches of `batch` events of `n` blocks each: chains of `len` blocks. */
struct writer {
	uint8_t *buf, *p;
	uint32_t batch, events;
};

static void close_batch(struct writer *w)
{
	struct payload *out = &payloads[n_payloads];
	const size_t n = (size_t)(w->p - w->buf);

	if (w->events == 0)
		return;
	out->p = malloc(n + 16);
	out->len = 0;
	out->p[out->len++] = 0x93;
	out->p[out->len++] = 0xcb;
	memset(out->p + out->len, 0x40, 8);
	out->len += 8;
	put_be(out->p + out->len, 0xdc, w->events, 2);
	out->len += 3;
	memcpy(out->p + out->len, w->buf, n);
	out->len += n;
	out->p[out->len++] = 0; /* the rank */
	n_payloads++;
	events_in_all += w->events;
	w->p = w->buf;
	w->events = 0;
}

static void make(uint32_t n, uint32_t batch, uint32_t len)
{
	uint64_t *names = malloc(len * sizeof(names[0])), *sh = malloc(len * sizeof(sh[0]));
	uint32_t *tokens = malloc(len * BLOCK * sizeof(tokens[0]));
	struct writer w = {.batch = batch};
	struct kvr_rand r;

	w.buf = w.p = malloc(batch * (n * (BLOCK * 5ul + 9) + 300));
	payloads = calloc(2ul * CHAINS * len / n + 2, sizeof(payloads[0]));
	blocks_in_all = CHAINS * len;
	for (unsigned int pass = 0; pass < 2; pass++) {
		kvr_rand_init(&r, 7);
		for (uint32_t c = 0; c < CHAINS; c++) {
			const struct kvr_hash_params hp = {.seed = KVR_HASH_SEED,
							   .block_size = BLOCK};

			for (uint32_t i = 0; i < len; i++)
				names[i] = kvr_rand_u64(&r);
			for (uint32_t i = 0; i < len * BLOCK; i++)
				tokens[i] = kvr_rand_below(&r, VOCABULARY);
			kvr_hash_tokens(&hp, tokens, len * BLOCK, NULL, sh, len);
			for (uint32_t i = 0; i < len; i++)
				expected += pass == 0 ? sh[i] : 0;
			for (uint32_t i = 0; i < len; i += n) {
				w.p = pass == 0 ? put_stored(w.p, names + i,
							     i > 0 ? &names[i - 1] : NULL,
							     tokens + (size_t)i * BLOCK, n)
						: put_removed(w.p, names + i, n);
				if (++w.events == w.batch)
					close_batch(&w);
			}
		}
		close_batch(&w);
	}
	free(names);
	free(sh);
	free(tokens);
	free(w.buf);
}

/* ---- the router's end ---- */

static struct kvr_udp router;
static _Atomic uint64_t router_blocks; /* the router's end writes; orders nothing */
static _Atomic bool router_stop;
static uint64_t router_stored, router_removed; /* sums; read when the thread has ended */

/* Answers of a burst leave together, as the router's do. */
static struct kvr_udp_msg answers[KVR_UDP_BURST];
static uint8_t answer_frames[KVR_UDP_BURST][256];
static unsigned int n_answers;

static void answer(const struct kvr_udp_addr *to, const struct kvr_wire_hdr *h, uint8_t kind,
		   const void *body, uint32_t len)
{
	struct kvr_wire_ids ids = {.source = h->source, .id = h->id, .epoch = 77};
	struct kvr_udp_msg *m = &answers[n_answers];

	*m = (struct kvr_udp_msg){.addr = *to, .data = answer_frames[n_answers++]};
	m->len = (uint32_t)kvr_put_message(m->data, sizeof(answer_frames[0]), kind, &ids,
					   (struct kvr_slice){body, len},
					   (struct kvr_slice){NULL, 0});
}

static void take_events(const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			uint64_t *next)
{
	const struct kvr_wire_kv_events *w = (const void *)(h + 1);
	struct kvr_wire_kv_ack ack = {.dp_rank = w->dp_rank};
	struct kvr_kv_iter it = kvr_kv_events_begin((const uint8_t *)w);
	struct kvr_kv_event ev;
	uint64_t blocks = 0;

	if (w->first_event_id == *next) {
		while (kvr_kv_events_next(&it, &ev)) {
			uint64_t sum = 0, sh;

			for (uint32_t i = 0; i < ev.n_blocks; i++) {
				memcpy(&sh, (const uint8_t *)ev.hashes + 8ul * i, 8);
				sum += sh;
			}
			if (ev.type == KVR_KV_STORED)
				router_stored += sum;
			else
				router_removed += sum;
			blocks += ev.n_blocks;
		}
		*next += w->n_events;
		atomic_fetch_add_explicit(&router_blocks, blocks, memory_order_relaxed);
	} else if (w->first_event_id > *next) {
		ack.code = KVR_KV_GAP;
	}
	ack.next_event_id = *next;
	answer(from, h, KVR_KV_ACK, &ack, sizeof(ack));
}

static void *router_main(void *arg)
{
	const struct kvr_wire_welcome welcome = {
		.heartbeat_ms = 1000, .dead_ms = 60000, .max_frame = 8952};
	struct kvr_udp_msg m[KVR_UDP_BURST];
	uint64_t next = 0;

	while (!atomic_load_explicit(&router_stop, memory_order_relaxed)) {
		const unsigned int n = router.io->recv(router.ctx, m, KVR_UDP_BURST);

		for (unsigned int i = 0; i < n; i++) {
			const struct kvr_wire_hdr *h = (const void *)m[i].data;

			if (h->kind == KVR_HELLO)
				answer(&m[i].addr, h, KVR_WELCOME, &welcome, sizeof(welcome));
			else if (h->kind == KVR_KV_EVENTS)
				take_events(&m[i].addr, h, &next);
		}
		if (n_answers > 0)
			router.io->send(router.ctx, answers, n_answers);
		n_answers = 0;
	}
	return NULL;
}

/* ---- the agent ---- */

struct sums {
	struct kvr_agent *agent; /* NULL: nobody is told */
	uint64_t stored, removed, blocks;
};

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	struct sums *s = user;
	const struct kvr_agent_kv kv = {.tier = tier,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	for (uint32_t i = 0; i < n; i++)
		s->stored += sh[i];
	s->blocks += n;
	if (s->agent != NULL)
		kvr_agent_kv_stored(s->agent, 0, &kv);
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	struct sums *s = user;
	const struct kvr_agent_kv kv = {.tier = tier, .hashes = sh, .n = n};

	for (uint32_t i = 0; i < n; i++)
		s->removed += sh[i];
	s->blocks += n;
	if (s->agent != NULL)
		kvr_agent_kv_removed(s->agent, 0, &kv);
}

static void on_cleared(void *user)
{
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *r, void *user)
{
	return 1;
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Asleep, not turning: the time of the thread is that of its work. */
static void wait_for_router(struct kvr_agent *a)
{
	struct pollfd p = {.fd = kvr_agent_fd(a), .events = POLLIN};
	const int ms = kvr_agent_timeout_ms(a);

	poll(&p, 1, ms < 0 || ms > 10 ? 10 : ms);
	kvr_agent_process(a);
}

static void keep_up(struct sums *s)
{
	if (s->agent == NULL)
		return;
	kvr_agent_process(s->agent);
	while (s->blocks - atomic_load_explicit(&router_blocks, memory_order_relaxed) > WAITING)
		wait_for_router(s->agent);
}

/* One pass over all batches. @return blocks decoded. */
static uint64_t pass(struct kvr_kvev_decoder *d, struct kvr_kvmap *map, struct sums *s)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < n_payloads; i++) {
		struct kvr_kvev_batch batch;
		struct kvr_kvev ev;

		if (kvr_kvev_open(d, payloads[i].p, payloads[i].len, &batch) < 0)
			abort();
		while (kvr_kvev_next(d, &ev) > 0) {
			blocks += ev.n_hashes;
			if (map != NULL)
				kvr_kvmap_apply(map, &ev);
		}
		if (i % TURN == TURN - 1 || i + 1 == n_payloads)
			keep_up(s);
	}
	return blocks;
}

static struct kvr_agent *join(void)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch};
	struct kvr_udp_addr at;
	struct kvr_agent *a;
	char text[32];

	kvr_udp_local(&router, &at);
	snprintf(text, sizeof(text), "127.0.0.1:%u", at.port);
	a = kvr_agent_create(
		&(struct kvr_agent_conf){.router = text,
					 .bind = "127.0.0.1",
					 .worker = 1,
					 .pool = "p",
					 .block_size = BLOCK,
					 .frame_bytes = 8952,
					 .kv_ring_bytes = 16u << 20, /* as kvroute-agent */
					 .ops = &ops});
	if (a == NULL)
		abort();
	return a;
}

/* @return 0 when every sum is what it must be. */
static int measure(const char *name, const char *what, bool table, bool told, double seconds)
{
	struct sums s = {.agent = told ? join() : NULL};
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, &s};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvmap *map = table ? kvr_kvmap_create(BLOCK, 2 * blocks_in_all, 3, &out) : NULL;
	uint64_t blocks = 0, passes = 0, overruns = 0;
	struct kvr_agent_stats st;
	pthread_t thread;
	double begin, took, busy;
	int bad;

	atomic_store(&router_blocks, 0);
	atomic_store(&router_stop, false);
	router_stored = router_removed = 0;
	if (told)
		pthread_create(&thread, NULL, router_main, NULL);
	pass(d, map, &s); /* warm */
	s.stored = s.removed = 0;
	busy = now(CLOCK_THREAD_CPUTIME_ID);
	begin = now(CLOCK_MONOTONIC);
	do {
		blocks += pass(d, map, &s);
		passes++;
	} while (now(CLOCK_MONOTONIC) - begin < seconds);
	while (told && atomic_load(&router_blocks) < s.blocks)
		wait_for_router(s.agent);
	took = now(CLOCK_MONOTONIC) - begin;
	busy = now(CLOCK_THREAD_CPUTIME_ID) - busy;
	bad = table && (s.stored != passes * expected || s.removed != passes * expected);
	if (told) {
		atomic_store(&router_stop, true);
		pthread_join(thread, NULL);
		kvr_agent_stats_get(s.agent, &st);
		overruns = st.kv_overruns;
		bad |= router_stored != (passes + 1) * expected ||
		       router_removed != (passes + 1) * expected || overruns > 0;
	}
	printf("{\"case\": \"%s\", \"work\": \"%s\", \"events_per_cpu_s\": %.0f, "
	       "\"blocks_per_cpu_s\": %.0f, \"events_per_s\": %.0f, \"cpu_share\": %.2f, "
	       "\"checksum\": \"%016" PRIx64 "\", \"right\": %s}\n",
	       name, what, (double)(passes * events_in_all) / busy, (double)blocks / busy,
	       (double)(passes * events_in_all) / took, busy / took, expected,
	       bad ? "false" : "true");
	fflush(stdout);
	kvr_agent_destroy(s.agent);
	kvr_kvmap_destroy(map);
	kvr_kvev_destroy(d);
	return bad;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint32_t blocks, batch, len;
	} cases[] = {{"one block", 1, 32, 64}, {"128 blocks", 128, 8, 512}};
	static const char *const work[] = {"decode", "decode, translate",
					   "decode, translate, tell"};
	const double seconds = argc > 1 ? atof(argv[1]) : 2;
	const int only = argc > 2 ? atoi(argv[2]) : 0; /* the number of a row, to profile it */
	int bad = 0;

	if (kvr_udp_open(&router, "127.0.0.1") < 0)
		return 1;
	for (unsigned int i = 0; i < 2; i++) {
		n_payloads = events_in_all = 0;
		expected = 0;
		make(cases[i].blocks, cases[i].batch, cases[i].len);
		for (int k = 0; k < 3; k++)
			if (only == 0 || only == 1 + 3 * (int)i + k)
				bad |= measure(cases[i].name, work[k], k > 0, k > 1, seconds);
		for (uint32_t k = 0; k < n_payloads; k++)
			free(payloads[k].p);
		free(payloads);
	}
	kvr_udp_close(&router);
	return bad;
}
