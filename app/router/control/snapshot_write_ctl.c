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

static bool given_up(const struct writing *writing)
{
	return atomic_load_explicit(&writing->rt->snapshot->quit, memory_order_relaxed) != 0;
}

/* Run a function on a packet lcore. The lock is held while the call is queued, not while it runs.
 */
static void call_it(struct writing *writing, struct lcore *lc,
		    bool (*fn)(struct lcore *lc, void *arg))
{
	struct call c = {.fn = fn, .arg = writing};

	kvr_telemetry_lock();
	call_start(writing->rt, lc, &c);
	kvr_telemetry_unlock();
	call_wait(writing->rt, &c);
}

/* ---- workers and their cursors, before and after the blocks ---- */

static int gather_workers(struct writing *writing)
{
	struct kvr_registry *r = writing->rt->registry;
	uint32_t n;

	kvr_telemetry_lock();
	n = kvr_registry_count(r);
	writing->worker = calloc((size_t)n + 1, sizeof(*writing->worker));
	for (uint32_t i = 0; writing->worker != NULL && i < n; i++) {
		const struct kvr_worker *worker = kvr_registry_at(r, i);
		struct held_worker *h = &writing->worker[writing->n_workers];

		if (worker->state == KVR_WORKER_JOINING)
			continue;
		h->w = (struct kvr_snap_worker){worker->id,	  worker->hello_digest,
						worker->epoch,	  worker->pool,
						worker->dp_start, worker->dp_size};
		memcpy(h->dense, worker->rank, worker->dp_size * sizeof(worker->rank[0]));
		writing->n_workers++;
	}
	kvr_telemetry_unlock();
	return writing->worker != NULL ? 0 : -ENOMEM;
}

/* Second pass after the blocks: a dump that began in between has cleared the rank, and the events
 * from the cursor on do not restore it. */
static void take_cursor(struct writing *writing, struct held_worker *h, uint32_t i)
{
	const uint32_t dense = h->dense[i];
	const struct event_cursor *cursor = &writing->pool->cursor[dense];
	const uint64_t dumps = kvr_cell_get(&writing->pool->event_ranks[dense].v[ER_DUMPS]);
	const bool whole = cursor->worker == h->w.id && cursor->epoch == h->w.epoch &&
			   cursor->dumping == 0 && cursor->faith != CURSOR_HINT;

	if (writing->again) {
		h->rank[i].whole = h->rank[i].whole != 0 && whole && dumps == h->dumps[i] &&
				   cursor->next >= h->rank[i].next;
		return;
	}
	h->rank[i] = (struct kvr_snap_rank){.next = cursor->next, .dense = dense, .whole = whole};
	h->dumps[i] = dumps;
}

static bool take_cursors(struct lcore *lc, void *arg)
{
	struct writing *writing = arg;
	uint32_t left = RANKS_TURN;

	RTE_SET_USED(lc);
	for (; writing->at < writing->n_workers; writing->at++, writing->rank_at = 0) {
		struct held_worker *h = &writing->worker[writing->at];

		for (; h->w.pool == writing->pool->number && writing->rank_at < h->w.dp_size;
		     writing->rank_at++) {
			if (left-- == 0)
				return false;
			if (h->dense[writing->rank_at] < writing->pool->max_ranks)
				take_cursor(writing, h, writing->rank_at);
		}
	}
	return true;
}

static void look_at_cursors(struct writing *writing, bool again)
{
	writing->again = again;
	for (uint32_t i = 0; i < writing->rt->n_pools; i++) {
		writing->pool = &writing->rt->pool[i];
		writing->at = writing->rank_at = 0;
		call_it(writing, writing->pool->event_lcore, take_cursors);
	}
}

/* Write the workers that are still registered; ranks of others may have new owners. */
static void put_workers(struct writing *writing)
{
	kvr_telemetry_lock();
	for (uint32_t i = 0; i < writing->n_workers; i++) {
		const struct held_worker *h = &writing->worker[i];
		const struct kvr_worker *worker = kvr_registry_find(writing->rt->registry, h->w.id);

		if (worker == NULL || worker->epoch != h->w.epoch)
			continue;
		kvr_snap_put(writing->w, KVR_SNAP_WORKER, &h->w, sizeof(h->w), h->rank,
			     h->w.dp_size * sizeof(h->rank[0]));
		writing->stat.workers++;
	}
	kvr_telemetry_unlock();
}

/* ---- blocks ---- */

static void put_piece(struct writing *writing)
{
	struct open_piece *o = &writing->piece;
	const size_t hashes = o->p.n * sizeof(o->sh[0]);
	const size_t owners = o->p.n_owners * sizeof(o->owner[0]);
	uint8_t more[sizeof(o->sh) + sizeof(o->owner)];

	if (o->p.n_owners == 0)
		return;
	memcpy(more, o->sh, hashes);
	memcpy(more + hashes, o->owner, owners);
	kvr_snap_put(writing->w, KVR_SNAP_PIECE, &o->p, sizeof(o->p), more, hashes + owners);
	writing->stat.runs++;
	writing->stat.blocks += o->p.tier == KVR_TIER_DEVICE ? o->p.n : 0;
	o->p = (struct kvr_snap_piece){0};
}

static bool on_piece(void *ctx, const struct kvr_prefix_piece *d)
{
	struct writing *writing = ctx;
	struct open_piece *o = &writing->piece;

	if (o->p.n_owners != 0 && (o->p.tier != d->tier || o->p.n_owners == KVR_SNAP_MAX_OWNERS))
		put_piece(writing);
	if (o->p.n_owners == 0)
		o->p = (struct kvr_snap_piece){.pool = (uint16_t)writing->pool->number,
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
	struct writing *writing = ctx;
	const unsigned int id = writing->rt->conf.n_lcores;
	int rc = 0;

	put_piece(writing);
	if (given_up(writing))
		return false;
	if (kvr_snap_pending(writing->w) < FLUSH_BYTES)
		return true;
	rte_rcu_qsbr_thread_offline(writing->rt->qsbr, id);
	rc = kvr_snap_flush(writing->w);
	rte_rcu_qsbr_thread_online(writing->rt->qsbr, id);
	return rc == 0;
}

static int put_blocks(struct writing *writing)
{
	const unsigned int id = writing->rt->conf.n_lcores;
	int rc;

	rte_rcu_qsbr_thread_register(writing->rt->qsbr, id);
	rte_rcu_qsbr_thread_online(writing->rt->qsbr, id);
	rc = kvr_prefix_dump(writing->pool->prefix, id, on_piece, on_rest, writing);
	rte_rcu_qsbr_thread_offline(writing->rt->qsbr, id);
	rte_rcu_qsbr_thread_unregister(writing->rt->qsbr, id);
	if (rc == -ECANCELED && !given_up(writing))
		rc = kvr_snap_flush(writing->w);
	return rc;
}

/* ---- sessions, live requests ---- */

static bool take_sessions(struct lcore *lc, void *arg)
{
	struct writing *writing = arg;
	const struct kvr_session *t = writing->pool->sessions->table;
	uint32_t left = SESSIONS_TURN;
	struct kvr_session_held h;

	for (; writing->at < kvr_session_entries(t); writing->at++) {
		struct held_session *out = &writing->batch.session[writing->n];

		if (writing->n == BATCH)
			return true;
		if (left-- == 0)
			return false;
		if (!kvr_session_entry(t, writing->at, lc->quiet.now_ns, &h))
			continue;
		out->s = (struct kvr_snap_session){.pool = (uint16_t)writing->pool->number,
						   .id_len = (uint16_t)h.len,
						   .dp_rank = h.to.dp_rank,
						   .worker = h.to.worker,
						   .tag = h.to.tag,
						   .ttl_ns = h.ttl_ns,
						   .left_ns = h.left_ns};
		memcpy(out->id, h.id, h.len);
		writing->n++;
	}
	return true;
}

static bool take_live(struct lcore *lc, void *arg)
{
	struct writing *writing = arg;
	uint32_t left = SLOTS_TURN;

	RTE_SET_USED(lc);
	for (; writing->at < kvr_flight_size(writing->pool->requests); writing->at++) {
		const struct kvr_flight *f = kvr_flight_slot(writing->pool->requests, writing->at);

		if (writing->n == BATCH)
			return true;
		if (left-- == 0)
			return false;
		if (f->state != KVR_FLIGHT_LIVE || f->unnamed)
			continue;
		writing->batch.live[writing->n++] =
			(struct kvr_snap_live){.source = f->relay.source,
					       .id = f->relay.id,
					       .worker = f->bound ? f->relay.worker : 0,
					       .epoch = f->relay.epoch,
					       .pool = writing->pool->number};
	}
	return true;
}

static int put_sessions(struct writing *writing)
{
	if (writing->pool->sessions == NULL)
		return 0;
	writing->at = 0;
	do {
		writing->n = 0;
		call_it(writing, writing->pool->sched_lcore, take_sessions);
		for (uint32_t i = 0; i < writing->n; i++)
			kvr_snap_put(writing->w, KVR_SNAP_SESSION, &writing->batch.session[i].s,
				     sizeof(writing->batch.session[i].s),
				     writing->batch.session[i].id,
				     writing->batch.session[i].s.id_len);
		writing->stat.sessions += writing->n;
	} while (writing->n == BATCH && !given_up(writing) && kvr_snap_flush(writing->w) == 0);
	return kvr_snap_flush(writing->w);
}

static int put_live(struct writing *writing)
{
	writing->at = 0;
	do {
		writing->n = 0;
		call_it(writing, writing->pool->sched_lcore, take_live);
		for (uint32_t i = 0; i < writing->n; i++)
			kvr_snap_put(writing->w, KVR_SNAP_LIVE, &writing->batch.live[i],
				     sizeof(writing->batch.live[i]), NULL, 0);
		writing->stat.live += writing->n;
	} while (writing->n == BATCH && !given_up(writing) && kvr_snap_flush(writing->w) == 0);
	return kvr_snap_flush(writing->w);
}

/* ---- all of it ---- */

static int put_all(struct writing *writing)
{
	struct router *rt = writing->rt;
	int rc = gather_workers(writing);

	if (rc == 0)
		look_at_cursors(writing, false);
	for (uint32_t i = 0; rc == 0 && i < rt->n_pools; i++) {
		writing->pool = &rt->pool[i];
		if (writing->pool->events_used)
			rc = put_blocks(writing);
		rc = rc != 0 ? rc : put_sessions(writing);
		rc = rc != 0 ? rc : put_live(writing);
	}
	if (rc == 0) {
		look_at_cursors(writing, true);
		put_workers(writing);
	}
	return rc == 0 && given_up(writing) ? -ECANCELED : rc;
}

int snapshot_write(struct router *rt)
{
	struct writing *writing = calloc(1, sizeof(*writing));
	struct snapshot *snapshot = rt->snapshot;
	struct snapshot_stat *st = &snapshot->stat;
	struct timespec now;
	int rc = -ENOMEM;

	if (writing == NULL)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	writing->rt = rt;
	writing->stat.at_ns = now_ns(rt);
	writing->w = kvr_snap_begin(
		snapshot->path, &snapshot->shape,
		&(const struct kvr_snap_about){.made_ms = (uint64_t)now.tv_sec * 1000 +
							  (uint64_t)now.tv_nsec / 1000000,
					       .secret = rt->client_seed,
					       .epoch = rt->epoch},
		rt->files);
	rc = writing->w != NULL ? put_all(writing) : -errno;
	if (rc == 0)
		rc = kvr_snap_commit(writing->w, &writing->stat.bytes);
	else
		kvr_snap_abort(writing->w);
	kvr_telemetry_lock();
	writing->stat.written = st->written + (rc == 0);
	writing->stat.failed = st->failed + (rc < 0);
	writing->stat.restored = st->restored;
	writing->stat.others = st->others;
	writing->stat.rc = rc;
	writing->stat.took_ns = now_ns(rt) - writing->stat.at_ns;
	*st = writing->stat;
	kvr_telemetry_unlock();
	free(writing->worker);
	free(writing);
	return rc;
}
