/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers and their ranks: configuration, dense indices, taints, availability. */
#include "sched_pvt.h"

#include <errno.h>

/* ---- taints ------------------------------------------------------------------------------ */

static uint64_t *taint_set(const struct kvr_sched *s, uint32_t t)
{
	return s->taint_set + (size_t)t * (s->max_ranks / 64);
}

static void taints_clear(struct kvr_sched *s, uint32_t rank)
{
	for (uint32_t t = 0; t < s->n_taints; t++)
		bit_put(taint_set(s, t), rank, false);
}

/* An entry without ranks may be renamed: requests name taints by text. */
static uint32_t taint_new(struct kvr_sched *s, const struct kvr_str *name)
{
	uint32_t t;

	for (t = 0; t < s->n_taints && any_bit(taint_set(s, t), s->max_ranks / 64); t++)
		;
	if (t == s->conf.max_taints)
		return NIL;
	if (t == s->n_taints)
		s->n_taints++;
	memcpy(s->taint[t], name->p, name->len);
	s->taint_len[t] = name->len;
	return t;
}

/* Check whether all taints of w fit; old taints of w that no other worker has count as free. */
static int taints_fit(const struct kvr_sched *s, const struct kvr_sched_worker *w)
{
	uint32_t need = 0, room = s->conf.max_taints - s->n_taints;

	for (uint32_t i = 0; i < w->n_taints; i++) {
		bool twice = false;

		if (w->taints[i].len >= TAINT_MAX)
			return -EINVAL;
		for (uint32_t j = 0; j < i && !twice; j++)
			twice = w->taints[j].len == w->taints[i].len &&
				memcmp(w->taints[j].p, w->taints[i].p, w->taints[i].len) == 0;
		if (!twice && kvr_sched__taint(s, &w->taints[i]) == NIL)
			need++;
	}
	for (uint32_t t = 0; t < s->n_taints && room < need; t++)
		room += !any_bit(taint_set(s, t), s->max_ranks / 64);
	return need <= room ? 0 : -ENOSPC;
}

static void taints_put(struct kvr_sched *s, const struct worker *e,
		       const struct kvr_sched_worker *w)
{
	for (uint32_t i = 0; i < e->dp_size; i++)
		taints_clear(s, s->order[e->at + i]);
	for (uint32_t t = 0; t < w->n_taints; t++) {
		uint32_t at = kvr_sched__taint(s, &w->taints[t]);

		if (at == NIL)
			at = taint_new(s, &w->taints[t]);
		for (uint32_t i = 0; i < e->dp_size; i++)
			bit_put(taint_set(s, at), s->order[e->at + i], true);
	}
}

/* ---- ranks ------------------------------------------------------------------------------- */

static bool first_slot(const struct kvr_sched *s, uint32_t r, uint32_t *slot)
{
	const struct rank *rank = &s->rank[r];

	*slot = rank->bk_head != NIL ? rank->bk_head : rank->rel_head;
	return *slot != NIL;
}

/* End up to n bookings of the rank, released ones included. @return the unused part of n. */
static uint32_t rank_drop(struct kvr_sched *s, uint32_t r, uint32_t n, uint64_t now)
{
	uint32_t slot;

	for (; n > 0 && first_slot(s, r, &slot); n--) {
		if (s->slot[slot].state == KVR_SLOT_RELEASED)
			kvr_sched__released_end(s, slot);
		else
			kvr_sched__unbook(s, slot, now, &s->cnt.dropped);
		if (s->ops.dropped != NULL)
			s->ops.dropped(s->ops.arg, slot, r);
	}
	return n;
}

static void rank_remove(struct kvr_sched *s, uint32_t r, uint64_t now)
{
	struct rank *rank = &s->rank[r];
	uint64_t id = s->worker[rank->worker].id;
	uint32_t dp = rank->dp_rank, gen = rank->gen + 1;

	rank_drop(s, r, UINT32_MAX, now);
	while (kvr_sched__lane_lost(s, r, UINT32_MAX) == 0)
		;
	taints_clear(s, r);
	bit_put(s->used, r, false);
	bit_put(s->open, r, false);
	bit_put(s->over, r, false);
	bit_put(s->due, r, false);
	bit_put(s->silent, r, false);
	kvr_sched__fail_forget(s, r);
	*rank = (struct rank){.worker = NIL,
			      .gen = gen,
			      .pf_head = NIL,
			      .pf_tail = NIL,
			      .bk_head = NIL,
			      .bk_tail = NIL,
			      .rel_head = NIL};
	s->n_ranks--;
	if (s->ops.rank_removed != NULL)
		s->ops.rank_removed(s->ops.arg, r, id, dp);
}

static uint32_t rank_add(struct kvr_sched *s, uint32_t worker, uint32_t dp)
{
	uint32_t r, word = 0;

	while (s->used[word] == UINT64_MAX)
		word++;
	r = word * 64 + (uint32_t)__builtin_ctzll(~s->used[word]);
	bit_put(s->used, r, true);
	s->rank[r].worker = worker;
	s->rank[r].dp_rank = dp;
	s->n_ranks++;
	if (s->ops.rank_added != NULL)
		s->ops.rank_added(s->ops.arg, r, s->worker[worker].id, dp);
	return r;
}

static uint32_t ranks_free(const struct kvr_sched *s)
{
	uint32_t taken = 0;

	for (uint32_t w = 0; w < s->max_ranks / 64; w++)
		taken += (uint32_t)__builtin_popcountll(s->used[w]);
	return taken < s->conf.max_ranks ? s->conf.max_ranks - taken : 0;
}

/* Order the ranks of all workers by (worker, dp_rank); those of `worker` come from s->mine. */
static void reorder_ranks(struct kvr_sched *s, uint32_t worker)
{
	uint32_t *old = s->order, n = 0;

	for (uint32_t i = 0; i < s->n_workers; i++) {
		struct worker *w = &s->worker[s->sorted[i]];
		const uint32_t *from = s->sorted[i] == worker ? s->mine : old + w->at;

		memcpy(s->order_next + n, from, w->dp_size * sizeof(uint32_t));
		w->at = n;
		n += w->dp_size;
	}
	s->order = s->order_next;
	s->order_next = old;
	for (uint32_t i = 0; i < n; i++)
		s->place[s->order[i]] = i;
}

static void open_put(struct kvr_sched *s, const struct worker *w)
{
	for (uint32_t i = 0; i < w->dp_size; i++) {
		bit_put(s->open, s->order[w->at + i], w->available && !w->draining);
		bit_put(s->due, s->order[w->at + i], w->between_epochs);
	}
}

/* Reset the state of the ranks of a worker for its new incarnation. */
static void reports_forget(struct kvr_sched *s, const struct worker *w)
{
	for (uint32_t i = 0; i < w->dp_size; i++) {
		struct rank *r = &s->rank[s->order[w->at + i]];

		r->reported = r->kv_reported = r->over = false;
		r->gen++; /* overlaps stored by waiting requests are stale */
	}
}

static void judge_all(struct kvr_sched *s, struct worker *w)
{
	for (uint32_t i = 0; i < w->dp_size; i++)
		kvr_sched__judge(s, s->order[w->at + i]);
	for (uint32_t i = 0; i < w->dp_size; i++)
		bit_put(s->over, s->order[w->at + i], w->n_over == w->dp_size);
}

/* ---- workers ----------------------------------------------------------------------------- */

static int check_fit(const struct kvr_sched *s, const struct kvr_sched_worker *w, uint32_t at)
{
	uint32_t stay = 0, old = 0;
	uint64_t lo, hi;
	int rc;

	if (w->dp_size == 0 || (uint64_t)w->dp_start + w->dp_size > UINT64_C(1) << 32)
		return -EINVAL;
	rc = taints_fit(s, w);
	if (rc != 0)
		return rc;
	if (at == NIL) {
		if (s->n_workers == s->conf.max_workers)
			return -ENOSPC;
	} else {
		const struct worker *e = &s->worker[at];

		lo = e->dp_start > w->dp_start ? e->dp_start : w->dp_start;
		hi = (uint64_t)e->dp_start + e->dp_size;
		if (hi > (uint64_t)w->dp_start + w->dp_size)
			hi = (uint64_t)w->dp_start + w->dp_size;
		stay = hi > lo ? (uint32_t)(hi - lo) : 0;
		old = e->dp_size;
	}
	return w->dp_size - stay <= (uint64_t)ranks_free(s) + (old - stay) ? 0 : -ENOSPC;
}

static uint32_t worker_new(struct kvr_sched *s, uint64_t id)
{
	uint32_t at = kvr_sched__place(s, id), e = 0;

	while (s->worker[e].dp_size != 0)
		e++;
	memmove(s->sorted + at + 1, s->sorted + at, (s->n_workers - at) * sizeof(uint32_t));
	s->sorted[at] = e;
	s->n_workers++;
	s->worker[e] = (struct worker){.id = id, .available = true};
	return e;
}

int kvr_sched_worker_set(struct kvr_sched *s, const struct kvr_sched_worker *w, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, w->id), old_start, old_size, old_at;
	int rc = check_fit(s, w, at);
	struct worker *e;

	if (rc != 0)
		return rc;
	if (at == NIL)
		at = worker_new(s, w->id);
	e = &s->worker[at];
	old_start = e->dp_start;
	old_size = e->dp_size;
	old_at = e->at;
	for (uint32_t i = 0; i < old_size; i++)
		if (old_start + i < w->dp_start || old_start + i - w->dp_start >= w->dp_size)
			rank_remove(s, s->order[old_at + i], now);
	for (uint32_t i = 0; i < w->dp_size; i++) {
		uint32_t dp = w->dp_start + i;

		s->mine[i] = dp >= old_start && dp - old_start < old_size
				     ? s->order[old_at + dp - old_start]
				     : rank_add(s, at, dp);
	}
	e->dp_start = w->dp_start;
	e->dp_size = w->dp_size;
	e->cpu = w->cpu;
	e->total_kv_blocks = w->total_kv_blocks;
	e->max_batched = w->max_num_batched_tokens;
	reorder_ranks(s, at);
	taints_put(s, e, w);
	if (e->between_epochs)
		reports_forget(s, e);
	e->n_over = 0;
	for (uint32_t i = 0; i < e->dp_size; i++)
		e->n_over += s->rank[s->order[e->at + i]].over;
	open_put(s, e);
	judge_all(s, e);
	kvr_sched__limits(s);
	kvr_sched__ready(s);
	s->changed = true;
	return 0;
}

uint32_t kvr_sched_worker_drop(struct kvr_sched *s, uint64_t id, uint32_t n, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, id);

	if (at == NIL)
		return 0;
	for (uint32_t i = 0; i < s->worker[at].dp_size && n > 0; i++)
		n = rank_drop(s, s->order[s->worker[at].at + i], n, now);
	return s->worker[at].slots;
}

bool kvr_sched_worker_unpin(struct kvr_sched *s, uint64_t id, uint32_t dp_start, uint32_t dp_size,
			    uint32_t n)
{
	uint32_t at = kvr_sched__worker(s, id);
	const struct worker *w = &s->worker[at];

	for (uint32_t i = 0; at != NIL && i < w->dp_size && n > 0; i++) {
		const uint32_t dp = w->dp_start + i;

		if (dp < dp_start || dp - dp_start >= dp_size)
			n = kvr_sched__lane_lost(s, s->order[w->at + i], n);
	}
	s->changed = true; /* moved requests are due */
	return n > 0;
}

int kvr_sched_worker_gone(struct kvr_sched *s, uint64_t id, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, id), pos = kvr_sched__place(s, id);
	struct worker *e;

	if (at == NIL)
		return -ENOENT;
	e = &s->worker[at];
	kvr_sched__mark_responsive(s, e);
	for (uint32_t i = 0; i < e->dp_size; i++)
		rank_remove(s, s->order[e->at + i], now);
	e->dp_size = 0;
	s->n_workers--;
	memmove(s->sorted + pos, s->sorted + pos + 1, (s->n_workers - pos) * sizeof(uint32_t));
	reorder_ranks(s, NIL);
	kvr_sched__ready(s);
	s->changed = true;
	return 0;
}

static int reopen_ranks(struct kvr_sched *s, uint32_t at)
{
	open_put(s, &s->worker[at]);
	kvr_sched__ready(s);
	s->changed = true;
	return 0;
}

int kvr_sched_worker_drain(struct kvr_sched *s, uint64_t id, bool draining, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, id);

	if (at == NIL)
		return -ENOENT;
	s->worker[at].draining = draining;
	return reopen_ranks(s, at);
}

int kvr_sched_worker_renew(struct kvr_sched *s, uint64_t id, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, id);

	if (at == NIL)
		return -ENOENT;
	kvr_sched__mark_responsive(s, &s->worker[at]);
	for (uint32_t i = 0; i < s->worker[at].dp_size; i++)
		kvr_sched__fail_forget(s, s->order[s->worker[at].at + i]);
	s->worker[at].between_epochs = true;
	s->worker[at].available = s->worker[at].draining = false;
	return reopen_ranks(s, at);
}

int kvr_sched_worker_available(struct kvr_sched *s, uint64_t id, bool available, uint64_t now)
{
	uint32_t at = kvr_sched__worker(s, id);

	if (at == NIL)
		return -ENOENT;
	s->worker[at].available = available;
	if (available)
		s->worker[at].between_epochs = false;
	return reopen_ranks(s, at);
}

/* ---- queries ----------------------------------------------------------------------------- */

uint32_t kvr_sched_worker_ranks(const struct kvr_sched *s, uint64_t id)
{
	uint32_t at = kvr_sched__worker(s, id);

	return at == NIL ? 0 : s->worker[at].dp_size;
}

uint32_t kvr_sched_worker_bookings(const struct kvr_sched *s, uint64_t id)
{
	uint32_t at = kvr_sched__worker(s, id);

	return at == NIL ? 0 : s->worker[at].bookings;
}

uint32_t kvr_sched_n_workers(const struct kvr_sched *s)
{
	return s->n_workers;
}

uint32_t kvr_sched_n_able(const struct kvr_sched *s)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < s->max_ranks / 64; w++)
		n += (uint32_t)__builtin_popcountll(s->open[w] | s->due[w]);
	return n;
}

void kvr_sched_n_ranks(const struct kvr_sched *s, uint32_t *ranks, uint32_t *open)
{
	*ranks = s->n_ranks;
	*open = 0;
	for (uint32_t w = 0; w < s->max_ranks / 64; w++)
		*open += (uint32_t)__builtin_popcountll(s->open[w]);
}

uint32_t kvr_sched_workers(const struct kvr_sched *s, uint64_t id[], uint32_t cap)
{
	for (uint32_t i = 0; i < s->n_workers && i < cap; i++)
		id[i] = s->worker[s->sorted[i]].id;
	return s->n_workers;
}

uint32_t kvr_sched_rank_order(const struct kvr_sched *s, const uint32_t **order)
{
	*order = s->order;
	return s->n_ranks;
}

int kvr_sched_rank_get(const struct kvr_sched *s, uint32_t rank, struct kvr_sched_rank_info *out)
{
	const struct worker *w;
	const struct rank *r;

	if (rank >= s->max_ranks || s->rank[rank].worker == NIL)
		return -ENOENT;
	r = &s->rank[rank];
	w = &s->worker[r->worker];
	*out = (struct kvr_sched_rank_info){
		.worker = w->id,
		.dp_rank = r->dp_rank,
		.rank = rank,
		.in_use = true,
		.available = w->available,
		.draining = w->draining,
		.silent = w->silent,
		.overloaded = r->over,
		.worker_overloaded = test_bit(s->over, rank),
		.active_requests = s->requests[rank],
		.active_blocks = s->blocks[rank],
		.active_prefill_tokens = r->pf_tokens,
		.kv_used_blocks = r->kv_reported ? r->rep_kv : UINT64_MAX,
		.total_kv_blocks = w->total_kv_blocks,
		.max_num_batched_tokens = w->max_batched,
	};
	kvr_sched__fail_info(s, rank, out);
	return 0;
}
