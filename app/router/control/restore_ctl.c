/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/log.h"
#include "control/restore.h"
#include "control/snapshot.h"
#include "state/router.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Agents register again within seconds after a restart of the router. */
#define KEEP_NS	    UINT64_C(60000000000)
#define FILE_BYTES  (UINT64_C(256) << 20) /* of a router with small tables */
#define BLOCK_BYTES 64u			  /* plus 4 for each rank with the block */

static uint32_t place(const struct kvr_snap_piece *p, uint32_t owner)
{
	return p->pool * KVR_SNAP_MAX_OWNERS + kvr_snap_owners(p)[owner].rank;
}

/* Walk the file: count entries, or store them. */
static void walk(struct restore *r, bool count)
{
	struct kvr_snap_record x;
	uint64_t pos = 0;

	while (kvr_snap_next(r->file, &pos, &x)) {
		const struct kvr_snap_piece *p = x.fixed;

		if (x.kind == KVR_SNAP_PIECE && p->pool < KVR_ROUTER_MAX_POOLS) {
			r->n_pieces += count ? p->n_owners : 0;
			for (uint32_t i = 0; i < p->n_owners; i++) {
				uint32_t *at = &r->first[place(p, i)];

				if (count)
					at[1]++;
				else
					r->piece[(*at)++] =
						(struct restore_piece){p, kvr_snap_owners(p)[i].n};
			}
		} else if (x.kind == KVR_SNAP_SESSION) {
			if (!count)
				r->session[r->n_sessions] = x.fixed;
			r->n_sessions++;
		} else if (x.kind == KVR_SNAP_WORKER) {
			if (!count)
				r->worker[r->n_workers] = (struct restore_worker){
					.w = x.fixed, .rank = x.more, .from = r};
			r->n_workers++;
		} else if (x.kind == KVR_SNAP_LIVE) {
			r->n_live += count;
		}
	}
}

static int by_worker(const void *a, const void *b)
{
	const struct kvr_snap_session *const *x = a, *const *y = b;

	return ((*x)->worker > (*y)->worker) - ((*x)->worker < (*y)->worker);
}

/* The first session of a worker, or the next one behind. */
static uint32_t session_from(const struct restore *r, uint64_t worker)
{
	uint32_t lo = 0, hi = r->n_sessions;

	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (r->session[mid]->worker < worker)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void finish_worker(struct restore *r, struct restore_worker *w)
{
	w->whole = true;
	for (uint32_t i = 0; i < w->w->dp_size; i++)
		w->whole =
			w->whole && w->rank[i].whole != 0 && w->rank[i].dense < KVR_SNAP_MAX_OWNERS;
	w->first_session = session_from(r, w->w->id);
	while (w->first_session + w->n_sessions < r->n_sessions &&
	       r->session[w->first_session + w->n_sessions]->worker == w->w->id)
		w->n_sessions++;
}

static int order(struct restore *r)
{
	const uint32_t places = KVR_ROUTER_MAX_POOLS * KVR_SNAP_MAX_OWNERS;

	r->first = calloc((size_t)places + 2, sizeof(*r->first));
	if (r->first == NULL)
		return -ENOMEM;
	walk(r, true);
	for (uint32_t i = 0; i < places; i++)
		r->first[i + 1] += r->first[i];
	r->piece = malloc(((size_t)r->n_pieces + 1) * sizeof(*r->piece));
	r->session = malloc(((size_t)r->n_sessions + 1) * sizeof(struct kvr_snap_session *));
	r->worker = malloc(((size_t)r->n_workers + 1) * sizeof(*r->worker));
	if (r->piece == NULL || r->session == NULL || r->worker == NULL)
		return -ENOMEM;
	r->n_sessions = r->n_workers = 0;
	walk(r, false);
	/* Each index has advanced to the beginning of the next one. */
	memmove(&r->first[1], &r->first[0], places * sizeof(*r->first));
	r->first[0] = 0;
	qsort(r->session, r->n_sessions, sizeof(struct kvr_snap_session *), by_worker);
	for (uint32_t i = 0; i < r->n_workers; i++)
		finish_worker(r, &r->worker[i]);
	r->left = r->n_workers;
	return 0;
}

/* Upper bound of a valid file: every block in a run of its own, on all ranks. */
static uint64_t most_bytes(const struct router *rt)
{
	uint64_t n = FILE_BYTES;

	for (uint32_t i = 0; i < rt->conf.n_pools; i++)
		n += rt->conf.pool[i].own.max_blocks *
		     (BLOCK_BYTES + 4 * rt->conf.pool[i].sched.max_ranks);
	return n;
}

static void say(const struct restore *r, uint64_t took_ns)
{
	const struct kvr_snap_about *a = kvr_snap_about(r->file);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		 "snapshot of router epoch %u, %" PRId64 " s old, read in %" PRIu64
		 " ms: %u workers, %u runs of blocks, %u sessions, %u requests in flight",
		 a->epoch, (int64_t)now.tv_sec - (int64_t)(a->made_ms / 1000), took_ns / 1000000,
		 r->n_workers, r->n_pieces, r->n_sessions, r->n_live);
}

int restore_read(struct router *rt, const char *path, const struct kvr_snap_shape *shape)
{
	struct restore *r = calloc(1, sizeof(*r));
	const uint64_t begin = now_ns(rt);
	char why[200] = "no memory";
	int rc = -ENOMEM;

	if (r != NULL)
		rc = kvr_snap_load(path, shape, most_bytes(rt), rt->files, &r->file, why,
				   sizeof(why));
	if (rc == 0 && (rc = order(r)) < 0)
		snprintf(why, sizeof(why), "no memory");
	if (rc < 0) {
		if (rc != -ENOENT)
			log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .reason = why),
				 "snapshot %s not used; starting without cached state", path);
		restore_free(r);
		return rc;
	}
	rt->snapshot->old = r;
	rt->client_seed = kvr_snap_about(r->file)->secret;
	r->until_ns = now_ns(rt) + KEEP_NS;
	say(r, now_ns(rt) - begin);
	return 0;
}

struct restore_worker *restore_take(struct router *rt, struct kvr_worker *w)
{
	struct restore *r = rt->snapshot != NULL ? rt->snapshot->old : NULL;

	for (uint32_t i = 0; r != NULL && i < r->n_workers; i++) {
		struct restore_worker *x = &r->worker[i];

		if (x->taken || x->w->id != w->id)
			continue;
		x->taken = true;
		r->left--;
		if (x->w->epoch != w->epoch || x->w->hello_digest != w->hello_digest ||
		    x->w->pool != w->pool || x->w->dp_start != w->dp_start ||
		    x->w->dp_size != w->dp_size) {
			rt->snapshot->stat.others++;
			return NULL;
		}
		rt->snapshot->stat.restored++;
		w->warm = x->whole && rt->pool[w->pool].events_used;
		return x;
	}
	return NULL;
}

void restore_free(struct restore *r)
{
	if (r == NULL)
		return;
	kvr_snap_free(r->file);
	free(r->first);
	free(r->piece);
	free(r->session);
	free(r->worker);
	free(r);
}
