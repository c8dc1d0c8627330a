/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing of one snapshot, from the first cursor to the rename: snapshot.h describes the sources of
 * the data. */
#include "control/snapshot.h"
#include "control/thread.h"
#include "sched/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvr_telemetry.h"

#define RANKS_TURN    64u
#define SESSIONS_TURN 32u
#define SLOTS_TURN    64u
#define BATCH	      256u		/* sessions or requests per call */
#define FLUSH_BYTES   ((size_t)1 << 20) /* bytes buffered before a write */

/* A worker at the begin of the snapshot. */
struct held_worker {
	struct kvr_snap_worker w;
	uint32_t dense[KVR_SNAP_MAX_RANKS];
	struct kvr_snap_rank rank[KVR_SNAP_MAX_RANKS];
	uint64_t dumps[KVR_SNAP_MAX_RANKS]; /* by rank */
};

/* A piece whose owners are being collected: the walk names them one after the other. */
struct open_piece {
	struct kvr_snap_piece p;
	uint64_t sh[KVR_SNAP_MAX_PIECE];
	struct kvr_snap_owner owner[KVR_SNAP_MAX_OWNERS];
};

struct held_session {
	struct kvr_snap_session s;
	char id[KVR_SNAP_MAX_ID];
};

struct writing {
	struct router *rt;
	struct kvr_snap_writer *w;
	struct snapshot_stat stat;
	struct held_worker *worker;
	uint32_t n_workers;
	/* arguments of a call */
	struct pool *pool;
	uint32_t at, rank_at; /* next worker and rank, entry, or slot */
	bool again;	      /* of cursors: second pass after the blocks */
	uint32_t n;
	uint64_t next_flush;
	struct open_piece piece;
	union {
		struct held_session session[BATCH];
		struct kvr_snap_live live[BATCH];
	} batch;
};

static bool given_up(const struct writing *x)
{
	return atomic_load_explicit(&x->rt->snapshot->quit, memory_order_relaxed) != 0;
}

/* Run a function on a packet lcore. The lock is held while the call is queued, not while it runs.
 */
static void call_it(struct writing *x, struct lcore *lc, bool (*fn)(struct lcore *lc, void *arg))
{
	struct call c = {.fn = fn, .arg = x};

	kvr_telemetry_lock();
	call_start(x->rt, lc, &c);
	kvr_telemetry_unlock();
	call_wait(x->rt, &c);
}

/* ---- workers and their cursors, before and after the blocks ---- */

static int gather_workers(struct writing *x)
{
	struct kvr_registry *r = x->rt->registry;
	uint32_t n;

	kvr_telemetry_lock();
	n = kvr_registry_count(r);
	x->worker = calloc((size_t)n + 1, sizeof(*x->worker));
	for (uint32_t i = 0; x->worker != NULL && i < n; i++) {
		const struct kvr_worker *w = kvr_registry_at(r, i);
		struct held_worker *h = &x->worker[x->n_workers];

		if (w->state == KVR_WORKER_JOINING)
			continue;
		h->w = (struct kvr_snap_worker){w->id,	 w->hello_digest, w->epoch,
						w->pool, w->dp_start,	  w->dp_size};
		memcpy(h->dense, w->rank, w->dp_size * sizeof(w->rank[0]));
		x->n_workers++;
	}
	kvr_telemetry_unlock();
	return x->worker != NULL ? 0 : -ENOMEM;
}

/* Second pass after the blocks: a dump that began in between has cleared the rank, and the events
 * from the cursor on do not restore it. */
static void take_cursor(struct writing *x, struct held_worker *h, uint32_t i)
{
	const uint32_t dense = h->dense[i];
	const struct event_cursor *c = &x->pool->cursor[dense];
	const uint64_t dumps = kvr_cell_get(&x->pool->event_ranks[dense].v[ER_DUMPS]);
	const bool whole = c->worker == h->w.id && c->epoch == h->w.epoch && c->dumping == 0 &&
			   c->faith != CURSOR_HINT;

	if (x->again) {
		h->rank[i].whole = h->rank[i].whole != 0 && whole && dumps == h->dumps[i] &&
				   c->next >= h->rank[i].next;
		return;
	}
	h->rank[i] = (struct kvr_snap_rank){.next = c->next, .dense = dense, .whole = whole};
	h->dumps[i] = dumps;
}

static bool take_cursors(struct lcore *lc, void *arg)
{
	struct writing *x = arg;
	uint32_t left = RANKS_TURN;

	RTE_SET_USED(lc);
	for (; x->at < x->n_workers; x->at++, x->rank_at = 0) {
		struct held_worker *h = &x->worker[x->at];

		for (; h->w.pool == x->pool->number && x->rank_at < h->w.dp_size; x->rank_at++) {
			if (left-- == 0)
				return false;
			if (h->dense[x->rank_at] < x->pool->max_ranks)
				take_cursor(x, h, x->rank_at);
		}
	}
	return true;
}

static void look_at_cursors(struct writing *x, bool again)
{
	x->again = again;
	for (uint32_t i = 0; i < x->rt->n_pools; i++) {
		x->pool = &x->rt->pool[i];
		x->at = x->rank_at = 0;
		call_it(x, x->pool->event_lcore, take_cursors);
	}
}

/* Write the workers that are still registered; ranks of others may have new owners. */
static void put_workers(struct writing *x)
{
	kvr_telemetry_lock();
	for (uint32_t i = 0; i < x->n_workers; i++) {
		const struct held_worker *h = &x->worker[i];
		const struct kvr_worker *w = kvr_registry_find(x->rt->registry, h->w.id);

		if (w == NULL || w->epoch != h->w.epoch)
			continue;
		kvr_snap_put(x->w, KVR_SNAP_WORKER, &h->w, sizeof(h->w), h->rank,
			     h->w.dp_size * sizeof(h->rank[0]));
		x->stat.workers++;
	}
	kvr_telemetry_unlock();
}

/* ---- blocks ---- */

static void put_piece(struct writing *x)
{
	struct open_piece *o = &x->piece;
	const size_t hashes = o->p.n * sizeof(o->sh[0]);
	const size_t owners = o->p.n_owners * sizeof(o->owner[0]);
	uint8_t more[sizeof(o->sh) + sizeof(o->owner)];

	if (o->p.n_owners == 0)
		return;
	memcpy(more, o->sh, hashes);
	memcpy(more + hashes, o->owner, owners);
	kvr_snap_put(x->w, KVR_SNAP_PIECE, &o->p, sizeof(o->p), more, hashes + owners);
	x->stat.runs++;
	x->stat.blocks += o->p.tier == KVR_TIER_DEVICE ? o->p.n : 0;
	o->p = (struct kvr_snap_piece){0};
}

static bool on_piece(void *ctx, const struct kvr_prefix_piece *d)
{
	struct writing *x = ctx;
	struct open_piece *o = &x->piece;

	if (o->p.n_owners != 0 && (o->p.tier != d->tier || o->p.n_owners == KVR_SNAP_MAX_OWNERS))
		put_piece(x);
	if (o->p.n_owners == 0)
		o->p = (struct kvr_snap_piece){.pool = (uint16_t)x->pool->number,
					       .tier = d->tier,
					       .has_parent = d->has_parent,
					       .parent = d->parent};
	if (d->n > o->p.n) {
		memcpy(o->sh + o->p.n, d->sh + o->p.n, (d->n - o->p.n) * sizeof(o->sh[0]));
		o->p.n = (uint16_t)d->n;
	}
	o->owner[o->p.n_owners++] = (struct kvr_snap_owner){d->rank, (uint16_t)d->n};
	return true;
}

/* Between two runs all owners of a run are known, and writing may block. */
static bool on_rest(void *ctx)
{
	struct writing *x = ctx;
	const unsigned int id = x->rt->conf.n_lcores;
	int rc = 0;

	put_piece(x);
	if (given_up(x))
		return false;
	if (kvr_snap_pending(x->w) < FLUSH_BYTES)
		return true;
	rte_rcu_qsbr_thread_offline(x->rt->qsbr, id);
	rc = kvr_snap_flush(x->w);
	rte_rcu_qsbr_thread_online(x->rt->qsbr, id);
	return rc == 0;
}

static int put_blocks(struct writing *x)
{
	const unsigned int id = x->rt->conf.n_lcores;
	int rc;

	rte_rcu_qsbr_thread_register(x->rt->qsbr, id);
	rte_rcu_qsbr_thread_online(x->rt->qsbr, id);
	rc = kvr_prefix_dump(x->pool->prefix, id, on_piece, on_rest, x);
	rte_rcu_qsbr_thread_offline(x->rt->qsbr, id);
	rte_rcu_qsbr_thread_unregister(x->rt->qsbr, id);
	if (rc == -ECANCELED && !given_up(x))
		rc = kvr_snap_flush(x->w);
	return rc;
}

/* ---- sessions, live requests ---- */

static bool take_sessions(struct lcore *lc, void *arg)
{
	struct writing *x = arg;
	const struct kvr_session *t = x->pool->sessions->table;
	uint32_t left = SESSIONS_TURN;
	struct kvr_session_held h;

	for (; x->at < kvr_session_entries(t); x->at++) {
		struct held_session *out = &x->batch.session[x->n];

		if (x->n == BATCH)
			return true;
		if (left-- == 0)
			return false;
		if (!kvr_session_entry(t, x->at, lc->quiet.now_ns, &h))
			continue;
		out->s = (struct kvr_snap_session){.pool = (uint16_t)x->pool->number,
						   .id_len = (uint16_t)h.len,
						   .dp_rank = h.to.dp_rank,
						   .worker = h.to.worker,
						   .tag = h.to.tag,
						   .ttl_ns = h.ttl_ns,
						   .left_ns = h.left_ns};
		memcpy(out->id, h.id, h.len);
		x->n++;
	}
	return true;
}

static bool take_live(struct lcore *lc, void *arg)
{
	struct writing *x = arg;
	uint32_t left = SLOTS_TURN;

	RTE_SET_USED(lc);
	for (; x->at < kvr_flight_size(x->pool->requests); x->at++) {
		const struct kvr_flight *f = kvr_flight_slot(x->pool->requests, x->at);

		if (x->n == BATCH)
			return true;
		if (left-- == 0)
			return false;
		if (f->state != KVR_FLIGHT_LIVE || f->unnamed)
			continue;
		x->batch.live[x->n++] =
			(struct kvr_snap_live){.source = f->relay.source,
					       .id = f->relay.id,
					       .worker = f->bound ? f->relay.worker : 0,
					       .epoch = f->relay.epoch,
					       .pool = x->pool->number};
	}
	return true;
}

static int put_sessions(struct writing *x)
{
	if (x->pool->sessions == NULL)
		return 0;
	x->at = 0;
	do {
		x->n = 0;
		call_it(x, x->pool->sched_lcore, take_sessions);
		for (uint32_t i = 0; i < x->n; i++)
			kvr_snap_put(x->w, KVR_SNAP_SESSION, &x->batch.session[i].s,
				     sizeof(x->batch.session[i].s), x->batch.session[i].id,
				     x->batch.session[i].s.id_len);
		x->stat.sessions += x->n;
	} while (x->n == BATCH && !given_up(x) && kvr_snap_flush(x->w) == 0);
	return kvr_snap_flush(x->w);
}

static int put_live(struct writing *x)
{
	x->at = 0;
	do {
		x->n = 0;
		call_it(x, x->pool->sched_lcore, take_live);
		for (uint32_t i = 0; i < x->n; i++)
			kvr_snap_put(x->w, KVR_SNAP_LIVE, &x->batch.live[i],
				     sizeof(x->batch.live[i]), NULL, 0);
		x->stat.live += x->n;
	} while (x->n == BATCH && !given_up(x) && kvr_snap_flush(x->w) == 0);
	return kvr_snap_flush(x->w);
}

/* ---- all of it ---- */

static int put_all(struct writing *x)
{
	struct router *rt = x->rt;
	int rc = gather_workers(x);

	if (rc == 0)
		look_at_cursors(x, false);
	for (uint32_t i = 0; rc == 0 && i < rt->n_pools; i++) {
		x->pool = &rt->pool[i];
		if (x->pool->events_used)
			rc = put_blocks(x);
		rc = rc != 0 ? rc : put_sessions(x);
		rc = rc != 0 ? rc : put_live(x);
	}
	if (rc == 0) {
		look_at_cursors(x, true);
		put_workers(x);
	}
	return rc == 0 && given_up(x) ? -ECANCELED : rc;
}

int snapshot_write(struct router *rt)
{
	struct writing *x = calloc(1, sizeof(*x));
	struct snapshot *s = rt->snapshot;
	struct snapshot_stat *st = &s->stat;
	struct timespec now;
	int rc = -ENOMEM;

	if (x == NULL)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	x->rt = rt;
	x->stat.at_ns = now_ns(rt);
	x->w = kvr_snap_begin(
		s->path, &s->shape,
		&(const struct kvr_snap_about){.made_ms = (uint64_t)now.tv_sec * 1000 +
							  (uint64_t)now.tv_nsec / 1000000,
					       .secret = rt->client_seed,
					       .epoch = rt->epoch},
		rt->files);
	rc = x->w != NULL ? put_all(x) : -errno;
	if (rc == 0)
		rc = kvr_snap_commit(x->w, &x->stat.bytes);
	else
		kvr_snap_abort(x->w);
	kvr_telemetry_lock();
	x->stat.written = st->written + (rc == 0);
	x->stat.failed = st->failed + (rc < 0);
	x->stat.restored = st->restored;
	x->stat.others = st->others;
	x->stat.rc = rc;
	x->stat.took_ns = now_ns(rt) - x->stat.at_ns;
	*st = x->stat;
	kvr_telemetry_unlock();
	free(x->worker);
	free(x);
	return rc;
}
