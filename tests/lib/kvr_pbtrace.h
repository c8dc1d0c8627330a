/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PBTRACE_H
#define KVR_PBTRACE_H

/**
 * @file
 * Replay of a request trace (one JSON object per line with "hash_ids", one id per 512 tokens)
 * through workers with an LRU cache of 16,384 blocks of 16 tokens. Produces the resulting queries
 * and events in order, as the reference replay of kvr_peerbench.h defines them.
 */

#include "kvr_peerbench.h"

#define PBT_LRU	 16384u
#define PBT_SUB	 32u
#define PBT_MAP	 65536u
#define PBT_NONE UINT32_MAX

/** One row: a query, followed by an optional Removed and an optional Stored event. */
struct pbt_row {
	uint64_t *sh;
	uint32_t n, worker;
	struct kvr_prefix_event ev[2];
	uint32_t nev;
};

struct pbt {
	struct pbt_row *row;
	uint32_t nrow;
	uint64_t queried, stored, removed;
};

struct pbt_lru;

/** Called for each row with the LRUs of all workers, before and after its events are computed. */
struct pbt_hooks {
	void (*before)(void *ctx, const struct pbt_row *r, const struct pbt_lru *lru);
	void (*after)(void *ctx, const struct pbt_row *r, const struct pbt_lru *lru);
	void *ctx;
};

/* The cache of one worker: places linked from oldest to newest, and a map from SH to place. */
struct pbt_lru {
	uint64_t sh[PBT_LRU];
	uint32_t newer[PBT_LRU], older[PBT_LRU], map[PBT_MAP];
	uint32_t oldest, newest, n, free;
};

static inline uint32_t pbt_find(const struct pbt_lru *l, uint64_t sh)
{
	uint32_t i = (uint32_t)kvr_mix64(sh) % PBT_MAP;

	while (l->map[i] != PBT_NONE && l->sh[l->map[i]] != sh)
		i = (i + 1) % PBT_MAP;
	return i;
}

static inline void pbt_unlink(struct pbt_lru *l, uint32_t s)
{
	*(l->older[s] == PBT_NONE ? &l->oldest : &l->newer[l->older[s]]) = l->newer[s];
	*(l->newer[s] == PBT_NONE ? &l->newest : &l->older[l->newer[s]]) = l->older[s];
}

static inline void pbt_link(struct pbt_lru *l, uint32_t s)
{
	l->older[s] = l->newest;
	l->newer[s] = PBT_NONE;
	*(l->newest == PBT_NONE ? &l->oldest : &l->newer[l->newest]) = s;
	l->newest = s;
}

/** Make the block the newest, whether it is resident or not. */
static inline void pbt_touch(struct pbt_lru *l, uint64_t sh)
{
	uint32_t i = pbt_find(l, sh), s = l->map[i];

	if (s != PBT_NONE) {
		pbt_unlink(l, s);
	} else {
		s = l->free;
		l->free = l->newer[s];
		l->map[i] = s;
		l->sh[s] = sh;
		l->n++;
	}
	pbt_link(l, s);
}

static inline uint64_t pbt_evict(struct pbt_lru *l)
{
	uint32_t s = l->oldest, hole = pbt_find(l, l->sh[s]);

	pbt_unlink(l, s);
	for (uint32_t i = (hole + 1) % PBT_MAP; l->map[i] != PBT_NONE; i = (i + 1) % PBT_MAP) {
		uint32_t home = (uint32_t)kvr_mix64(l->sh[l->map[i]]) % PBT_MAP;

		if ((i - home) % PBT_MAP >= (i - hole) % PBT_MAP) {
			l->map[hole] = l->map[i];
			hole = i;
		}
	}
	l->map[hole] = PBT_NONE;
	l->newer[s] = l->free;
	l->free = s;
	l->n--;
	return l->sh[s];
}

static inline struct pbt_lru *pbt_workers(uint32_t w)
{
	struct pbt_lru *l = pb_alloc(w * sizeof(*l));

	for (uint32_t i = 0; i < w; i++) {
		memset(l[i].map, 0xff, sizeof(l[i].map));
		for (uint32_t s = 0; s < PBT_LRU; s++)
			l[i].newer[s] = s + 1;
		l[i].oldest = l[i].newest = PBT_NONE;
		l[i].n = l[i].free = 0;
	}
	return l;
}

static inline void pbt_play(struct pbt *t, struct pbt_row *r, struct pbt_lru *l)
{
	uint32_t n = r->n < PBT_LRU ? r->n : PBT_LRU, p = 0, out;

	while (p < n && l->map[pbt_find(l, r->sh[p])] != PBT_NONE)
		p++;
	for (uint32_t i = p; i-- > 0;)
		pbt_touch(l, r->sh[i]);
	out = l->n + n - p > PBT_LRU ? l->n + n - p - PBT_LRU : 0;
	if (out > 0) {
		uint64_t *gone = pb_alloc(out * 8ull);

		for (uint32_t i = 0; i < out; i++)
			gone[i] = pbt_evict(l);
		r->ev[r->nev++] = (struct kvr_prefix_event){
			.op = KVR_PREFIX_REMOVE, .rank = (uint16_t)r->worker, .n = out, .sh = gone};
	}
	if (n > p)
		r->ev[r->nev++] = (struct kvr_prefix_event){.op = KVR_PREFIX_STORE,
							    .rank = (uint16_t)r->worker,
							    .n = n - p,
							    .has_parent = p > 0,
							    .parent = p > 0 ? r->sh[p - 1] : 0,
							    .sh = &r->sh[p]};
	for (uint32_t i = n; i-- > 0;)
		pbt_touch(l, r->sh[i]);
	t->queried += r->n;
	t->removed += out;
	t->stored += n - p;
}

/** Convert the ids of one line to a chain of sequence hashes. @return their number; 0: none. */
static inline uint32_t pbt_line(char *line, uint64_t **sh)
{
	char *s = strstr(line, "\"hash_ids\""), *end;
	uint32_t n = 0, cap = 0;
	uint64_t *v = NULL, last = 0;

	s = s ? strchr(s, '[') : NULL;
	while (s != NULL && *s != ']' && *s != '\0') {
		uint64_t id = strtoull(s + 1, &end, 10);
		struct kvr_rand r = pb_stream(8, id);

		if (end == s + 1)
			break;
		if (n + PBT_SUB > cap) {
			cap = cap * 2 + 1024;
			v = realloc(v, cap * sizeof(*v));
		}
		for (uint32_t i = 0; v != NULL && i < PBT_SUB; i++) {
			uint64_t x = kvr_rand_u64(&r);

			v[n] = last = n ? pb_chain(last, x) : x;
			n++;
		}
		s = strpbrk(end, ",]");
	}
	*sh = v;
	return n;
}

/** Load `file` for `w` workers; hooks may be empty. @return false if the file cannot be read. */
static inline bool pbt_load(struct pbt *t, const char *file, uint32_t w, struct pbt_hooks h)
{
	FILE *f = fopen(file, "r");
	struct pbt_lru *l;
	char *line = NULL;
	size_t size = 0;
	uint32_t cap = 0;

	memset(t, 0, sizeof(*t));
	if (f == NULL)
		return false;
	l = pbt_workers(w);
	while (getline(&line, &size, f) > 0) {
		struct pbt_row r = {.worker = pb_worker(t->nrow, w)};

		r.n = pbt_line(line, &r.sh);
		if (t->nrow == cap) {
			cap = cap * 2 + 4096;
			t->row = realloc(t->row, cap * sizeof(*t->row));
			if (t->row == NULL)
				exit(1);
		}
		if (h.before != NULL)
			h.before(h.ctx, &r, l);
		pbt_play(t, &r, &l[r.worker]);
		if (h.after != NULL)
			h.after(h.ctx, &r, l);
		t->row[t->nrow++] = r;
	}
	free(line);
	free(l);
	fclose(f);
	return t->nrow > 0;
}

static inline void pbt_free(struct pbt *t)
{
	for (uint32_t i = 0; i < t->nrow; i++) {
		for (uint32_t k = 0; k < t->row[i].nev; k++) {
			if (t->row[i].ev[k].op == KVR_PREFIX_REMOVE)
				free((void *)(uintptr_t)t->row[i].ev[k].sh);
		}
		free(t->row[i].sh);
	}
	free(t->row);
}

#endif
