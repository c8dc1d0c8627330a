/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a snapshot and handing its data to workers that register. */
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

static uint32_t place_index(const struct kvr_snap_piece *p, uint32_t owner)
{
	return p->pool * KVR_SNAP_MAX_OWNERS + kvr_snap_owners(p)[owner].rank;
}

/* Walk the file: count entries, or store them. */
static void walk_file(struct restore *restore, bool count)
{
	struct kvr_snap_record x;
	uint64_t pos = 0;

	while (kvr_snap_next(restore->file, &pos, &x)) {
		const struct kvr_snap_piece *p = x.fixed;

		if (x.kind == KVR_SNAP_PIECE && p->pool < KVR_ROUTER_MAX_POOLS) {
			restore->n_pieces += count ? p->n_owners : 0;
			for (uint32_t i = 0; i < p->n_owners; i++) {
				uint32_t *at = &restore->first[place_index(p, i)];

				if (count)
					at[1]++;
				else
					restore->piece[(*at)++] =
						(struct restore_piece){p, kvr_snap_owners(p)[i].n};
			}
		} else if (x.kind == KVR_SNAP_SESSION) {
			if (!count)
				restore->session[restore->n_sessions] = x.fixed;
			restore->n_sessions++;
		} else if (x.kind == KVR_SNAP_WORKER) {
			if (!count)
				restore->worker[restore->n_workers] = (struct restore_worker){
					.w = x.fixed, .rank = x.more, .from = restore};
			restore->n_workers++;
		} else if (x.kind == KVR_SNAP_LIVE) {
			restore->n_live += count;
		}
	}
}

static int by_worker(const void *a, const void *b)
{
	const struct kvr_snap_session *const *x = a, *const *y = b;

	return ((*x)->worker > (*y)->worker) - ((*x)->worker < (*y)->worker);
}

/* The first session of a worker, or the next one behind. */
static uint32_t session_from(const struct restore *restore, uint64_t worker)
{
	uint32_t lo = 0, hi = restore->n_sessions;

	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (restore->session[mid]->worker < worker)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void finish_worker(struct restore *restore, struct restore_worker *w)
{
	w->whole = true;
	for (uint32_t i = 0; i < w->w->dp_size; i++)
		w->whole =
			w->whole && w->rank[i].whole != 0 && w->rank[i].dense < KVR_SNAP_MAX_OWNERS;
	w->first_session = session_from(restore, w->w->id);
	while (w->first_session + w->n_sessions < restore->n_sessions &&
	       restore->session[w->first_session + w->n_sessions]->worker == w->w->id)
		w->n_sessions++;
}

static int order_entries(struct restore *restore)
{
	const uint32_t places = KVR_ROUTER_MAX_POOLS * KVR_SNAP_MAX_OWNERS;

	restore->first = calloc((size_t)places + 2, sizeof(*restore->first));
	if (restore->first == NULL)
		return -ENOMEM;
	walk_file(restore, true);
	for (uint32_t i = 0; i < places; i++)
		restore->first[i + 1] += restore->first[i];
	restore->piece = malloc(((size_t)restore->n_pieces + 1) * sizeof(*restore->piece));
	restore->session =
		malloc(((size_t)restore->n_sessions + 1) * sizeof(struct kvr_snap_session *));
	restore->worker = malloc(((size_t)restore->n_workers + 1) * sizeof(*restore->worker));
	if (restore->piece == NULL || restore->session == NULL || restore->worker == NULL)
		return -ENOMEM;
	restore->n_sessions = restore->n_workers = 0;
	walk_file(restore, false);
	/* Each index has advanced to the beginning of the next one. */
	memmove(&restore->first[1], &restore->first[0], places * sizeof(*restore->first));
	restore->first[0] = 0;
	qsort(restore->session, restore->n_sessions, sizeof(struct kvr_snap_session *), by_worker);
	for (uint32_t i = 0; i < restore->n_workers; i++)
		finish_worker(restore, &restore->worker[i]);
	restore->left = restore->n_workers;
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

static void log_restored(const struct restore *restore, uint64_t took_ns)
{
	const struct kvr_snap_about *a = kvr_snap_about(restore->file);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		 "snapshot of router epoch %u, %" PRId64 " s old, read in %" PRIu64
		 " ms: %u workers, %u runs of blocks, %u sessions, %u requests in flight",
		 a->epoch, (int64_t)now.tv_sec - (int64_t)(a->made_ms / 1000), took_ns / 1000000,
		 restore->n_workers, restore->n_pieces, restore->n_sessions, restore->n_live);
}

int restore_read(struct router *rt, const char *path, const struct kvr_snap_shape *shape)
{
	struct restore *restore = calloc(1, sizeof(*restore));
	const uint64_t begin = now_ns(rt);
	char why[200] = "no memory";
	int rc = -ENOMEM;

	if (restore != NULL)
		rc = kvr_snap_load(path, shape, most_bytes(rt), rt->files, &restore->file, why,
				   sizeof(why));
	if (rc == 0 && (rc = order_entries(restore)) < 0)
		snprintf(why, sizeof(why), "no memory");
	if (rc < 0) {
		if (rc != -ENOENT)
			log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .reason = why),
				 "snapshot %s not used; starting without cached state", path);
		restore_free(restore);
		return rc;
	}
	rt->snapshot->old = restore;
	rt->client_seed = kvr_snap_about(restore->file)->secret;
	restore->until_ns = now_ns(rt) + KEEP_NS;
	log_restored(restore, now_ns(rt) - begin);
	return 0;
}

struct restore_worker *restore_take(struct router *rt, struct kvr_worker *worker)
{
	struct restore *restore = rt->snapshot != NULL ? rt->snapshot->old : NULL;

	for (uint32_t i = 0; restore != NULL && i < restore->n_workers; i++) {
		struct restore_worker *x = &restore->worker[i];

		if (x->taken || x->w->id != worker->id)
			continue;
		x->taken = true;
		restore->left--;
		if (x->w->epoch != worker->epoch || x->w->hello_digest != worker->hello_digest ||
		    x->w->pool != worker->pool || x->w->dp_start != worker->dp_start ||
		    x->w->dp_size != worker->dp_size) {
			rt->snapshot->stat.others++;
			return NULL;
		}
		rt->snapshot->stat.restored++;
		worker->warm = x->whole && rt->pool[worker->pool].events_used;
		return x;
	}
	return NULL;
}

void restore_free(struct restore *restore)
{
	if (restore == NULL)
		return;
	kvr_snap_free(restore->file);
	free(restore->first);
	free(restore->piece);
	free(restore->session);
	free(restore->worker);
	free(restore);
}
