/* SPDX-License-Identifier: BSD-3-Clause */
#include "arrivals.h"

#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_hash(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
	const struct cluster_req *x = a, *y = b;

	return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->sh < y->sh ? -1 : x->sh > y->sh);
}

/* Sort the rows by time and count their blocks. */
static void sort_requests(struct work *w)
{
	size_t n = 0;
	uint64_t *all;

	qsort(w->req, w->n, sizeof(*w->req), by_time);
	w->at = cluster_alloc(w->n, sizeof(*w->at));
	for (uint32_t i = 0; i < w->n; i++) {
		w->at[i] = w->req[i].at;
		w->longest = w->req[i].n > w->longest ? w->req[i].n : w->longest;
		n += w->req[i].n;
	}
	all = cluster_alloc(n, 8);
	n = 0;
	for (uint32_t i = 0; i < w->n; i++) {
		memcpy(all + n, w->req[i].sh, w->req[i].n * 8ul);
		n += w->req[i].n;
	}
	qsort(all, n, 8, by_hash);
	for (size_t i = 0; i < n; i++)
		w->unique += i == 0 || all[i] != all[i - 1];
	free(all);
}

void work_trace(struct work *w, const char *path, uint32_t ranks)
{
	struct load_trace t = {0};
	char err[256];

	if (load_trace_read(&t, path, 0, err, sizeof(err)) < 0) {
		fprintf(stderr, "cluster: %s: %s\n", path, err);
		exit(1);
	}
	work_copies(w, &t, ranks > 8 ? ranks / 8 : 1);
	load_trace_free(&t);
}

void work_copies(struct work *w, const struct load_trace *of, uint32_t copies)
{
	const struct load_trace t = *of;

	w->req = cluster_alloc(t.n_rows * copies, sizeof(*w->req));
	w->sh = cluster_alloc(t.n_ids * copies, 8);
	for (uint32_t c = 0; c < copies; c++) {
		const double shift = t.length_ms / (double)t.n_rows * c / copies;
		uint64_t *sh = w->sh + t.n_ids * c;

		for (size_t i = 0; i < t.n_ids; i++)
			sh[i] = kvr_mix64(t.ids[i] + 1 + (t.max_id + 1) * c);
		for (size_t i = 0; i < t.n_rows; i++) {
			const struct load_trace_row *r = &t.rows[i];

			w->req[w->n++] =
				(struct cluster_req){.at = (uint64_t)((r->at_ms + shift) * 1e6),
						     .sh = sh + r->first_id,
						     .isl = r->isl,
						     .osl = r->osl > 0 ? r->osl : 1,
						     .n = r->isl / CLUSTER_BLOCK};
		}
	}
	sort_requests(w);
}

/* ---- generated workloads ---------------------------------------------------------------- */

#define SESSIONS 60u /* for 8 ranks */
#define TURNS	 20u
#define LENGTH_S 600.0
#define BURSTS	 20u
#define BURST	 50u
#define ROOM	 128u /* blocks of the longest prompt */
#define SYSTEM	 8u   /* blocks of a system prompt */
#define SYSTEMS	 64u  /* system prompts, shared by sessions */

struct maker {
	struct work *w;
	struct kvr_rand r;
	uint64_t fresh;
	uint32_t room;
};

static double draw_between(struct maker *m, double low, double high)
{
	return low + (high - low) * kvr_rand_unit(&m->r);
}

/* A request with the first n blocks of sh, then new blocks up to `blocks`. */
static uint64_t *add_request(struct maker *m, double at_s, const uint64_t *sh, uint32_t n,
			     uint32_t blocks, uint32_t tenant)
{
	struct work *w = m->w;
	uint64_t *out = w->sh + (size_t)w->n * ROOM;

	if (w->n == m->room || blocks > ROOM)
		exit(1);
	memcpy(out, sh, n * 8ul);
	for (uint32_t i = n; i < blocks; i++)
		out[i] = kvr_mix64(++m->fresh);
	w->req[w->n++] = (struct cluster_req){.at = (uint64_t)(at_s * 1e9),
					      .sh = out,
					      .isl = blocks * CLUSTER_BLOCK + 1 +
						     kvr_rand_below(&m->r, CLUSTER_BLOCK - 1),
					      .osl = 50 + kvr_rand_below(&m->r, 300),
					      .n = blocks,
					      .tenant = tenant};
	return out;
}

static void add_session(struct maker *m, const uint64_t *system)
{
	double at = draw_between(m, 0, LENGTH_S - TURNS * 15);
	const uint64_t *sh = system;
	uint32_t n = 8;

	for (uint32_t i = 0; i < TURNS; i++) {
		const uint32_t more = 1 + kvr_rand_below(&m->r, 4);

		sh = add_request(m, at, sh, n, n + more, 0);
		n += more;
		at += draw_between(m, 1, 30);
	}
}

static void add_agents(struct maker *m, uint32_t ranks)
{
	static uint64_t system[8][8], frame[16];
	const uint32_t scale = ranks > 8 ? ranks / 8 : 1;

	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t k = 0; k < 8; k++)
			system[i][k] = kvr_mix64(++m->fresh);
	for (uint32_t i = 0; i < SESSIONS * scale; i++)
		add_session(m, system[i % 8]);
	for (uint32_t b = 0; b < BURSTS * scale; b++) {
		const double at = draw_between(m, 0, LENGTH_S);

		for (uint32_t k = 0; k < 16; k++)
			frame[k] = kvr_mix64(++m->fresh);
		for (uint32_t i = 0; i < BURST; i++)
			add_request(m, at + draw_between(m, 0, 0.1), frame, 16, 17, 0);
	}
}

static void reserve_requests(struct maker *m, struct work *w, uint32_t n, uint64_t seed)
{
	*m = (struct maker){.w = w, .room = n, .fresh = 1};
	kvr_rand_init(&m->r, seed);
	w->req = cluster_alloc(n, sizeof(*w->req));
	w->sh = cluster_alloc((size_t)n * ROOM, 8);
}

void work_agents(struct work *w, uint32_t ranks, uint64_t seed)
{
	const uint32_t scale = ranks > 8 ? ranks / 8 : 1;
	struct maker m;

	reserve_requests(&m, w, scale * (SESSIONS * TURNS + BURSTS * BURST), seed);
	add_agents(&m, ranks);
	sort_requests(w);
}

void work_flood(struct work *w, uint32_t ranks, uint64_t seed)
{
	const uint32_t scale = ranks > 8 ? ranks / 8 : 1;
	const uint32_t n = scale * (SESSIONS * TURNS + BURSTS * BURST);
	struct maker m;

	reserve_requests(&m, w, 11 * n, seed);
	add_agents(&m, ranks);
	for (uint32_t i = 0; i < 10 * n; i++)
		add_request(&m, draw_between(&m, 0, LENGTH_S), NULL, 0, 2 + kvr_rand_below(&m.r, 6),
			    1);
	w->tenants = true;
	sort_requests(w);
}

/* The prompts of a session are one array; each turn uses a longer part of it. */
void work_sessions(struct work *w, uint32_t sessions, uint32_t turns, uint64_t seed)
{
	const uint32_t room = SYSTEM + 4 * turns;
	struct maker m = {.w = w, .fresh = 1};

	kvr_rand_init(&m.r, seed);
	w->req = cluster_alloc((size_t)sessions * turns, sizeof(*w->req));
	w->sh = cluster_alloc((size_t)sessions * room, 8);
	for (uint32_t i = 0; i < sessions; i++) {
		uint64_t *sh = w->sh + (size_t)i * room;
		double at = draw_between(&m, 0, LENGTH_S);
		uint32_t n = SYSTEM;

		for (uint32_t k = 0; k < SYSTEM; k++)
			sh[k] = kvr_mix64(UINT64_C(1) << 60 | (i % SYSTEMS) << 8 | k);
		for (uint32_t k = SYSTEM; k < room; k++)
			sh[k] = kvr_mix64(++m.fresh);
		for (uint32_t k = 0; k < turns; k++, at += draw_between(&m, 1, 30)) {
			n += 1 + kvr_rand_below(&m.r, 4);
			w->req[w->n++] =
				(struct cluster_req){.at = (uint64_t)(at * 1e9),
						     .sh = sh,
						     .isl = n * CLUSTER_BLOCK + 1 +
							    kvr_rand_below(&m.r, CLUSTER_BLOCK - 1),
						     .osl = 50 + kvr_rand_below(&m.r, 300),
						     .n = n};
		}
	}
	sort_requests(w);
}

/* ---- runs ---- */

void work_run(struct work *w, const struct cluster_conf *conf, double stretch)
{
	struct cluster *cluster;

	for (uint32_t i = 0; i < w->n; i++)
		w->req[i].at = (uint64_t)((double)w->at[i] * stretch);
	cluster = cluster_create(conf, w->req, w->n);
	cluster_run(cluster);
	cluster_destroy(cluster);
}

double work_prefill_share(const struct work *w, uint32_t ranks)
{
	const double ns = cluster_speed(CLUSTER_FCFS)->prefill; /* equal in both kinds of engine */
	const uint32_t from = w->n / 10;
	double tokens = 0;

	for (uint32_t i = from; i < w->n; i++)
		tokens += w->req[i].isl - w->req[i].cached;
	return tokens * ns / (double)(w->req[w->n - 1].at - w->req[from].at) / ranks;
}
